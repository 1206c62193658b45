//! Configures a reverse proxy.

use crate::Origin;
use handler::Peer;
use handler::proxying::{Balance, Health, HostPolicy, Via};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Returns whether forwarding fields of a peer are trusted.
pub type Trusts = Arc<dyn Fn(&Peer) -> bool + Send + Sync>;

/// The configuration of a reverse proxy. [`ProxyConfig::new`] gives the defaults.
#[derive(Clone)]
pub struct ProxyConfig {
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
    /// Idle connections kept per origin and front thread; 0 keeps none. Surplus ones are closed only after a
    /// second without use, so that a burst does not reconnect for each request.
    pub max_idle: usize,
    /// The `Host` to send.
    pub host: HostPolicy,
    /// Write `X-Forwarded-For`, `-Proto`, `-Host`, `-Port` and `Forwarded`. Otherwise the client's fields are
    /// passed on unchanged.
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

impl ProxyConfig {
    /// Returns the defaults, for these origins.
    pub fn new(name: impl Into<String>, origins: Vec<Origin>) -> ProxyConfig {
        ProxyConfig {
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
