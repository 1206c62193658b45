//! Deaths of workers: what `GET /deaths` returns, and their number by cause.

use crate::counts::{Counts, Kind};
use crate::when;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::SystemTime;

/// Why a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeathCause {
    /// It exited by itself, before it was told to.
    Exit,
    /// A signal from outside ended it, or its own crash (SEGV, ABRT).
    Signal,
    /// The kernel killed it because memory ran out.
    OutOfMemory,
    /// It could not be forked, or ended unseen: its template had died.
    Unknown,
    /// A request held it for longer than `timeouts.worker`.
    Timeout,
    /// It took up no requests.
    Frozen,
    /// It was not ready within `timeouts.worker_boot`.
    BootTimeout,
    /// It was told to finish, and did not within `timeouts.shutdown`.
    DrainTimeout,
    /// It exceeded `limits.worker_memory`.
    Memory,
    /// It had served `limits.max_requests`.
    MaxRequests,
    /// It was older than `limits.max_age`.
    MaxAge,
    /// It was told to finish: the server stops, there are fewer workers, or newer ones replace it.
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

/// Deaths since the start of the server, by cause.
pub type DeathCounts = Counts<DeathCause>;

/// How a worker ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Death {
    /// When its end was noticed.
    #[serde(with = "when")]
    pub at: SystemTime,
    /// Its index.
    pub worker: u32,
    /// Its process id; 0 when it could not be forked.
    pub pid: u32,
    /// The template that it was forked from: 1 is the first.
    pub generation: u32,
    /// From fork to end, in seconds.
    pub age_s: f64,
    /// Requests that it had finished.
    pub requests: u64,
    /// Why.
    pub cause: DeathCause,
    /// Its exit code; `None` when a signal ended it, or when it is not known.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The most resident memory that it ever had, in bytes; 0 when it is not known.
    pub peak_rss_bytes: u64,
    /// Resident memory as last measured, in bytes; `None` when it ended before.
    pub rss_bytes: Option<u64>,
    /// Proportional set size as last measured, in bytes; `None` when it ended before.
    pub pss_bytes: Option<u64>,
    /// Processes of the control group that the kernel has killed for lack of memory, as counted before; `None` where it does not say.
    pub oom_kills_before: Option<u64>,
    /// The same when the worker's end was noticed.
    pub oom_kills_after: Option<u64>,
    /// What it was serving.
    pub in_flight: Vec<DeathRequest>,
    /// All of it in a sentence.
    pub text: String,
}

impl Death {
    /// Whether it was neither ordered nor a limit of the settings that replaces workers as they age.
    pub fn is_unexpected(&self) -> bool {
        !matches!(self.cause, DeathCause::Drain | DeathCause::MaxRequests | DeathCause::MaxAge)
    }

    /// When its end was noticed, for people: `2026-01-31 12:00:00` in UTC.
    pub fn when(&self) -> String {
        when::seconds(self.at).replace('T', " ").trim_end_matches('Z').to_owned()
    }
}

/// A request that a worker was serving when it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeathRequest {
    /// Request method.
    pub method: String,
    /// Path as sent, without the query; bytes that are not ASCII text are escaped.
    pub path: String,
    /// Time since it was queued for a worker, in milliseconds.
    pub age_ms: f64,
    /// Whether its client had an answer already: a time-out (504), or the beginning of the response.
    pub answered: bool,
    /// Where it was in the app when that was last asked, innermost call first; `None` when it never was.
    pub backtrace: Option<Vec<String>>,
}
