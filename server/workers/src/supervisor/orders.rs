//! The front's side of a pool: how it is configured, what it may be ordered to do, and what it reports.

use super::sizing::Sizing;
use crate::process::ReleaseId;
use crate::reconciler::{Caller, Capabilities, Row};
use crate::spawner::{AppFacts, BootConfig, ServiceOrder, without_fork};
use queue::{PoolIndex, Serial};
use settings::puma::Call;
use settings::{Machine, Service, Settings};
use stats::{ReloadStep, ReloadWish};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use wire::profile::Clock;
use wire::traces::Trace;

/// The configuration of a pool.
#[derive(Clone)]
pub struct Options {
    /// How to start templates of the release in force. The settings in it give the number of workers and front threads.
    pub boot: BootConfig,
    /// The settings in force. Limits and time-outs are read from here each time they are needed.
    pub settings: watch::Receiver<Arc<Settings>>,
    pub releases: Rc<dyn ReleaseReader>,
    /// Set when an existing Ruby process has started this one. That process is both template and worker, and
    /// holds the other end of this socket.
    pub attached: Option<Arc<UnixStream>>,
}

impl Options {
    /// Returns what the source of the workers can do.
    pub(super) fn source(&self) -> Capabilities {
        match (&self.attached, without_fork(&self.boot.settings)) {
            (Some(_), _) => Capabilities::ATTACHED,
            (None, Some(_)) => Capabilities::SPAWNED,
            (None, None) => Capabilities::TEMPLATE,
        }
    }

    /// Returns the largest number of workers possible without a restart. With `auto` that is the number for a
    /// machine whose CPU limits are lifted.
    pub(super) fn most_workers(&self) -> usize {
        const LIFTED: u32 = 64;
        let settings = &self.boot.settings;
        let most = settings.shape.map_or(settings.workers.max, |shape| shape.workers.max);
        let lifted = self.boot.settings.workers_auto.map(|_| Machine::read().cores.min(LIFTED));
        most.max(lifted.unwrap_or_default()) as usize
    }

    pub(super) fn front_threads(&self) -> usize {
        self.boot.settings.front_threads as usize
    }

    /// Returns the shortest time after which a request is stuck in a worker of any pool.
    pub(super) fn shortest_timeout(&self) -> Option<Duration> {
        let settings = self.settings.borrow();
        (0..=settings.pools.len()).filter_map(|pool| settings.timeouts_of(pool).1).min()
    }

    /// Returns the time after which a request is stuck in a worker of this pool.
    pub(super) fn worker_timeout(&self, pool: PoolIndex) -> Option<Duration> {
        self.settings.borrow().timeouts_of(pool.0.into()).1
    }

    pub(super) fn timeouts(&self) -> settings::Timeouts {
        self.settings.borrow().timeouts.clone()
    }
}

/// The releases, which the front keeps: the one in force, the one before, and the one of a reload.
pub trait ReleaseReader {
    /// Reads a new release. Of the others, only the one in force is kept.
    ///
    /// # Errors
    /// The release cannot be read.
    fn read(&self, release: ReleaseId, in_force: ReleaseId) -> Result<(), String>;

    /// Completes the release that was read last by the calls that its `puma.rb` has made.
    ///
    /// # Errors
    /// The calls are wrong, or a newer release has been read.
    fn evaluated(&self, release: ReleaseId, calls: &[Call]) -> Result<(), String>;

    /// Returns how to start a template of a release, apart from the files that it removes.
    ///
    /// # Errors
    /// The release is no longer kept, or has no app.
    fn boot_config(&self, release: ReleaseId) -> Result<BootConfig, String>;
}

/// An order to a running pool.
#[derive(Debug)]
pub enum Command {
    /// Change the code in force.
    Reload(ReloadWish, Option<Follower>),
    /// Add a worker (TTIN).
    More,
    /// Remove a worker (TTOU).
    Fewer,
    /// The server shuts down soon: keep the number of workers as it is.
    Leave,
    /// Let all workers finish their requests, then stop.
    Drain,
    /// Stop at once.
    Halt,
    /// Reply whether a reload is under way, or waits.
    IsReloading(oneshot::Sender<bool>),
    /// List the processes.
    Processes(oneshot::Sender<Processes>),
    /// The server listens at these addresses. An attached process is notified.
    Listening(Vec<String>),
    /// Replace the list of files that templates remove if the front is killed.
    Unlink(Vec<PathBuf>),
    /// Fork a process for a service of the app from the template of the code in force.
    ForkService(ServiceOrder),
    /// Begin a profile of all workers. The reply is an error if one is being taken, or if no worker can take one.
    BeginProfile(ProfileWish, oneshot::Sender<Result<(), String>>),
    /// End the profile. The parts of the workers come when all have sent theirs, or after [`PROFILE_GRACE`].
    EndProfile(oneshot::Sender<Vec<profile::Part>>),
    /// Ask a worker for the backtraces of its threads. The worker replies when its main thread gets the GVL,
    /// which may never happen.
    Trace(Serial, oneshot::Sender<Vec<Trace>>),
}

