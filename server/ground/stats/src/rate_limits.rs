//! Statistics of rate limits: admitted and refused requests.

use crate::figures::figures;

figures! {
    #[derive(Eq)]
    pub struct RateLimitsSnapshot {
        /// The limits, in the order of the settings.
        limits: Vec<RateLimitSnapshot> = part,
        /// The Redis that holds the shared counts answers; null without [`shared.redis`](several-servers.md).
        redis_up: Option<bool> =
            gauge("firebrick_rate_limit_redis_up"; "Whether the Redis of shared rate limits answers"),
        /// The last known number of servers that share the limits, this one included.
        servers: u32 = gauge(
            "firebrick_rate_limit_servers"; "Servers that share rate limits, as seen last" if redis_up.is_some()
        ),
    }

    /// One rate limit. Its counts are never reset.
    #[derive(Default, Eq)]
    pub struct RateLimitSnapshot [limit = |it| it.name.clone()] {
        /// The name in the settings.
        name: String,
        /// The rate as written in the settings, such as `100/s`.
        rate: String,
        /// Requests that may arrive at once.
        burst: u32,
        /// All servers count together.
        shared: bool,
        /// Refused requests are admitted all the same.
        dry_run: bool,
        /// Requests within the limit.
        admitted: u64 = counter("firebrick_rate_limit_requests", result = "admitted"; "Requests that a rate limit has judged"),
        /// Requests beyond the limit, also those that a dry run admits.
        refused: u64 = counter("firebrick_rate_limit_requests", result = "refused"),
        /// Of a [shared](several-servers.md) limit: requests that were checked without Redis, by this server's share.
        alone: u64 = counter(
            "firebrick_rate_limit_alone";
            "Requests that a shared rate limit has judged without Redis, by this server's share" if shared
        ),
    }
}
