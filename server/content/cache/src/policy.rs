//! The settings of a cache.

use settings::TrustedProxies;
use std::time::Duration;

/// The settings of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The longest body that is kept, in bytes.
    pub max_object: u64,
    /// The longest time that a response without an explicit lifetime is kept (RFC 9111 section 4.2.2); zero:
    /// not at all.
    pub heuristic: Duration,
    /// How long a stale response may be sent while one request renews it, unless the response says otherwise.
    pub stale_while_revalidate: Duration,
    /// How long a stale response may be sent when the origin fails, unless the response says otherwise.
    pub stale_if_error: Duration,
    /// How long the origin may take before a stale response is sent that may be sent when it fails; zero: as
    /// long as it wants.
    pub stale_if_slow: Duration,
    /// How long a request waits for an equal request before it goes to the origin itself.
    pub collapse_wait: Duration,
    /// Whether `?a=1&b=2` and `?b=2&a=1` are the same.
    pub sort_query: bool,
    /// Whether a `public` response may be kept although it has Set-Cookie or varies by a cookie.
    pub cookies: bool,
    /// Whether a response to a request with Authorization may be kept where RFC 9111 section 3.5 allows it.
    pub authorization: bool,
    /// The proxies whose `X-Forwarded-Host` and similar fields select a response.
    pub trusted: TrustedProxies,
    /// Whether clients may ask for newer responses (Cache-Control in requests).
    pub client_control: bool,
    /// Whether responses have a Cache-Status field (RFC 9211).
    pub status_field: bool,
    /// Whether kept responses are compressed, and from which length.
    pub compress_from: Option<u64>,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            max_object: 1 << 20,
            heuristic: Duration::from_secs(60),
            stale_while_revalidate: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            stale_if_slow: Duration::from_secs(1),
            collapse_wait: Duration::from_secs(5),
            sort_query: false,
            cookies: false,
            authorization: false,
            trusted: TrustedProxies::default(),
            client_control: true,
            status_field: true,
            compress_from: Some(representation::coding::MIN_LENGTH),
        }
    }
}
