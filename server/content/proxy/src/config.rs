//! Configures a reverse proxy.

use crate::Origin;
use handler::Peer;
use std::path::PathBuf;
use std::sync::Arc;
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
    /// The client's.
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

/// Returns whether forwarding fields of a peer are trusted.
pub type Trusts = Arc<dyn Fn(&Peer) -> bool + Send + Sync>;

/// The configuration of a reverse proxy. [`Config::new`] gives the defaults.
#[derive(Clone)]
pub struct Config {
    /// Where the proxy was configured, for messages: `proxies "/api"`.
    pub name: String,
    /// The destinations of requests; at least one.
    pub origins: Vec<Origin>,
    /// How to choose among them.
    pub balance: Balance,
    /// How long connecting may take, including name resolution and the TLS handshake.
    pub connect_timeout: Duration,
    /// How long a response head may take, and how long an origin may be silent inside a body.
    pub read_timeout: Duration,
    /// How long an origin may go without reading its request.
    pub send_timeout: Duration,
    /// How many other origins are tried if one cannot be reached.
    pub retries: u32,
    /// Idle connections kept per origin and front thread; 0 keeps none. Surplus ones are closed only after a second without use, so that a burst
    /// does not reconnect for each request.
    pub max_idle: usize,
    /// The `Host` to send.
    pub host: HostPolicy,
    /// Write `X-Forwarded-For`, `-Proto`, `-Host`, `-Port` and `Forwarded`. Otherwise the client's fields are passed on unchanged.
    pub forwarded: bool,
    /// Where `Via` is added.
    pub via: Via,
    /// How often a request may have passed this proxy already. Beyond that it gets 508.
    pub passes: usize,
    /// Allow connections to be upgraded (`WebSocket` and others, never `h2c`).
    pub websocket: bool,
    /// Verify the certificates of `https` origins.
    pub tls_verify: bool,
    /// A PEM file of certificates to trust instead of the system's.
    pub tls_ca: Option<PathBuf>,
    /// Active health checks; for [`crate::check_health`].
    pub health: Option<Health>,
    /// The most bytes of a response's status line and header fields together.
    pub max_response_head: usize,
    /// Peers whose `X-Forwarded-*` and `Forwarded` are kept and extended. The fields of other peers are replaced.
    pub trusted: Trusts,
}

impl Config {
    /// Returns the defaults, for these origins.
    pub fn new(name: impl Into<String>, origins: Vec<Origin>) -> Config {
        Config {
            name: name.into(),
            origins,
            balance: Balance::default(),
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(60),
            send_timeout: Duration::from_secs(60),
            retries: 1,
            max_idle: 32,
            host: HostPolicy::default(),
            forwarded: true,
            via: Via::default(),
            passes: 0,
            websocket: true,
            tls_verify: true,
            tls_ca: None,
            health: None,
            max_response_head: 64 << 10,
            trusted: Arc::new(|_| false),
        }
    }
}
