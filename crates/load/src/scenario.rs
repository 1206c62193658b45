//! The description of a run: requests, rates, limits and checks. Data only; [`crate::run`] runs it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

pub use crate::part::Part;

/// A run.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The requests to send; never empty.
    pub requests: Vec<Request>,
    /// Which request is next.
    pub order: Order,
    /// When the next request is sent.
    pub traffic: Traffic,
    /// When the run ends.
    pub stop: Stop,
    /// Duration of the warm-up: sent first and not counted; the connections are kept.
    pub warm_up: Duration,
    /// How requests are sent.
    pub transport: Transport,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Checks of responses.
    pub checks: Checks,
    /// Threads of the load generator; connections are spread over them.
    pub threads: usize,
    /// Keep the cookies that a server sets and send them back, per user (one per connection).
    pub cookies: bool,
    /// Ask a Firebrick server for the stages of each response (`Firebrick-Timing: 1`; it replies with `Server-Timing`).
    pub stages: bool,
    /// Which part of the run this process has; set by [`Scenario::in_part`].
    pub part: Part,
}

/// One kind of request.
#[derive(Debug, Clone)]
pub struct Request {
    /// Where it is sent.
    pub origin: Origin,
    /// Such as `GET`.
    pub method: String,
    /// Path and query, or `*`; as sent.
    pub target: String,
    /// Fields as given. The engine adds `Host` and `Content-Length` unless they are given here.
    pub headers: Vec<(String, String)>,
    /// The body; may be empty.
    pub body: Bytes,
    /// Relative frequency; at least 1.
    pub weight: u32,
}

/// Scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// `https`.
    pub tls: bool,
    /// A name or an address, IPv6 without brackets; a link-local one with its zone, such as `fe80::1%eth0`.
    pub host: String,
    /// From the URL, or the scheme's default.
    pub port: u16,
}

impl Origin {
    /// The host as others know it: a zone names a network interface of this machine.
    pub fn host_without_zone(&self) -> &str {
        self.host.split_once('%').map_or(&self.host, |(address, _)| address)
    }
}

/// Which request is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// In the listed order, by weight, over all connections (as siege does).
    InTurn,
    /// Random, by weight; the same seed gives the same sequence.
    Random(u64),
}

/// When the next request is sent.
#[derive(Debug, Clone)]
pub enum Traffic {
    /// Closed model: a number of users, each of whom waits for the response, thinks, and sends the next request.
    Closed {
        /// Number of users, each with its own connection.
        users: usize,
        /// Time between a response and the next request.
        think: Think,
    },
    /// Open model: requests are sent at a rate, whether or not responses arrive.
    Open {
        /// Consecutive stages.
        stages: Vec<Stage>,
        /// Distribution of the arrivals.
        arrivals: Arrivals,
        /// Most connections (times streams, times pipeline depth); a request that finds none free waits, and its wait
        /// counts.
        connections: usize,
    },
    /// Requests at recorded times.
    Replay {
        /// When (relative to the start, not decreasing) and which of `requests`.
        arrivals: Vec<(Duration, usize)>,
        /// Most connections.
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

/// Think time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Think {
    /// None.
    None,
    /// Constant.
    Fixed(Duration),
    /// Uniformly distributed between 0 and this (siege's `-d`).
    UpTo(Duration),
}

/// A constant or linearly changing rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    /// Requests per second at the start.
    pub from: f64,
    /// Requests per second at the end.
    pub to: f64,
    /// Duration; `None` only in the last stage: until the run ends.
    pub duration: Option<Duration>,
}

/// When a run ends: at the first limit reached. All may be `None` only for a replay or for stages that end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stop {
    /// After this many requests were started.
    pub requests: Option<u64>,
    /// After this many requests per user (siege's `-r`).
    pub rounds: Option<u64>,
    /// No request is started after this time.
    pub after: Option<Duration>,
}

/// How requests are sent.
#[derive(Debug, Clone)]
pub struct Transport {
    /// The protocol.
    pub protocol: Protocol,
    /// Connect here instead of to the URL's host; `Host` and SNI are unchanged.
    pub to: Option<ConnectTo>,
    /// Options for `https`.
    pub tls: Tls,
}

/// The protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1 {
        /// Off: one connection per request, with `Connection: close`.
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
    /// Most requests in flight per connection where streams carry them.
    pub(crate) fn streams(self) -> Option<usize> {
        match self {
            Protocol::Http1 { .. } => None,
            Protocol::Http2 { streams } | Protocol::Http3 { streams } => Some(streams),
        }
    }
}

/// Where connections go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectTo {
    /// An address.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Which server certificates are trusted, and whether sessions are resumed.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Trust every certificate.
    pub insecure: bool,
    /// Trust the certificates in this PEM file, besides the system's.
    pub ca: Option<PathBuf>,
    /// Resume sessions where the server allows it. Otherwise every connection costs the server what a new visitor costs.
    pub resume: bool,
}

/// Timeouts.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For opening a connection, including TLS.
    pub connect: Duration,
    /// From sending a request to the end of its response.
    pub request: Duration,
    /// For requests in flight at the end of the run; those not completed by then count as cut off.
    pub grace: Duration,
}

/// What a response must be like. A response that fails a check counts as an error and in no latency.
#[derive(Debug, Clone, Default)]
pub struct Checks {
    /// Ranges of expected statuses, both ends included; empty: 100 to 399.
    pub statuses: Vec<(u16, u16)>,
    /// Length of the body.
    pub length: Option<Length>,
    /// SHA-256 of the body.
    pub sha256: Option<[u8; 32]>,
    /// A regular expression (over bytes) that the body must match.
    pub matching: Option<regex::bytes::Regex>,
}

/// The expected length of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// This many bytes.
    Exactly(u64),
    /// The same as the first response to the same request (as ab does).
    Same,
}