/// How a profile is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfileWish {
    /// Samples per second.
    pub hz: u16,
    pub clock: Clock,
}

/// The longest time for which the end of a profile waits for workers.
pub const PROFILE_GRACE: Duration = Duration::from_secs(2);

/// A notice from a running pool to the front.
#[derive(Debug)]
pub enum Notice {
    /// All workers are up: the front can open the port.
    Settled,
    /// No worker was ever ready and none will be, for this reason: the server gives up.
    Hopeless(&'static str),
    /// A line for the log.
    Log(String),
    /// The attached process asks the server to shut down.
    Stop,
    /// New code is loaded.
    Reloading,
    /// A reload has ended, with or without success, and this release serves.
    Reloaded(ReleaseId),
    /// The app of a release has been loaded, for a reload or because its template had died.
    Declared {
        release: ReleaseId,
        services: Vec<Service>,
        /// How its middleware handles files.
        files: Vec<String>,
    },
}

/// The processes of a pool, their sizing, and the history of reloads and reforks.
#[derive(Debug, Clone, Default)]
pub struct Processes {
    pub workers: Vec<Row>,
    /// Process ids of the templates. There is more than one during a reload, and for a while after it.
    pub templates: Vec<u32>,
    /// The facts that the newest template has reported.
    pub facts: Option<AppFacts>,
    /// The number of templates before the newest.
    pub phase: u32,
    pub sizing: Sizing,
    /// The shape that follows the objective, if there is one.
    pub shape: Option<stats::ShapeSnapshot>,
    pub reloads: stats::ReloadsSnapshot,
    pub reforks: stats::ReforksSnapshot,
    /// The number of full garbage collections between requests, and their total duration.
    pub collections: (u64, Duration),
}

/// Why the app could not be loaded.
#[derive(Debug)]
pub enum BootError {
    /// The exception that loading raised, with its backtrace.
    App(String),
    /// The template did not start.
    Template(io::Error),
    /// Loading took longer than `timeouts.worker_boot`. Contains the backtrace at that time, if the template
    /// could report it.
    Slow(Option<String>),
}

/// The caller of a reload, who gets each step. The last one is an end in any case: a reload that the pool never
/// gets, or does not finish, ends with the server.
#[derive(Debug)]
pub struct Follower(Option<mpsc::UnboundedSender<ReloadStep>>);

impl Follower {
    /// Creates a follower and the receiver of its steps.
    pub fn new() -> (Follower, mpsc::UnboundedReceiver<ReloadStep>) {
        let (steps, receiver) = mpsc::unbounded_channel();
        (Follower(Some(steps)), receiver)
    }

    /// Sends a step, unless the last one was an end.
    pub fn tell(&mut self, step: ReloadStep) {
        let steps = if step.is_end() { self.0.take() } else { self.0.clone() };
        // The receiver may be gone. The reload goes on.
        let _ = steps.map(|steps| steps.send(step));
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.tell(ReloadStep::end(Err("the server is stopping".to_owned())));
    }
}

/// The followers of running and waiting reloads.
#[derive(Debug, Default)]
pub(super) struct Followers {
    of: BTreeMap<Caller, Follower>,
    last: Caller,
}

impl Followers {
    pub(super) fn add(&mut self, follower: Option<Follower>) -> Option<Caller> {
        let follower = follower?;
        self.last += 1;
        self.of.insert(self.last, follower);
        Some(self.last)
    }

    pub(super) fn tell(&mut self, caller: Caller, step: ReloadStep) {
        let ended = step.is_end();
        if let Some(follower) = self.of.get_mut(&caller) {
            follower.tell(step);
        }
        if ended {
            self.of.remove(&caller);
        }
    }
}
