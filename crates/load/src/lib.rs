//! The load generator: Pacer x Stop x Transport x Recorder.
//!
//! Shares no HTTP code with `http`: the judge does not use the judged's parser.
#![forbid(unsafe_code)]

mod arrivals;
pub mod bands;
mod clock;
mod connect;
mod cookies;
mod exchange;
mod feed;
mod finish;
mod h1;
mod h2;
pub mod histogram;
pub mod inputs;
mod job;
mod lane;
mod merge;
mod order;
pub mod outcome;
pub mod plan;
mod prepare;
mod recorder;
mod run;
mod schedule;
mod shared;
mod stream;
mod target;
mod thread;
mod timer;
mod timing;
mod tls;
mod user;
mod validate;

pub use histogram::Histogram;
pub use outcome::Outcome;
pub use plan::Plan;

use std::time::Duration;

/// How a run stands, for those who watch it.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Since the counted part began; `None` during the warm-up.
    pub elapsed: Option<Duration>,
    /// How much of the run is over, from 0 to 1.
    pub done: f64,
    /// Requests begun so far.
    pub sent: u64,
    /// Right answers so far.
    pub ok: u64,
    /// Wrong or missing ones so far.
    pub errors: u64,
    /// Under way now.
    pub in_flight: u64,
    /// Since the last look: right answers per second, and percentiles of their latency in microseconds.
    pub rate: f64,
    /// Median.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// The longest.
    pub max_us: u64,
}

/// What a watcher says to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Go,
    /// End now as if the time were up; what was seen is kept.
    End,
}

/// Runs `plan` and blocks until it is over, at the latest `timeouts.grace` after its end. A run that ends by count and has no
/// end in time waits for its last answers as long as `timeouts.request` allows; in an open model what was due and found no
/// connection by then is `unsent`. `watch` is called about ten times a second on
/// the calling thread.
///
/// Precision: open models send within some 50 µs of the intended time as long as the load generator has CPU to spare
/// (`Outcome::busy`); latency counts from the intended time, so what it was late by is in it. Timeouts are looked at ten times
/// in their length, at least every 100 ms.
///
/// Users of the closed model have their connections (keep-alive, HTTP/2) before the counted part begins, unless there is a
/// warm-up; connections opened later count as latency of the request that needed them.
///
/// # Errors
/// When the plan makes no sense, a name cannot be resolved, or not one connection can be opened at the start; the
/// text says what to do.
pub fn run(plan: &Plan, watch: &mut dyn FnMut(&Progress) -> Verdict) -> Result<Outcome, String> {
    run::run(plan, watch)
}

/// Reads an answer in one piece and cut in two; for fuzzing.
///
/// # Panics
/// When the two differ.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8], cut: usize) {
    h1::reader::fuzz(bytes, cut);
}
