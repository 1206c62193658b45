//! What a reverse proxy has to know: where to, how, and for how long.

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
    /// The one with the fewest requests under way.
    LeastConnections,
}

/// Which `Host` an upstream sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostPolicy {
    /// The origin's own authority.
    #[default]
    Origin,
    /// What the client asked for.
    Client,
}

/// How origins are asked whether they can serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Path and query that is asked for; it is not put behind the origin's base path.
    pub path: String,
    /// Time between two questions to an origin.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Good answers (200 to 399) in a row until an origin that was out is back.
    pub healthy: u32,
    /// Bad or missing answers in a row until an origin is out.
    pub unhealthy: u32,
}

/// Says whether what a peer tells about the client is to be believed.
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
    /// How long a response head may take, and how long an upstream may be silent inside a body.
    pub read_timeout: Duration,
    /// How long an upstream may take nothing of its request.
    pub send_timeout: Duration,
    /// How many other origins are tried when one cannot be reached.
    pub retries: u32,
    /// Idle connections kept per origin and front thread; 0 keeps none. Those beyond it are closed when nobody has used them
    /// for a second, so that a burst does not connect anew for each request.
    pub max_idle: usize,
    /// Which `Host` upstreams see.
    pub host: HostPolicy,
    /// Whether upstreams are told about the client: `X-Forwarded-For`, `-Proto`, `-Host`, `-Port` and `Forwarded`. Otherwise
    /// what a client says in these fields is passed on as it is.
    pub forwarded: bool,
    /// Whether connections may be upgraded (`WebSocket` and others, never `h2c`).
    pub websocket: bool,
    /// Whether certificates of `https` origins are verified.
    pub tls_verify: bool,
    /// A PEM file of certificates to believe instead of the system's.
    pub tls_ca: Option<PathBuf>,
    /// Active health checks; for [`crate::check_health`].
    pub health: Option<Health>,
    /// Status line and header fields of a response together, in bytes.
    pub max_response_head: usize,
    /// Whose `X-Forwarded-*` and `Forwarded` are kept and extended; those of others are replaced.
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
            websocket: true,
            tls_verify: true,
            tls_ca: None,
            health: None,
            max_response_head: 64 << 10,
            trusted: Arc::new(|_| false),
        }
    }
}
