//! Defines the events and actions of the [process table](super).

use crate::dispatch::Serial;
use crate::spawner::ExitStatus;
use std::time::{Duration, Instant};

/// The number of a template and the workers that it forked. Newer generations have higher numbers.
pub type Generation = u32;

/// The number of a version of the app's code and settings. Each reload reads a new version.
pub type Code = u32;

/// Time limits for the stages of a process.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For a template to load the app, and for a worker to become ready after its fork
    /// (`timeouts.worker_boot`).
    pub boot: Duration,
    /// For a worker to finish its requests (`timeouts.shutdown`).
    pub shutdown: Duration,
}

/// An event that the table handles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Replace all workers by those of a new template. If a template is booting already, that one is used.
    NewGeneration,
    /// Start another template with this code. One worker of it is tried, without requests, until
    /// [`Event::Roll`].
    TrialGeneration(Code),
    /// Use this code for templates that replace dead ones from now on.
    InForce(Code),
    /// Let the worker on trial get requests.
    OpenTrial(Generation),
    /// Replace this many workers of a generation at a time: so many may exist beyond the wanted ones.
    Step(usize),
    /// Let this generation take over step by step from the one that serves now. Its trial ends.
    Roll(Generation),
    /// Begin a reload in place: this many workers keep serving until the next generation has taken over, and
    /// the others leave now. A template that dies is not replaced until a generation is ordered.
    Vacate(usize),
    /// Cancel the reload in place: the wanted number of workers is restored.
    Reoccupy,
    /// End the existing templates although their workers keep serving.
    RetireTemplates,
    /// End a generation whose trial has failed, or a spare that is no longer needed.
    Abandon(Generation),
    /// Keep the template of this generation after its workers have been replaced.
    Keep(Generation),
    /// The kept generation has been replaced: it takes over again only when ordered to.
    Spare(Generation),
    /// The template has loaded the app and can fork.
    TemplateBooted(Generation),
    /// The template could not be started or could not load the app.
    TemplateFailed(Generation),
    TemplateGone(Generation),
    Forked {
        /// The template that forked.
        generation: Generation,
        /// The scoreboard slot.
        index: u32,
        pid: u32,
    },
    ForkFailed {
        /// The template that should have forked.
        generation: Generation,
        /// The scoreboard slot.
        index: u32,
    },
    /// The worker can take requests.
    Ready(Serial),
    /// A signal from outside told the worker to stop.
    Stopping(Serial),
    /// A link to the worker ended.
    LinkLost {
        serial: Serial,
        /// Whether the worker had ever taken up a request.
        served: bool,
    },
    /// The kernel reports that a worker's process has ended. Its template, if there is one, still has to
    /// report the exit status.
    Ended {
        serial: Serial,
        /// Whether the worker had ever taken up a request.
        served: bool,
    },
    /// The worker makes no progress and gets no requests for now.
    Suspended {
        serial: Serial,
        /// Whether it had an idle thread, that is, was not just busy.
        idle_thread: bool,
    },
    /// The suspended worker makes progress again.
    Resumed(Serial),
    /// The suspended worker will not make progress again.
    Frozen(Serial),
    /// A request has held the worker for longer than `worker_timeout`.
    Stuck(Serial),
    /// Replace the worker. It keeps serving until its successor is ready.
    Recycle(Serial),
    /// Like [`Event::Recycle`], and the worker leaves a template behind, whose generation is on trial.
    Promote(Serial),
    /// Cancel [`Event::Promote`], unless the worker has been told already.
    Demote(Serial),
    /// Kill the worker at once.
    Kill(Serial),
    /// The stuck worker has no requests left except stuck ones.
    OthersFinished(Serial),
    Exited {
        /// The template that forked the process.
        generation: Generation,
        pid: u32,
        status: ExitStatus,
        /// Peak memory in KiB.
        peak_kib: u64,
        /// Whether the worker had ever taken up a request.
        served: bool,
    },
    /// Add a worker.
    More,
    /// Remove a worker.
    Fewer,
    /// Remove this worker and reduce the wanted number by one.
    Retire(Serial),
    /// Set the wanted number of workers.
    Want(usize),
    /// Let all workers finish their requests.
    Drain,
    Halt,
    /// Time has passed.
    Tick,
}

