//! The interface of the [reconciler](super): it takes a [`Change`], which the kernel, a process or a measurement
//! reports, and returns [`Act`]s, the steps that follow. [`Row`] is a worker as others see it.

use super::growth::Sample;
use super::recycle::Figures;
use super::wish::Plan;
use crate::deaths::WorkerExit;
use crate::process::{ExitStatus, Generation, ReleaseId, WorkerSignal};
use crate::trial;
use queue::{PoolIndex, Serial};
use stats::{DeathCause, ReforkOutcome, ReloadOutcome, ReloadStep, WorkerState};
use std::time::{Duration, Instant};

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

/// The kinds of reloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadKind {
    /// Of new code, or back to the old.
    Reload,
    /// Of the same code, from a warm worker.
    Refork,
}

/// Identifies the caller of a reload. The supervisor assigns the numbers.
pub type Caller = u32;

/// A step from what exists towards what should exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    StartTemplate {
        /// The generation that the template begins.
        generation: Generation,
        /// The code that it loads.
        release: ReleaseId,
    },
    /// End a template. Its later reports are ignored.
    EndTemplate {
        generation: Generation,
        why: TemplateEnd,
    },
    /// Order a fork from a template.
    Fork {
        generation: Generation,
        /// The pool that the worker belongs to.
        pool: PoolIndex,
        /// The scoreboard slot.
        index: u32,
        serial: Serial,
    },
    Signal {
        /// The worker that gets the signal.
        serial: Serial,
        /// The template whose child the process is; `None` if that template has exited.
        generation: Option<Generation>,
        pid: u32,
        signal: WorkerSignal,
    },
    /// Send the worker requests: a share of them, in per cent, if it is on trial.
    Open {
        serial: Serial,
        share: Option<u32>,
    },
    /// Send the worker no more requests and tell it to finish. It leaves the template of a generation
    /// behind, if there is one here.
    Close {
        serial: Serial,
        leaves: Option<Generation>,
    },
    Gone(WorkerExit),
    /// Find something out; the result is a [`Change`](super::Change).
    Try(Trial),
    /// Write a line to the log.
    Log(String),
    /// Report a step to the caller of a reload.
    Tell {
        to: Caller,
        step: ReloadStep,
    },
    /// Record why a worker is replaced or killed, for the record of its death.
    Reason {
        of: Serial,
        cause: DeathCause,
        why: String,
    },
    Reached(Milestone),
}

/// A question about new code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    /// Read the settings of the app, which are those of this code.
    Read(ReleaseId),
    /// Measure the memory that a second template would need.
    Weigh,
    /// Let this worker, which gets no requests of clients, answer the probe requests of this code.
    Probe(Serial, ReleaseId),
    /// Compare this worker with the others from now on.
    Watch(Serial),
}

/// A change that concerns the server as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Milestone {
    /// The wanted number of workers is up for the first time.
    Settled,
    /// No worker was ever ready, and none will be.
    Hopeless(Hopeless),
    /// No worker is left, as ordered.
    Empty,
    /// A reload, also an undo, or a refork has begun.
    Began(ReloadKind),
    /// A reload has ended, and this code is in force. `changed`: it is not the one from before the reload.
    Reloaded {
        outcome: ReloadOutcome,
        release: ReleaseId,
        changed: bool,
        text: String,
        took: Duration,
    },
    /// A waiting reload ended because a newer one took its place.
    Superseded,
    Reforked {
        outcome: ReforkOutcome,
        text: String,
        took: Duration,
    },
    /// The wanted number of workers has changed.
    Resized {
        from: usize,
        to: usize,
        why: String,
    },
}

/// Why no worker will ever be ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hopeless {
    /// Workers keep dying before they are ready.
    Workers,
    /// Templates keep dying before one of their workers is ready.
    Templates,
}

/// Why a template is ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplateEnd {
    /// It is no longer needed and has no workers.
    Replaced,
    /// It is loading the app, and is no longer needed.
    Abandoned,
    Failed {
        /// The reason, which follows "the template".
        why: &'static str,
        /// Where the template was, as the end of the sentence.
        place: String,
    },
}

/// A worker as statistics show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The scoreboard slot.
    pub index: u32,
    pub serial: Serial,
    pub pool: PoolIndex,
    /// The template that forked it.
    pub generation: Generation,
    pub pid: u32,
    /// `Draining` also if the worker is about to be killed.
    pub state: WorkerState,
    pub forked: Instant,
    /// The number of workers that died in this slot before.
    pub restarts: u32,
}
