//! The interface of the [reconciler](super): it has a [`Wish`], the processes that should exist, takes a
//! [`Change`], which the kernel, a process or a measurement reports, and returns [`Act`]s, the steps that
//! follow. [`Row`] is a worker as others see it.

use super::growth::Sample;
use super::recycle::{Figures, Limits};
use crate::deaths::WorkerExit;
use crate::process::{ExitStatus, Generation, ReleaseId, WorkerSignal};
use crate::trial;
use queue::{PoolIndex, Serial};
use settings::Step;
use stats::{DeathCause, ReforkOutcome, ReloadOutcome, ReloadStep, WorkerState};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The processes that should exist. Only reloads, signals, the load and limits change this value.
#[derive(Debug, Clone)]
pub struct Wish {
    /// The release in force, which replacement templates load.
    pub release: ReleaseId,
    /// The number of workers of each pool. All of them are forked from the same template.
    pub counts: BTreeMap<PoolIndex, usize>,
    /// When workers are replaced.
    pub limits: Limits,
    /// The number of requests after which a worker becomes the next template; `None`: never.
    pub refork_after: Option<u64>,
    pub timeouts: Timeouts,
    pub phase: Phase,
}

/// Time limits of processes.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For a template to load the app, and for a worker to become ready after its fork
    /// (`timeouts.worker_boot`).
    pub boot: Duration,
    /// For a worker to finish its requests (`timeouts.shutdown`).
    pub shutdown: Duration,
    /// For a request (`timeouts.worker`).
    pub worker: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Serving,
    /// The server shuts down soon: the number of workers stays as it is.
    Leaving,
    /// No worker is started any more.
    Stopping,
}

/// How a reload takes place.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Whether the worker on trial has to answer a request first.
    pub probe: bool,
    /// How long requests of clients are sent to it in copy before any client meets it; `None` skips this step.
    pub shadow: Option<Duration>,
    /// How long that worker serves a share of the requests before the others are replaced; `None` skips this
    /// step.
    pub watch: Option<Duration>,
    /// That share, in per cent.
    pub share: u32,
    /// The number of workers that are replaced at a time.
    pub step: Step,
    /// How long the old template stays after the reload.
    pub keep: Duration,
}

impl Default for Plan {
    /// Returns the shortest plan: no trial, one worker at a time, no undo.
    fn default() -> Plan {
        Plan {
            probe: false,
            shadow: None,
            watch: None,
            share: 0,
            step: Step::Workers(1),
            keep: Duration::ZERO,
        }
    }
}

/// The abilities of a [source](crate::spawner) of workers, for everything that has to know them before there
/// is one. A new source adds a constant here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether a worker can be ended and another worker started instead, also with other code.
    pub can_replace: bool,
    /// Whether a worker can leave a template behind.
    pub can_fork: bool,
    /// How many times longer than `timeouts.worker_boot` a worker may take until it is ready.
    pub boot_factor: u32,
    /// Whether a worker returns requests that it has not started. Only then some are sent in advance.
    pub returns_requests: bool,
    pub signals: Signals,
    /// Whether the process has started this server. Then the process receives the addresses of the server and
    /// may stop it, and the server adopts no orphans, which belong to that process.
    pub starts_server: bool,
}

/// How workers are signalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signals {
    /// Directly, if the system guarantees that no other process gets the signal, else by the template.
    Direct,
    /// Like `Direct`, but asked for backtraces only once they catch that signal: it would end a virtual
    /// machine that is still starting.
    DirectOnceCaught,
    /// By messages to the process, which signals itself.
    Messages,
}

impl Capabilities {
    /// A template that forks workers.
    pub const TEMPLATE: Capabilities = Capabilities {
        can_replace: true,
        can_fork: true,
        boot_factor: 1,
        returns_requests: true,
        signals: Signals::Direct,
        starts_server: false,
    };
    /// Workers that are started one by one. Each loads the app itself, on a Ruby that takes seconds to start.
    pub const SPAWNED: Capabilities = Capabilities {
        can_fork: false,
        boot_factor: 3,
        returns_requests: false,
        signals: Signals::DirectOnceCaught,
        ..Capabilities::TEMPLATE
    };
    /// A process that is both template and worker.
    pub const ATTACHED: Capabilities = Capabilities {
        can_replace: false,
        can_fork: false,
        signals: Signals::Messages,
        starts_server: true,
        ..Capabilities::TEMPLATE
    };
}

#[derive(Debug, Clone)]
pub enum Change {
    /// The template has loaded the app and can fork, or it is unusable, for this reason.
    Template {
        generation: Generation,
        usable: Result<(), String>,
    },
    /// The template has loaded the app, and does or has done this before it can fork.
    Warming {
        generation: Generation,
        text: String,
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
    /// The result of a probe, of a shadow, or of the comparison with the old workers.
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
    /// Send copies of requests to the worker `old` of the old code and to `new`, none of which gets requests of clients,
    /// and compare their responses.
    Shadow { old: Serial, new: Serial, release: ReleaseId },
    /// Compare this worker, which gets up to `share` per cent of the requests, with the others for this time.
    Watch { serial: Serial, share: u32, time: Duration },
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