impl Event {
    /// Returns whether the event adds, replaces or removes workers, which does not apply to an attached
    /// process.
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

/// An action for the supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    StartTemplate {
        /// The generation that the template begins.
        generation: Generation,
        /// The code that it loads.
        code: Code,
    },
    /// End a template. Its later reports are ignored.
    EndTemplate { generation: Generation, why: TemplateEnd },
    /// Order a fork from a template.
    Fork {
        /// The template that forks.
        generation: Generation,
        /// The scoreboard slot.
        index: u32,
        /// The serial number of the worker.
        serial: Serial,
    },
    Signal {
        /// The worker that gets the signal.
        serial: Serial,
        /// The template whose child the process is; `None` if that template has exited.
        generation: Option<Generation>,
        pid: u32,
        /// The name of the signal without `SIG`.
        name: &'static str,
    },
    /// Send requests to the worker.
    Open(Serial),
    /// Send the worker on trial a share of the requests.
    OpenTrial(Serial),
    /// Order the worker, which is about to be closed, to leave the template of this generation behind.
    Promote {
        serial: Serial,
        /// The generation that waits for its template.
        generation: Generation,
    },
    /// Send the worker no more requests and tell it to finish.
    Close(Serial),
    /// The worker is gone.
    Gone(WorkerExit),
    /// The wanted number of workers is up for the first time.
    Settled,
    /// No worker was ever ready, and none will be.
    Hopeless(Hopeless),
    /// No worker is left, as ordered.
    Empty,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateEnd {
    Replaced,
    /// The template did not load the app within [`Timeouts::boot`].
    BootTimeout,
    /// The template did not carry out an order in time.
    Unresponsive,
    /// None of its workers became ready.
    Broken,
    /// The trial of its generation was given up.
    Abandoned,
}

/// The state of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Census {
    pub template: TemplateStage,
    /// Workers that are ready.
    pub ready: usize,
    /// Workers that are being forked, boot or are ready; that is, all that are not leaving.
    pub staying: usize,
    /// All workers, including those that are leaving.
    pub all: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateStage {
    /// The template is loading the app.
    Booting,
    /// The template can fork.
    Up,
    /// The template has exited.
    Gone,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerExit {
    pub serial: Serial,
    /// The scoreboard slot of the worker.
    pub index: u32,
    /// The template that forked it.
    pub generation: Generation,
    /// Its process id; 0 if it was never forked.
    pub pid: u32,
    /// When it was forked, or when its fork was ordered.
    pub forked: Instant,
    /// Whether it was sent KILL.
    pub killed: bool,
    /// Its exit status; `None` if no template was left to report it and it is not known from elsewhere.
    pub status: Option<ExitStatus>,
    /// Peak memory in KiB.
    pub peak_kib: u64,
    pub cause: Cause,
    /// The delay before the next fork, if any.
    pub wait: Option<Duration>,
}

/// Why a worker exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It was told to exit.
    Ordered,
    Crashed,
    /// A request was stuck in it.
    Stuck,
    /// It took up no requests and was killed.
    Frozen,
    /// It did not become ready in time and was killed.
    SlowBoot,
    /// It did not finish in time and was killed.
    SlowDrain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Forked but not ready.
    Booting,
    Up,
    /// Finishing its requests, or about to be killed.
    Leaving,
}

/// A worker as statistics show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The scoreboard slot.
    pub index: u32,
    pub serial: Serial,
    /// The template that forked it.
    pub generation: Generation,
    pub pid: u32,
    pub stage: Stage,
    pub forked: Instant,
    /// The number of workers that died in this slot before.
    pub restarts: u32,
}
