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
pub mod held;
pub mod histogram;
pub mod inputs;
mod job;
pub mod journey;
mod lane;
mod merge;
mod order;
pub mod outcome;
mod part;
mod prepare;
mod progress;
mod quic;
pub mod recorded;
mod recorder;
mod response;
mod run;
pub mod scenario;
mod schedule;
mod shared;
mod spoken;
mod stream;
mod streams;
mod system;
mod think;
mod thread;
mod timing;
mod tls;
mod traveller;
mod udp;
mod user;
mod validate;

pub use histogram::Histogram;
pub use outcome::Outcome;
pub use progress::Progress;
pub use scenario::Scenario;

use std::time::Duration;

/// Whether a run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Continue,
    /// Stop now, as at the end of the run; results so far are kept.
    Stop,
}

/// Runs `scenario` and blocks until it is over, at most `timeouts.grace` after its end. A run that ends by
/// count and has no time limit waits for its last responses up to `timeouts.request`. Requests of an open
/// model that were due but found no free connection by then count as `unsent`. Calls `watch` about ten times
/// a second on the calling thread.
///
/// Precision: open models send within some 50 µs of the intended time as long as the load generator has CPU
/// to spare (`Outcome::busy`). Latency counts from the intended time, so it includes delays in sending.
/// Time-outs are checked ten times within their length, at least every 100 ms.
///
/// Users of the closed model open their connections (keep-alive, HTTP/2, HTTP/3) before the counted part
/// begins, unless there is a warm-up. A connection opened later counts in the latency of the request that
/// needed it.
///
/// # Errors
/// The scenario is invalid, a name cannot be resolved, or none of the first connections can be opened. The
/// text contains the remedy.
pub fn run(scenario: &Scenario, watch: &mut dyn FnMut(&Progress) -> Flow) -> Result<Outcome, String> {
    run::run(scenario, watch, &mut || Ok(Duration::ZERO))
}

/// Does the same as [`run`], but calls `gate` before the first request. `gate` waits for the other processes
/// that begin at the same moment, and returns the time until that moment. Users of the closed model have
/// their connections by then, unless there is a warm-up.
///
/// # Errors
/// The same as of [`run`], and the error of `gate`.
pub fn run_together(
    scenario: &Scenario,
    watch: &mut dyn FnMut(&Progress) -> Flow,
    gate: &mut dyn FnMut() -> Result<Duration, String>,
) -> Result<Outcome, String> {
    run::run(scenario, watch, gate)
}

/// Reads any bytes as a file of `firebrick record`; for fuzzing.
///
/// # Panics
/// The requests, times and responses do not fit each other.
#[doc(hidden)]
pub fn fuzz_recorded(bytes: &[u8]) {
    inputs::recorded::fuzz(bytes);
}

/// Reads a response in one piece and cut in two; for fuzzing.
///
/// # Panics
/// The results differ.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8], cut: usize) {
    response::reader::fuzz(bytes, cut);
}
