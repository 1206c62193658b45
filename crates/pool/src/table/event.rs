//! What goes into the [process table](super) and what comes out of it.

use crate::dispatch::Serial;
use crate::spawner::ExitStatus;
use std::time::{Duration, Instant};

/// Number of a template and the workers that it forked; a newer one has a higher number.
pub type Generation = u32;

/// What a template loads, the app's code with its settings, numbered as it was read: a reload reads another one.
pub type Code = u32;

/// How long the stages of a process may take.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For a template to load the app, and for a worker to get from fork to readiness (`timeouts.worker_boot`).
    pub boot: Duration,
    /// For a worker to finish its requests (`timeouts.shutdown`).
    pub shutdown: Duration,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Replace all workers by those of a new template. While one boots already, that is the new one.
    NewGeneration,
    /// Start a new template beside the others, with this code. One worker of it is tried, without requests, until [`Event::Roll`].
    TrialGeneration(Code),
    /// From now on this code is that of templates which take the place of others that have died.
    InForce(Code),
    /// The worker that is tried gets requests.
    OpenTrial(Generation),
    /// How many workers of a generation are replaced at a time from now on: so many exist beyond the wanted ones meanwhile.
    Step(usize),
    /// This generation takes over step by step, from whichever serves now. A trial ends.
    Roll(Generation),
    /// A reload in place begins: so many workers serve until the next generation has taken over, the others leave now. No template takes
    /// the place of one that dies until a generation is ordered.
    Vacate(usize),
    /// It does not take place after all: there are to be as many workers as wanted again.
    Reoccupy,
    /// The templates that are there end although their workers serve on.
    RetireTemplates,
    /// A trial has failed, or a spare is not needed any longer: end it.
    Abandon(Generation),
    /// The template of this generation stays when its workers have been replaced.
    Keep(Generation),
    /// The generation that was to be kept has been replaced: from now on it takes over only when told to.
    Spare(Generation),
    /// The template has loaded the app and can fork.
    TemplateBooted(Generation),
    /// The template could not be started, or could not load the app.
    TemplateFailed(Generation),
    /// The template has exited.
    TemplateGone(Generation),
    /// A fork succeeded.
    Forked {
        /// The template that forked.
        generation: Generation,
        /// Scoreboard slot.
        index: u32,
        /// Process id.
        pid: u32,
    },
    /// A fork failed.
    ForkFailed {
        /// The template that was to fork.
        generation: Generation,
        /// Scoreboard slot.
        index: u32,
    },
    /// A worker can take requests.
    Ready(Serial),
    /// A signal from outside told the worker to stop.
    Stopping(Serial),
    /// A link to a worker ended.
    LinkLost {
        /// Which worker.
        serial: Serial,
        /// Whether it had ever taken up a request.
        served: bool,
    },
    /// A worker's process has ended: the kernel says so. Its template, if it has one, still has to report how.
    Ended {
        /// Which worker.
        serial: Serial,
        /// Whether it had ever taken up a request.
        served: bool,
    },
    /// A worker makes no progress; it gets no requests for now.
    Suspended {
        /// Which worker.
        serial: Serial,
        /// Whether it had an idle thread, so that it is not merely busy.
        idle_thread: bool,
    },
    /// A suspended worker makes progress again.
    Resumed(Serial),
    /// A suspended worker will not make progress again.
    Frozen(Serial),
    /// A request has held a worker for longer than `worker_timeout`.
    Stuck(Serial),
    /// A worker is to be replaced: it serves on until its successor is ready.
    Recycle(Serial),
    /// As [`Event::Recycle`]; and it is to leave a template behind, whose generation is on trial.
    Promote(Serial),
    /// It is not to leave one, if it has not been told yet.
    Demote(Serial),
    /// A worker must be killed at once.
    Kill(Serial),
    /// A stuck worker serves nothing but requests that are stuck.
    OthersFinished(Serial),
    /// A process exited.
    Exited {
        /// The template that forked it.
        generation: Generation,
        /// Process id.
        pid: u32,
        /// How it exited.
        status: ExitStatus,
        /// Peak memory, KiB.
        peak_kib: u64,
        /// Whether it had ever taken up a request.
        served: bool,
    },
    /// One worker more.
    More,
    /// One worker fewer.
    Fewer,
    /// One worker fewer: this one.
    Retire(Serial),
    /// There should be so many workers.
    Want(usize),
    /// Let all workers finish.
    Drain,
    /// Kill all workers.
    Halt,
    /// Time passes.
    Tick,
}

