//! The description of a run: requests, rates, limits and checks. Data only; [`crate::run`] runs it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::journey::Journey;
pub use crate::part::Part;
use crate::recorded::Recorded;
pub use crate::think::Think;

#[derive(Debug, Clone)]
pub struct Scenario {
    /// The requests to send; never empty.
    pub requests: Vec<Request>,
    pub order: RequestOrder,
    /// The rule for sending the next request.
    pub traffic: Traffic,
    /// The end of the run.
    pub stop: Stop,
    /// The duration of the warm-up, whose requests are sent first and not counted; its connections are kept.
    pub warm_up: Duration,
    pub transport: Transport,
    pub timeouts: Timeouts,
    pub checks: Checks,
    /// Threads of the load generator; connections are spread over them.
    pub threads: usize,
    /// Whether to keep the cookies that a server sets and send them back, per user (one per connection).
    pub cookies: bool,
    /// Whether to ask a Firebrick server for the stages of each response (`Firebrick-Timing: 1`; it replies
    /// with `Server-Timing`).
    pub stages: bool,
    /// Requests that depend on each other, instead of independent ones: request number n of `requests` is the n-th step, of which it gives the
    /// origin, the method and the common fields.
    pub journey: Option<Arc<Journey>>,
    /// The part of the run that this process has; set by [`Scenario::in_part`].
    pub part: Part,
}

impl Scenario {
    /// Returns one process's part of this scenario. `stop.requests` remains the number of all requests.
    #[must_use]
    pub fn in_part(mut self, part: Part) -> Scenario {
        self.part = part;
        match &mut self.traffic {
            Traffic::Closed { users: most, .. }
            | Traffic::Open { connections: most, .. }
            | Traffic::Replay { connections: most, .. } => {
                *most = usize::try_from(part.share(*most as u64)).unwrap_or(*most);
                self.threads = self.threads.min(*most).max(1);
            }
        }
        self
    }
}

/// One kind of request.
#[derive(Debug, Clone)]
pub struct Request {
    pub origin: Origin,
    /// A method such as `GET`.
    pub method: String,
    /// Path and query, or `*`; as sent.
    pub target: String,
    /// The given fields. The engine adds `Host` and `Content-Length` unless they are given here.
    pub headers: Vec<(String, String)>,
    /// The body; may be empty.
    pub body: Bytes,
    /// Relative frequency; at least 1.
    pub weight: u32,
}

/// Scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Whether the scheme is `https`.
    pub tls: bool,
    /// A name or an address, IPv6 without brackets; a link-local one with its zone, such as `fe80::1%eth0`.
    pub host: String,
    /// The port from the URL, or the scheme's default.
    pub port: u16,
}

impl Origin {
    /// Returns the host without its zone, which names a network interface of this machine only.
    pub fn host_without_zone(&self) -> &str {
        self.host.split_once('%').map_or(&self.host, |(address, _)| address)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOrder {
    /// In the listed order, by weight, over all connections (as siege does).
    InTurn,
    /// Random, by weight; the same seed gives the same sequence.
    Random(u64),
}

/// The rule for sending the next request.
#[derive(Debug, Clone)]
pub enum Traffic {
    /// Closed model: each of a number of users waits for the response, thinks, and sends the next request.
    Closed {
        /// Number of users, each with its own connection.
        users: usize,
        /// Time between a response and the next request.
        think: Think,
    },
    /// Open model: requests are sent at a rate, whether or not responses arrive.
    Open {
        /// The stages, one after the other.
        stages: Vec<Stage>,
        arrivals: Arrivals,
        /// The most connections (times streams, times pipeline depth). A request that finds none free waits,
        /// and its wait counts.
        connections: usize,
    },
    /// Requests at recorded times.
    Replay {
        /// The time (relative to the start, not decreasing) and the index into `requests`.
        arrivals: Vec<(Duration, usize)>,
        connections: usize,
    },
}

/// Distribution of the arrivals of an open model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// At equal intervals (as wrk2 does).
    Even,
    /// Poisson; the same seed gives the same gaps.
    Random(u64),
}

/// A constant or linearly changing rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    /// Requests per second at the start.
    pub from: f64,
    /// Requests per second at the end.
    pub to: f64,
    /// The duration; `None` only in the last stage, which lasts until the run ends.
    pub duration: Option<Duration>,
}

