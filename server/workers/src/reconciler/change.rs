//! The changes that the kernel, the processes and measurements report.

use super::growth::Sample;
use super::recycle::Figures;
use super::wish::Plan;
use crate::process::{ExitStatus, Generation, ReleaseId};
use crate::trial;
use queue::Serial;

#[derive(Debug, Clone)]
pub enum Change {
    /// The template has loaded the app and can fork, or it is unusable, for this reason.
    Template {
        generation: Generation,
        usable: Result<(), String>,
    },
    /// The template has forked the worker in this scoreboard slot; `None` if it failed.
    Forked {
        generation: Generation,
        index: u32,
        pid: Option<u32>,
    },
    /// The worker can take requests.
    Ready(Serial),
    Health(Serial, Health),
    Ended {
        serial: Serial,
        /// Whether the worker had ever taken up a request.
        served: bool,
        end: End,
    },
    /// The settings of this code have been read, or the reason why not.
    Read(ReleaseId, Result<Plan, String>),
    /// The result of [`Trial::Weigh`](super::Trial::Weigh).
    Weighed(trial::Figures),
    /// The result of a probe, or of the comparison with the old workers.
    Tried(Result<String, String>),
    /// The figures of the workers that take requests, for limits and reforks.
    Workers(Vec<Figures>),
    /// The load since the last sample, for the number of workers, and the best worker to stop.
    Load(Box<Sample>, Option<Serial>),
    /// Time has passed.
    Tick,
}

/// A worker's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// A signal from another process told the worker to stop.
    Stopping,
    /// The worker makes no progress and gets no requests for now.
    Suspended {
        /// Whether it had an idle thread, that is, was not just busy.
        idle_thread: bool,
    },
    /// The suspended worker makes progress again.
    Resumed,
    /// The suspended worker will not make progress again.
    Frozen,
    /// A request has held the worker for longer than `timeouts.worker`.
    Stuck,
    /// The stuck worker has no requests left except stuck ones.
    OthersFinished,
}

/// The kind of a worker's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A link ended, which is only a hint.
    Link,
    /// The kernel reports that the process has ended. Its template, if there is one, still has to report the
    /// exit status.
    Process,
    /// The template reports the exit.
    Reported { status: ExitStatus, peak_kib: u64 },
}
