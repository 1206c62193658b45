//! Options of a reverse proxy: how `static.json` names them, and how the proxy carries them out. The two do
//! not know each other, so the words are here.

use std::time::Duration;

/// How to choose among several origins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Balance {
    /// One after the other.
    #[default]
    RoundRobin,
    /// The origin with the fewest requests in progress.
    LeastConnections,
}

/// The `Host` that an origin gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostPolicy {
    /// The origin's own authority.
    #[default]
    Origin,
    Client,
}

/// Where `Via` (RFC 9110 section 7.6.3) is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Via {
    /// To requests for origins and to their responses.
    #[default]
    Both,
    /// To requests only: loops are still detected.
    Requests,
    /// Nowhere: existing fields pass unchanged, and loops are not detected.
    Off,
}

/// Active health checks of origins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Path and query of the request; not appended to the origin's base path.
    pub path: String,
    /// The time between two checks of an origin.
    pub interval: Duration,
    /// How long a check may take.
    pub timeout: Duration,
    /// Successful checks (200 to 399) in a row before a failed origin is used again.
    pub healthy: u32,
    /// Failed checks in a row before an origin is no longer used.
    pub unhealthy: u32,
}
