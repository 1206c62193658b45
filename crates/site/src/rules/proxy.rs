//! `proxies`: what static.json says about origins, and the mapping of paths between a prefix and its origin.

use std::time::Duration;

/// One entry of `proxies`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyRule {
    /// The key as written.
    pub prefix: String,
    /// Line of the entry in `static.json`, from 1.
    pub line: u32,
    /// Where to; at least one, all with the same base path.
    pub origins: Vec<Origin>,
    /// How to choose among several.
    pub balance: Balance,
    /// Longest time to connect.
    pub connect_timeout: Duration,
    /// Longest silence of the origin.
    pub read_timeout: Duration,
    /// Longest time in which the origin takes nothing.
    pub send_timeout: Duration,
    /// How often a request that cannot have been acted on is sent again.
    pub retries: u32,
    /// Idle connections kept for each origin.
    pub max_idle: usize,
    /// Which `Host` the origin gets.
    pub host: HostPolicy,
    /// Whether certificates of `https` origins are verified.
    pub tls_verify: bool,
    /// A file of certificates to verify with, instead of the system's; relative to `static.json`.
    pub tls_ca: Option<String>,
    /// Whether `X-Forwarded-*` and `Forwarded` are sent.
    pub forwarded: bool,
    /// Whether `Upgrade: websocket` passes.
    pub websocket: bool,
    /// Active health checks.
    pub health: Option<Health>,
}

/// One origin, its variables put in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// As a complete URL: `http://…`, `https://…`, `unix:/path.sock` or `unix:/path.sock:/base`.
    pub url: String,
    /// How to reach it.
    pub scheme: OriginScheme,
    /// Host name or address, without brackets; the path of a Unix socket.
    pub host: String,
    /// Port, if one is written.
    pub port: Option<u16>,
    /// Base path: empty, or begins with `/` and does not end with it.
    pub base: String,
}

/// How an origin is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginScheme {
    /// TCP.
    Http,
    /// TLS over TCP.
    Https,
    /// A Unix socket.
    Unix,
}

/// How to choose among several origins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Balance {
    /// In turn.
    #[default]
    RoundRobin,
    /// The one with the fewest requests under way.
    LeastConnections,
}

/// Which `Host` an origin gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostPolicy {
    /// The origin's own.
    #[default]
    Origin,
    /// The client's.
    Client,
}

/// Active health checks of a proxy's origins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// What to ask for; begins with `/`.
    pub path: String,
    /// Time between checks.
    pub interval: Duration,
    /// Longest time for one check.
    pub timeout: Duration,
    /// Good checks in a row until an origin is used again.
    pub healthy: u32,
    /// Bad checks in a row until an origin is no longer used.
    pub unhealthy: u32,
}
