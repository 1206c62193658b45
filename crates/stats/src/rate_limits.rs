//! Statistics of rate limits: admitted and refused requests.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimitsSnapshot {
    /// In the order of the settings.
    pub limits: Vec<RateLimitSnapshot>,
    /// Whether the Redis that holds the shared counts answers; `None` without Redis.
    pub redis_up: Option<bool>,
    /// The number of servers at the last query of Redis, including this one.
    pub servers: u32,
}

/// One rate limit. Its counts are never reset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimitSnapshot {
    /// The name in the settings.
    pub name: String,
    /// The rate as written in the settings: `100/s`.
    pub rate: String,
    /// The number of requests that may arrive at once.
    pub burst: u32,
    /// Whether all servers count together.
    pub shared: bool,
    /// Whether refused requests are admitted anyway.
    pub dry_run: bool,
    /// Requests within the limit.
    pub admitted: u64,
    /// Requests above the limit.
    pub refused: u64,
    /// Requests of both kinds that this server counted alone, because Redis was unavailable.
    pub alone: u64,
}
