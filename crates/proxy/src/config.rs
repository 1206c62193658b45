//! The configuration of a reverse proxy.

use crate::Origin;
use handler::Peer;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Which of several origins gets the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Balance {
    /// One after the other.
    #[default]
    RoundRobin,
    /// The one with the fewest requests in progress.
    LeastConnections,
}

/// Which `Host` an origin gets.
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
    /// To requests only: loops are still recognized.
    Requests,
    /// Nowhere: what others have written passes unchanged, and loops go unnoticed.
    Off,
}

/// Active health checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Path and query of the request; not appended to the origin's base path.
    pub path: String,
    /// Time between two checks of an origin.
    pub interval: Duration,
    /// How long a check may take.
    pub timeout: Duration,
    /// Successful checks (200 to 399) in a row until a failed origin is used again.
    pub healthy: u32,
    /// Failed checks in a row until an origin is not used any more.
    pub unhealthy: u32,
}

/// Whether forwarding fields of a peer are trusted.
pub type Trusts = Arc<dyn Fn(&Peer) -> bool + Send + Sync>;

/// A reverse proxy, as it is configured. [`Config::new`] gives the defaults.
#[derive(Clone)]
pub struct Config {
    /// Where it was configured, for messages: `proxies "/api"`.
    pub name: String,
    /// Where requests go; at least one.
    pub origins: Vec<Origin>,
    /// Which origin is next.
    pub balance: Balance,
    /// How long connecting may take, resolving of names and the TLS handshake included.
    pub connect_timeout: Duration,
    /// How long a response head may take, and how long an origin may be silent inside a body.
    pub read_timeout: Duration,
    /// How long an origin may go without reading its request.
    pub send_timeout: Duration,
    /// How many other origins are tried when one cannot be reached.
    pub retries: u32,
    /// Idle connections kept per origin and front thread; 0 keeps none. Surplus ones are closed after a second
    /// without use, so that a burst does not connect anew for each request.
    pub max_idle: usize,
    /// Which `Host` is sent.
    pub host: HostPolicy,
    /// Whether `X-Forwarded-For`, `-Proto`, `-Host`, `-Port` and `Forwarded` are written. Otherwise the client's are passed on
    /// unchanged.
    pub forwarded: bool,
    /// Where `Via` is added.
    pub via: Via,
    /// How often a request may have passed here already. One that comes more often gets 508.
    pub passes: usize,
    /// Whether connections may be upgraded (`WebSocket` and others, never `h2c`).
    pub websocket: bool,
    /// Whether certificates of `https` origins are verified.
    pub tls_verify: bool,
    /// A PEM file of certificates to trust instead of the system's.
    pub tls_ca: Option<PathBuf>,
    /// Active health checks; for [`crate::check_health`].
    pub health: Option<Health>,
    /// Status line and header fields of a response together, in bytes.
    pub max_response_head: usize,
    /// Peers whose `X-Forwarded-*` and `Forwarded` are kept and extended; those of others are replaced.
    pub trusted: Trusts,
}

impl Config {
    /// The defaults, for these origins.
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