/// The end of a run: the first limit reached. All may be `None` only for a replay or for stages that end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stop {
    /// The most requests to start.
    pub requests: Option<u64>,
    /// The most requests per user (siege's `-r`).
    pub rounds: Option<u64>,
    /// The time after which no request is started.
    pub after: Option<Duration>,
}

/// The transport of requests.
#[derive(Debug, Clone)]
pub struct Transport {
    pub protocol: Protocol,
    /// The address to connect to instead of the URL's host; `Host` and SNI are unchanged.
    pub to: Option<ConnectTo>,
    /// Options for `https`.
    pub tls: Tls,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1 {
        /// Whether connections are kept. If not: one connection per request, with `Connection: close`.
        keep_alive: bool,
        /// Most requests in flight per connection; at least 1.
        pipeline: usize,
    },
    /// HTTP/2: by ALPN over TLS, otherwise with prior knowledge.
    Http2 {
        /// Most requests in flight per connection; at least 1.
        streams: usize,
    },
    /// HTTP/3, to `https` origins.
    Http3 {
        /// Most requests in flight per connection; at least 1.
        streams: usize,
    },
}

impl Protocol {
    /// Returns the most requests in flight per connection for protocols with streams.
    pub(crate) fn streams(self) -> Option<usize> {
        match self {
            Protocol::Http1 { .. } => None,
            Protocol::Http2 { streams } | Protocol::Http3 { streams } => Some(streams),
        }
    }
}

/// The target of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectTo {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// The trusted server certificates, and whether sessions are resumed.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Whether to trust every certificate.
    pub insecure: bool,
    /// A PEM file with certificates to trust besides the system's.
    pub ca: Option<PathBuf>,
    /// Whether to resume sessions where the server allows it. Otherwise every connection costs the server as
    /// much as a new visitor.
    pub resume: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// The time to open a connection, including TLS.
    pub connect: Duration,
    /// The time from sending a request to the end of its response.
    pub request: Duration,
    /// The time for requests in flight at the end of the run; those not completed by then count as cut off.
    pub grace: Duration,
}

/// The checks of responses. A response that fails a check counts as an error and in no latency.
#[derive(Debug, Clone, Default)]
pub struct Checks {
    /// Ranges of expected statuses, both ends included; empty: 100 to 399.
    pub statuses: Vec<(u16, u16)>,
    /// The expected length of the body.
    pub length: Option<Length>,
    /// The expected SHA-256 of the body.
    pub sha256: Option<[u8; 32]>,
    /// A regular expression (over bytes) that the body must match.
    pub matching: Option<regex::bytes::Regex>,
    /// The recorded responses of a replay, which replace all other checks.
    pub recorded: Option<Arc<Recorded>>,
}

impl Checks {
    /// Returns whether the digest of a body is compared: of the response to request `kind`, with this status.
    pub(crate) fn compare_digest(&self, kind: usize, status: u16) -> bool {
        match &self.recorded {
            Some(recorded) => recorded.expected.get(kind).is_some_and(|one| one.has_digest_for(status)),
            None => self.sha256.is_some(),
        }
    }

    /// Returns whether a status counts as success.
    pub(crate) fn accepts(&self, status: u16) -> bool {
        match self.statuses.as_slice() {
            [] => status < 400,
            ranges => ranges.iter().any(|(first, last)| (*first..=*last).contains(&status)),
        }
    }
}

/// The expected length of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// This many bytes.
    Exactly(u64),
    /// The same as of the first response to the same request (as ab does).
    Same,
}
