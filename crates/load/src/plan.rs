//! What is asked of a run: whom, how often, how long, what counts as right. Data only; [`crate::run`] does it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

/// A whole run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What is sent; never empty.
    pub requests: Vec<Request>,
    /// Which of them is next.
    pub order: Order,
    /// When the next one is sent.
    pub traffic: Traffic,
    /// When it is over.
    pub stop: Stop,
    /// Sent first and not counted; the connections are kept.
    pub warm_up: Duration,
    /// How they travel.
    pub transport: Transport,
    /// When waiting ends.
    pub timeouts: Timeouts,
    /// What an answer has to be like.
    pub checks: Checks,
    /// Threads of the load generator; connections are spread over them.
    pub threads: usize,
    /// Cookies that a server sets are sent back on the same connection (one user per connection).
    pub cookies: bool,
    /// Ask a Firebrick for the stages of each answer (`Firebrick-Timing: 1`, answered by `Server-Timing`).
    pub stages: bool,
}

/// One kind of request.
#[derive(Debug, Clone)]
pub struct Request {
    /// Whom it is sent to.
    pub origin: Origin,
    /// Such as `GET`.
    pub method: String,
    /// Path and query, or `*`; as it is sent.
    pub target: String,
    /// Fields as given, without those that the engine sets (`Host`, `Content-Length`) unless they are meant to replace them.
    pub headers: Vec<(String, String)>,
    /// The body; empty for none.
    pub body: Bytes,
    /// How often in comparison with the others; at least 1.
    pub weight: u32,
}

/// Scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// `https`.
    pub tls: bool,
    /// A name or an address, IPv6 without brackets.
    pub host: String,
    /// From the URL or the scheme's.
    pub port: u16,
}

/// Which request is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As listed, by weight, all connections together (siege's).
    InTurn,
    /// Drawn by weight; the same seed gives the same draw.
    Random(u64),
}

/// When the next request is sent.
#[derive(Debug, Clone)]
pub enum Traffic {
    /// So many users, each of whom waits for the answer, thinks, and asks again.
    Closed {
        /// How many users, each with a connection of its own.
        users: usize,
        /// What passes between an answer and the next question.
        think: Think,
    },
    /// Requests come whether or not answers do: stage after stage.
    Open {
        /// One after the other.
        stages: Vec<Stage>,
        /// How arrivals follow each other.
        arrivals: Arrivals,
        /// At most so many connections (times streams, times pipeline depth); what finds none waits, and its wait counts.
        connections: usize,
    },
    /// Requests at given times.
    Replay {
        /// When (since the start, not decreasing) and which of `requests`.
        arrivals: Vec<(Duration, usize)>,
        /// At most so many connections.
        connections: usize,
    },
}

/// How arrivals of an open model follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// At equal distances (wrk2's).
    Even,
    /// Poisson; the same seed gives the same gaps.
    Random(u64),
}

/// Think time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Think {
    /// None.
    None,
    /// Always the same.
    Fixed(Duration),
    /// Evenly between nothing and this (siege's `-d`).
    UpTo(Duration),
}

/// A rate that stays or changes evenly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    /// Requests per second when it begins.
    pub from: f64,
    /// Requests per second when it ends.
    pub to: f64,
    /// How long; `None` for the last one: until the run is over.
    pub lasting: Option<Duration>,
}

/// When a run is over: whichever comes first. All `None` is allowed only for a replay or stages that end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stop {
    /// After so many requests were begun.
    pub requests: Option<u64>,
    /// After so many requests of each user (siege's `-r`).
    pub rounds: Option<u64>,
    /// No request begins after this.
    pub after: Option<Duration>,
}

/// How requests travel.
#[derive(Debug, Clone)]
pub struct Transport {
    /// Which protocol.
    pub protocol: Protocol,
    /// Connect here instead of where the URL says; `Host` and SNI stay.
    pub to: Option<Place>,
    /// For `https`.
    pub tls: Tls,
}

/// Which protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1 {
        /// Off: one connection per request, `Connection: close`.
        keep_alive: bool,
        /// Requests under way on one connection; at least 1.
        pipeline: usize,
    },
    /// HTTP/2: by ALPN over TLS, with prior knowledge otherwise.
    Http2 {
        /// Requests under way on one connection; at least 1.
        streams: usize,
    },
}

/// Where a connection goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// An address.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// How far a server's certificate is believed.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Believe every certificate.
    pub insecure: bool,
    /// Believe these (PEM) besides the system's.
    pub ca: Option<PathBuf>,
}

/// When waiting ends.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For a connection, TLS included.
    pub connect: Duration,
    /// From sending a request to the end of its answer.
    pub request: Duration,
    /// After the run is over, for what is still under way; what is not answered by then counts as cut off.
    pub grace: Duration,
}

/// What an answer has to be like. What is not is an error, and in no latency.
#[derive(Debug, Clone, Default)]
pub struct Checks {
    /// Ranges of right statuses, both ends included; empty: 100 to 399.
    pub statuses: Vec<(u16, u16)>,
    /// Length of the body.
    pub length: Option<Length>,
    /// SHA-256 of the body.
    pub sha256: Option<[u8; 32]>,
    /// A regular expression (over bytes) that the body has to match.
    pub matching: Option<regex::bytes::Regex>,
}

/// How long a body has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// So many bytes.
    Exactly(u64),
    /// As long as the first answer to the same request (ab's).
    Same,
}
