//! What a client may send, and how long it may take.

use std::time::Duration;

/// Bounds on one connection and its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Request line and header fields together, in bytes (431 beyond).
    pub max_header_bytes: usize,
    /// Number of header fields (431 beyond).
    pub max_headers: usize,
    /// Request target, in bytes (414 beyond).
    pub max_uri: usize,
    /// Request body, in bytes (413 beyond); `None` is unlimited.
    pub max_body: Option<u64>,
    /// Requests answered on one connection before it is closed; `None` and 0 are unlimited.
    pub max_requests_per_connection: Option<u64>,
    /// From the first byte of a request to the end of its head, in total (408).
    pub header_timeout: Duration,
    /// Least speed of a request body in bytes per second, measured over `body_grace` (408); `None` is off.
    pub body_min_rate: Option<u64>,
    /// The time over which `body_min_rate` is measured; at least a second is taken.
    pub body_grace: Duration,
    /// Idle time between requests on one connection; zero turns keep-alive off.
    pub keep_alive_timeout: Duration,
    /// How long a client may take nothing of its response.
    pub send_timeout: Duration,
    /// Whether header names with `_` are passed on instead of being dropped.
    pub allow_underscore_headers: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_header_bytes: 64 << 10,
            max_headers: 100,
            max_uri: 16 << 10,
            max_body: Some(1 << 30),
            max_requests_per_connection: None,
            header_timeout: Duration::from_secs(30),
            body_min_rate: Some(500),
            body_grace: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(65),
            send_timeout: Duration::from_secs(60),
            allow_underscore_headers: false,
        }
    }
}
