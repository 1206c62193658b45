//! Statistics of the deaths of workers: the response to `GET /deaths`, and the counts by cause.

use crate::counts::{Counts, Kind};
use crate::when;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::SystemTime;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeathCause {
    /// It exited by itself without being told to.
    Exit,
    /// A signal from outside ended it, or its own crash (SEGV, ABRT).
    Signal,
    /// The kernel killed it because memory ran out.
    OutOfMemory,
    /// It could not be forked, or its end was not reported because its template had died.
    Unknown,
    /// A request held it for longer than `timeouts.worker`.
    Timeout,
    /// It took up no requests.
    Frozen,
    /// It was not ready within `timeouts.worker_boot`.
    BootTimeout,
    /// It was told to finish and did not within `timeouts.shutdown`.
    DrainTimeout,
    /// It exceeded `limits.worker_memory`.
    Memory,
    /// It had served `limits.max_requests`.
    MaxRequests,
    /// It was older than `limits.max_age`.
    MaxAge,
    /// It was told to finish, because the server stops, there are fewer workers, or a newer one replaces it.
    Drain,
}

impl Kind for DeathCause {
    const EVERY: &'static [DeathCause] = &[
        DeathCause::Exit,
        DeathCause::Signal,
        DeathCause::OutOfMemory,
        DeathCause::Unknown,
        DeathCause::Timeout,
        DeathCause::Frozen,
        DeathCause::BootTimeout,
        DeathCause::DrainTimeout,
        DeathCause::Memory,
        DeathCause::MaxRequests,
        DeathCause::MaxAge,
        DeathCause::Drain,
    ];

    fn name(self) -> &'static str {
        match self {
            DeathCause::Exit => "exit",
            DeathCause::Signal => "signal",
            DeathCause::OutOfMemory => "out_of_memory",
            DeathCause::Unknown => "unknown",
            DeathCause::Timeout => "timeout",
            DeathCause::Frozen => "frozen",
            DeathCause::BootTimeout => "boot_timeout",
            DeathCause::DrainTimeout => "drain_timeout",
            DeathCause::Memory => "memory",
            DeathCause::MaxRequests => "max_requests",
            DeathCause::MaxAge => "max_age",
            DeathCause::Drain => "drain",
        }
    }
}

impl fmt::Display for DeathCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The number of deaths since the start of the server, by cause.
pub type DeathCounts = Counts<DeathCause>;

/// The record of a worker's end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Death {
    /// When its end was noticed.
    #[serde(with = "when")]
    pub at: SystemTime,
    /// The index of the worker.
    pub worker: u32,
    /// Its process id; 0 if it could not be forked.
    pub pid: u32,
    /// The template that forked it; 1 is the first.
    pub generation: u32,
    /// The time from fork to end, in seconds.
    pub age_s: f64,
    /// The requests that it had finished.
    pub requests: u64,
    pub cause: DeathCause,
    /// The exit code; `None` if a signal ended it, or if it is unknown.
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// The largest resident memory in bytes; 0 if it is unknown.
    pub peak_rss_bytes: u64,
    /// The resident memory as last measured, in bytes; `None` if it ended before the first measurement.
    pub rss_bytes: Option<u64>,
    /// The proportional set size as last measured, in bytes; `None` if it ended before the first measurement.
    pub pss_bytes: Option<u64>,
    /// The kernel's earlier count of processes in the control group that it has killed for lack of memory;
    /// `None` if the kernel does not report it.
    pub oom_kills_before: Option<u64>,
    /// The same count when the worker's end was noticed.
    pub oom_kills_after: Option<u64>,
    /// The requests that it was serving.
    pub in_flight: Vec<DeathRequest>,
    /// A sentence with all of this.
    pub text: String,
}

impl Death {
    /// Returns whether the death was neither ordered nor caused by a limit that replaces workers regularly.
    pub fn is_unexpected(&self) -> bool {
        !matches!(self.cause, DeathCause::Drain | DeathCause::MaxRequests | DeathCause::MaxAge)
    }

    /// Returns the time at which its end was noticed, such as `2026-01-31 12:00:00`, in UTC.
    pub fn when(&self) -> String {
        when::seconds(self.at).replace('T', " ").trim_end_matches('Z').to_owned()
    }
}

/// A request that a worker was serving when it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeathRequest {
    pub method: String,
    /// The path as sent, without the query. Bytes that are not ASCII text are escaped.
    pub path: String,
    /// The time since it was queued for a worker, in milliseconds.
    pub age_ms: f64,
    /// Whether its client already had a response: a time-out (504), or the beginning of the app's response.
    pub answered: bool,
    /// The last known backtrace, innermost call first; `None` if none was requested.
    pub backtrace: Option<Vec<String>>,
}
