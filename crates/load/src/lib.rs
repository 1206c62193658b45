//! The load generator: pacing, stop conditions, transports and recording.
//!
//! Shares no HTTP code with `http`: a server must not be measured with its own parser.
#![forbid(unsafe_code)]

mod arrivals;
pub mod bands;
mod clock;
mod connect;
mod cookies;
mod endpoint;
mod exchange;
mod feed;
mod finish;
mod h1;
mod h2;
mod h3;
pub mod histogram;
pub mod inputs;
mod job;
mod lane;
mod merge;
mod order;
pub mod outcome;
mod prepare;
mod quic;
mod recorder;
mod run;
pub mod scenario;
mod schedule;
mod shared;
mod stream;
mod streams;
mod system;
mod thread;
mod timing;
mod tls;
mod udp;
mod user;
mod validate;

pub use histogram::Histogram;
pub use outcome::Outcome;
pub use scenario::Scenario;

use std::time::Duration;

/// The state of a run, for live display.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Time since the counted part began; `None` during the warm-up.
    pub elapsed: Option<Duration>,
    /// The completed part of the run, from 0 to 1.
    pub done: f64,
    /// Requests started so far.
    pub sent: u64,
    /// Successful responses so far.
    pub ok: u64,
    /// Failed requests so far.
    pub errors: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Successful responses per second since the last report; the times below cover the same period.
    pub rate: f64,
    /// Median latency in microseconds.
    pub p50_us: u64,
    /// 99th percentile of the latency in microseconds.
    pub p99_us: u64,
    /// Longest latency in microseconds.
    pub max_us: u64,
}

/// Whether a run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Continue.
    Continue,
    /// Stop now, as at the end of the run; results so far are kept.
    Stop,
}

/// Runs `scenario` and blocks until it is over, at most `timeouts.grace` after its end. A run that ends by count and
/// has no time limit waits for its last responses up to `timeouts.request`; requests of an open model that were due but
/// found no free connection by then count as `unsent`. `watch` is called about ten times a second on the calling
/// thread.
///
/// Precision: open models send within some 50 µs of the intended time as long as the load generator has CPU to spare
/// (`Outcome::busy`). Latency counts from the intended time, so delays in sending are included. Timeouts are checked
/// ten times within their length, at least every 100 ms.
///
/// Users of the closed model open their connections (keep-alive, HTTP/2, HTTP/3) before the counted part begins, unless there
/// is a warm-up. Connections opened later count in the latency of the request that needed them.
///
/// # Errors
/// If the scenario is invalid, a name cannot be resolved, or none of the first connections can be opened. The text says
/// what to do.
pub fn run(scenario: &Scenario, watch: &mut dyn FnMut(&Progress) -> Flow) -> Result<Outcome, String> {
    run::run(scenario, watch)
}

/// Reads a response in one piece and cut in two; for fuzzing.
///
/// # Panics
/// If the results differ.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8], cut: usize) {
    h1::reader::fuzz(bytes, cut);
}