impl Event {
    /// Whether it is about workers that come and go, which an attached one does not.
    pub(super) fn replaces_a_worker(&self) -> bool {
        matches!(
            self,
            Event::NewGeneration
                | Event::TrialGeneration(_)
                | Event::Frozen(_)
                | Event::Stuck(_)
                | Event::Recycle(_)
                | Event::Promote(_)
                | Event::Kill(_)
                | Event::More
                | Event::Fewer
                | Event::Retire(_)
                | Event::Want(_)
        )
    }
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Start a template.
    StartTemplate {
        /// The number of the generation that it begins.
        generation: Generation,
        /// What it loads.
        code: Code,
    },
    /// End a template. Nothing that it reports later counts.
    EndTemplate {
        /// Which one.
        generation: Generation,
        /// Why.
        why: TemplateEnd,
    },
    /// Order a fork from a template.
    Fork {
        /// The template.
        generation: Generation,
        /// Scoreboard slot.
        index: u32,
        /// The worker's serial number.
        serial: Serial,
    },
    /// Send a signal.
    Signal {
        /// To which worker.
        serial: Serial,
        /// The template whose child the process is; `None` when that template has exited.
        generation: Option<Generation>,
        /// Process id.
        pid: u32,
        /// Name of the signal without `SIG`.
        name: &'static str,
    },
    /// The worker takes requests.
    Open(Serial),
    /// The worker is tried: it takes requests, but only a share of them.
    OpenTrial(Serial),
    /// The worker, which is about to be told to finish, is to leave the template of this generation behind.
    Promote {
        /// Which worker.
        serial: Serial,
        /// The generation, which waits for its template.
        generation: Generation,
    },
    /// The worker gets no more requests and is told to finish.
    Close(Serial),
    /// The worker is gone.
    Gone(WorkerExit),
    /// All wanted workers are up for the first time.
    Settled,
    /// No worker was ever ready, and none will be.
    Hopeless(Hopeless),
    /// No worker is left, as ordered.
    Empty,
}

/// Why there will be no worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hopeless {
    /// They keep dying before they are ready.
    Workers,
    /// Templates keep dying before a worker of theirs is ready.
    Templates,
}

/// Why a template is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateEnd {
    /// A newer generation has taken over.
    Replaced,
    /// It did not load the app within [`Timeouts::boot`].
    BootTimeout,
    /// It did not carry out an order in time.
    Unresponsive,
    /// None of its workers got ready.
    Broken,
    /// Its trial was given up.
    Abandoned,
}

/// Where a generation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Census {
    /// Whether its template is there, and whether it has loaded the app.
    pub template: TemplateStage,
    /// Workers that are ready.
    pub ready: usize,
    /// Workers that are forked, boot or are ready: all that are not about to leave.
    pub staying: usize,
    /// Workers of any kind.
    pub all: usize,
}

/// How far a template is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateStage {
    /// It loads the app.
    Booting,
    /// It can fork.
    Up,
    /// It has exited.
    Gone,
}

/// A worker that has exited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerExit {
    /// Its serial number.
    pub serial: Serial,
    /// Its scoreboard slot.
    pub index: u32,
    /// The template that it was forked from.
    pub generation: Generation,
    /// Its process id; 0 when it was never forked.
    pub pid: u32,
    /// When it was forked, or its fork was ordered.
    pub forked: Instant,
    /// It was sent KILL.
    pub killed: bool,
    /// How it exited; `None` when no template was left to report it and nobody else knows.
    pub status: Option<ExitStatus>,
    /// Peak memory in KiB.
    pub peak_kib: u64,
    /// Why it exited.
    pub cause: Cause,
    /// Time until the next fork, if it has to wait.
    pub wait: Option<Duration>,
}

/// Why a worker exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It was told to.
    Ordered,
    /// It crashed.
    Crashed,
    /// A request was stuck in it.
    Stuck,
    /// It took up no requests, and was killed.
    Frozen,
    /// It did not get ready in time, and was killed.
    SlowBoot,
    /// It did not finish in time, and was killed.
    SlowDrain,
}

/// A worker's stage of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Forked, not ready yet.
    Booting,
    /// Takes requests.
    Up,
    /// Finishes its requests, or is about to be killed.
    Leaving,
}

/// A worker as statistics show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Scoreboard slot.
    pub index: u32,
    /// Serial number.
    pub serial: Serial,
    /// Template that forked it.
    pub generation: Generation,
    /// Process id.
    pub pid: u32,
    /// Whether it boots, takes requests, or leaves.
    pub stage: Stage,
    /// When it was forked.
    pub forked: Instant,
    /// How many workers died in this slot before.
    pub restarts: u32,
}
