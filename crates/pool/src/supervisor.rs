//! Carries out the decisions of the [process table](crate::table) and of the workers'
//! [progress](crate::progress): starts templates, forks and signals workers, watches deadlines, and logs how
//! workers exit.
//!
//! Runs on the main thread, which serves no requests. The supervisor never waits for a process: the result of
//! anything that takes time arrives as an event.

use crate::collections::Collections;
use crate::deaths::{self, Facts, Served};
use crate::dispatch::{Dispatch, SeatKind, Serial};
use crate::link::{Descriptors, End};
use crate::memory::{Memory, RSS_EVERY};
use crate::oom::{OomKills, Verdict};
use crate::orphans::{self, Orphans};
use crate::os;
use crate::process::Process;
use crate::progress::{Decision, Observation, Progress};
use crate::recycle::{self, Recycler, Seen};
use crate::shared::{Report, Shared, ThreadMessage};
use crate::spawner::{
    BootConfig, ServiceOrder, Spawner, Template, TemplateMessage, TemplateReport, fibers, fibers_apart,
    without_fork,
};
use crate::system::{DUMP, catches_dump};
use crate::table::{
    Action, Cause, Code, Event, FIRST, FIRST_CODE, Generation, Hopeless, Row, Stage, Table, TemplateEnd,
    Timeouts, WorkerExit,
};
use rustix::process::Signal;
use settings::puma::Call;
use settings::{Machine, Service, Settings};
use stats::{DeathCause, Library};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{mpsc, oneshot, watch};
use wire::scoreboard::{Busy, Slot, slot_len};
use wire::traces::Trace;

/// The configuration of a pool.
#[derive(Debug, Clone)]
pub struct Options {
    /// How to start templates. The settings in it give the number of workers and front threads.
    pub boot: BootConfig,
    /// The settings in force. Limits and time-outs are read from here each time they are needed.
    pub settings: watch::Receiver<Arc<Settings>>,
    /// Called when a reload begins; returns how to start templates of the new code.
    pub refresh: Refresh,
    /// Set when an existing Ruby process has started this one. That process is both template and worker, and
    /// holds the other end of this socket.
    pub attached: Option<Arc<UnixStream>>,
}

impl Options {
    fn worker_threads(&self) -> usize {
        self.boot.settings.threads.max.into()
    }

    /// Returns whether threads serve with fibers.
    fn fibers(&self) -> bool {
        fibers(&self.boot.settings) > 0
    }

    /// Returns whether fibers serve only some paths (`fiber_paths`), beside threads. An attached process has
    /// threads only.
    fn fibers_apart(&self) -> bool {
        self.attached.is_none() && fibers_apart(&self.boot.settings)
    }

    /// Returns the threads of a worker, including the extra thread that runs the fibers of `fiber_paths`.
    fn scoreboard_threads(&self) -> usize {
        self.worker_threads() + usize::from(self.fibers_apart())
    }

    /// Returns the links of a worker: one per front thread and kind of seat.
    fn links(&self) -> usize {
        self.front_threads() * if self.fibers_apart() { 2 } else { 1 }
    }

    /// Returns whether workers are spawned, because this Ruby cannot fork.
    fn spawns(&self) -> bool {
        self.attached.is_none() && without_fork(&self.boot.settings).is_some()
    }

    fn workers(&self) -> settings::Workers {
        self.boot.settings.workers
    }

    /// Returns the largest number of workers possible without a restart. With `auto` that is the number for a
    /// machine whose CPU limits are lifted.
    fn most_workers(&self) -> usize {
        const LIFTED: u32 = 64;
        let most = self.workers().max;
        let lifted = self.boot.settings.workers_auto.map(|_| Machine::read().cores.min(LIFTED));
        most.max(lifted.unwrap_or_default()) as usize
    }

    fn front_threads(&self) -> usize {
        self.boot.settings.front_threads as usize
    }

    fn timeouts(&self) -> settings::Timeouts {
        self.settings.borrow().timeouts.clone()
    }
}

/// Reads the location of the app and its start configuration again.
#[derive(Clone)]
pub struct Refresh(Rc<Read>);

/// Reads a release, or completes one by the calls that its `puma.rb` has made.
type Read = dyn Fn(Option<(Code, &[Call])>) -> Result<BootConfig, String>;

impl Refresh {
    /// `read` returns a message if the release cannot be read. It is called first with `None`, and again
    /// with the release and the calls of `puma.rb` if the app has that file.
    pub fn new(read: impl Fn(Option<(Code, &[Call])>) -> Result<BootConfig, String> + 'static) -> Refresh {
        Refresh(Rc::new(read))
    }
}

impl std::fmt::Debug for Refresh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Refresh")
    }
}

/// An order to a running pool.
#[derive(Debug)]
pub enum Command {
    /// Load the app again and replace the workers. Each step is sent to the receiver of `Steps`.
    Reload(Option<Steps>),
    /// Like `Reload`, for machines whose memory cannot hold both versions: old workers and the old template
    /// exit first.
    ReloadInPlace(Option<Steps>),
    /// Return to the code in force before the last reload.
    UndoReload(Option<Steps>),
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
    /// List the processes.
    Processes(oneshot::Sender<Processes>),
    /// The server listens at these addresses. An attached process is notified.
    Listening(Vec<String>),
    /// Replace the list of files that templates remove if the front is killed.
    Unlink(Vec<PathBuf>),
    /// Fork a process for a service of the app from the template of the code in force.
    ForkService(ServiceOrder),
    /// Ask a worker for the backtraces of its threads. The worker replies when its main thread gets the GVL,
    /// which may never happen.
    Trace(Serial, oneshot::Sender<Vec<Trace>>),
}

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
    /// This release serves, and the one before does not.
    Reloaded(Code),
    /// The app of a release has been loaded, for a reload or because its template had died.
    Declared {
        release: Code,
        services: Vec<Service>,
        /// How its middleware handles files.
        files: Vec<String>,
    },
    /// A reload has ended, with or without success.
    ReloadEnded,
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
    pub reloads: stats::ReloadsSnapshot,
    pub reforks: stats::ReforksSnapshot,
    /// The number of full garbage collections between requests, and their total duration.
    pub collections: (u64, Duration),
}

/// Facts about the app that a template reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppFacts {
    /// The Ruby engine and version.
    pub ruby: String,
    pub rack: String,
    /// The time that loading took.
    pub took: Duration,
    /// The services declared with `Firebrick.service`.
    pub services: Vec<Service>,
    /// Sentences about settings that have no effect in this Ruby.
    pub notes: Vec<String>,
    /// How well the app's libraries work with fibers.
    pub libraries: Vec<Library>,
    /// How the app's middleware handles files, one line each.
    pub files: Vec<String>,
}

impl AppFacts {
    /// Returns the notes to log when the server starts. Warnings about libraries are included only if
    /// requests run on `fibers`.
    pub fn notes(&self, fibers: bool) -> impl Iterator<Item = String> {
        let warnings = self.libraries.iter().filter(move |_| fibers).filter_map(Library::warning);
        self.notes.iter().cloned().chain(warnings)
    }
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

/// A booted pool without workers yet.
pub struct Supervisor {
    options: Options,
    shared: Arc<Shared>,
    reports: mpsc::UnboundedReceiver<Report>,
    template_reports: (mpsc::UnboundedSender<TemplateReport>, mpsc::UnboundedReceiver<TemplateReport>),
    table: Table,
    templates: BTreeMap<Generation, RunningTemplate>,
    workers: BTreeMap<Serial, Worker>,
    reloads: Reloads,
    next_tick: Instant,
    empty: bool,
    /// The supervisor was told to shut down.
    stopping: bool,
    oom_kills: OomKills,
    next_reading: Instant,
    /// The worker whose PSS is being measured.
    measuring: Option<Serial>,
    recycler: Recycler,
    sizer: Sizer,
    reforks: Reforks,
    orphans: Orphans,
    collections: Collections,
    jobs: Jobs,
}

struct RunningTemplate {
    process: Template,
    /// `None` while it boots.
    facts: Option<AppFacts>,
    begun: Instant,
    /// Set once the template has been asked for its backtrace, because it has almost used up its time to load
    /// the app.
    asked: bool,
    /// The backtrace that the template has sent in reply.
    loading: Option<String>,
}

impl RunningTemplate {
    fn new(process: Template) -> RunningTemplate {
        RunningTemplate { process, facts: None, begun: Instant::now(), asked: false, loading: None }
    }

    /// Returns the backtrace of a template that was slow to load the app, as the end of a sentence.
    fn place(&self) -> String {
        self.loading
            .as_ref()
            .map_or_else(String::new, |lines| format!("; it was here:\n{}", lines.trim_end()))
    }
}

/// The state of a worker beyond its row in the table. Kept until all front threads have cleaned up after the
/// worker's death.
struct Worker {
    generation: Generation,
    /// `None` until the fork has been reported.
    process: Option<Process>,
    /// The number of requests that the worker serves at a time.
    seats: u32,
    /// The same for its fibers, when they serve beside threads.
    fiber_seats: u32,
    progress: Progress,
    /// Descriptions of the requests that were stuck.
    stuck: Vec<String>,
    /// Fibers that still run requests that were given up: their number by front thread, and the time of that
    /// report.
    kept: BTreeMap<u16, (usize, Instant)>,
    /// Callers that wait for the worker's backtraces.
    tracing: Vec<oneshot::Sender<Vec<Trace>>>,
    exit: Option<WorkerExit>,
    /// The number of front threads that have not cleaned up yet.
    uncleared: usize,
    /// The requests that the worker had taken up when it died.
    served: Vec<Served>,
    /// The number of requests that it had finished.
    requests: u64,
    /// The kernel's OOM-kill counter, interpreted for this death.
    oom: Verdict,
    memory: Memory,
    /// Why the worker was replaced or killed because of its limits, for the log.
    recycled: Option<(DeathCause, String)>,
    /// Requests that have asked for more time: (link, id) and the deadline, in microseconds of the monotonic
    /// clock.
    extended: BTreeMap<(u32, u32), u64>,
    /// The backtraces of the worker's threads when they were last asked for.
    traces: Vec<Trace>,
    /// The age at which the oldest request triggers the next request for backtraces.
    trace_at: Duration,
}

impl Worker {
    fn new(generation: Generation, front_threads: usize, now: Instant) -> Worker {
        Worker {
            generation,
            process: None,
            seats: 1,
            fiber_seats: 0,
            progress: Progress::new(now),
            stuck: Vec::new(),
            kept: BTreeMap::new(),
            tracing: Vec::new(),
            exit: None,
            uncleared: front_threads,
            served: Vec::new(),
            requests: 0,
            oom: Verdict::default(),
            memory: Memory::default(),
            recycled: None,
            extended: BTreeMap::new(),
            traces: Vec::new(),
            trace_at: SLOW,
        }
    }

    /// Returns the number of fibers that still run requests that were given up. Reports older than a few
    /// ticks are ignored.
    fn kept(&self, now: Instant) -> usize {
        let recent = |told: Instant| now.saturating_duration_since(told) < BUSY_TICK * 3;
        self.kept.values().filter(|(_, told)| recent(*told)).map(|(count, _)| count).sum()
    }

    fn seats_of(&self, kind: SeatKind) -> u32 {
        match kind {
            SeatKind::Thread => self.seats,
            SeatKind::Fiber => self.fiber_seats,
        }
    }
}

/// The interval at which the supervisor checks whether workers with fibers are computing.
const HELD_TICK: Duration = Duration::from_millis(25);
/// A thread whose fiber has been computing for longer than this delays new requests.
const HELD: Duration = Duration::from_millis(50);
/// The interval between two checks of deadlines while requests or processes are in progress.
const BUSY_TICK: Duration = Duration::from_millis(200);
/// The interval between two checks of deadlines while the server is idle.
const IDLE_TICK: Duration = Duration::from_secs(1);
/// The factor by which `timeouts.worker_boot` is longer for spawned workers.
const SPAWNED_BOOT: u32 = 3;
/// The message when start-up is given up because templates keep dying.
const TEMPLATES_DIE: &str = "the template keeps dying before a worker is ready; check the app's fork hooks (`before_worker_fork`, \
     `after_worker_fork`), its native extensions and their threads, and the template's output above";
/// The reply to orders about workers and code when the pool is attached.
const NO_SUPERVISION: &str = "the Ruby process that has started this server is its only worker, and loads its code itself: restart that process";
/// The age of a request at which the worker is asked for backtraces, again at twice that age, and so on. If
/// the worker dies, the last backtrace is in the log.
const SLOW: Duration = Duration::from_secs(1);

impl Supervisor {
    /// Starts the first template and waits until it has loaded the app, for no longer than `timeouts.worker_boot`.
    ///
    /// # Errors
    /// See [`BootError`].
    pub async fn boot(options: Options) -> Result<Supervisor, BootError> {
        let limit = options.timeouts().worker_boot;
        if options.attached.is_none() {
            orphans::adopt();
        }
        let mut supervisor = Supervisor::new(options).map_err(BootError::Template)?;
        supervisor.start_template(FIRST, FIRST_CODE).map_err(BootError::Template)?;
        let until = tokio::time::Instant::now() + limit;
        supervisor.first_boot(until - asks_before(limit), until).await?;
        Ok(supervisor)
    }

    fn new(options: Options) -> io::Result<Supervisor> {
        let now = Instant::now();
        let workers = options.workers();
        let attached = options.attached.is_some();
        let slots = if attached { 1 } else { slots(options.most_workers()) };
        let limits = options.timeouts();
        let spawns = options.spawns();
        // A spawned worker loads the app itself, on a Ruby that takes seconds to start.
        let boot = limits.worker_boot * if spawns { SPAWNED_BOOT } else { 1 };
        let timeouts = Timeouts { boot, shutdown: limits.shutdown };
        let slot_len = slot_len(options.scoreboard_threads(), options.links());
        let scoreboard = os::scoreboard_memory(slots, slot_len)?;
        let (to_supervisor, reports) = mpsc::unbounded_channel();
        let (max_queue, apart) = (options.settings.borrow().limits.max_queue, options.fibers_apart());
        let mut dispatch = Dispatch::new(max_queue);
        if (options.fibers() && !apart) || spawns {
            dispatch = dispatch.without_prefetching();
        }
        let of_fibers = apart.then(|| Dispatch::of_fibers(max_queue));
        let (threads, worker_threads) = (options.front_threads(), options.worker_threads());
        let shared = Shared::new(dispatch, of_fibers, threads, to_supervisor, scoreboard, worker_threads);
        let shared = Arc::new(shared);
        Ok(Supervisor {
            table: if attached {
                Table::attached(timeouts, now)
            } else {
                Table::new(workers.min as usize, slots, timeouts, now)
            },
            reloads: Reloads::new(options.boot.clone(), now),
            options,
            shared,
            reports,
            template_reports: mpsc::unbounded_channel(),
            templates: BTreeMap::new(),
            workers: BTreeMap::new(),
            next_tick: now,
            empty: false,
            stopping: false,
            oom_kills: OomKills::new(Machine::oom_kills(), now),
            next_reading: now,
            measuring: None,
            recycler: Recycler::new(fastrand::Rng::new()),
            sizer: Sizer::new(workers, now),
            reforks: Reforks::new(now),
            orphans: Orphans::new(now),
            collections: Collections::default(),
            jobs: Jobs::default(),
        })
    }

    /// Waits for the template's first message about the app. Asks the template for its backtrace at `ask`,
    /// and gives up at `until`.
    async fn first_message(
        &mut self,
        ask: tokio::time::Instant,
        until: tokio::time::Instant,
    ) -> Result<Option<io::Result<Option<TemplateMessage>>>, BootError> {
        let (mut asked, mut loading) = (false, None);
        loop {
            let reports = &mut self.template_reports.1;
            match tokio::time::timeout_at(if asked { until } else { ask }, reports.recv()).await {
                Ok(Some((_, Ok(Some(TemplateMessage::Loading(text)))))) => loading = Some(text),
                Ok(report) => return Ok(report.map(|(_, message)| message)),
                Err(_) if asked => return Err(BootError::Slow(loading)),
                Err(_) => {
                    asked = true;
                    self.templates.values().for_each(|template| template.process.ask_where());
                }
            }
        }
    }

    async fn first_boot(
        &mut self,
        ask: tokio::time::Instant,
        until: tokio::time::Instant,
    ) -> Result<(), BootError> {
        let error = match self.first_message(ask, until).await? {
            Some(Ok(Some(TemplateMessage::Booted {
                ruby,
                rack,
                ms,
                services,
                notes,
                libraries,
                jobs,
                files,
            }))) => {
                self.jobs_started(FIRST, &jobs);
                let took = Duration::from_millis(ms);
                self.set_facts(FIRST, AppFacts { ruby, rack, took, services, notes, libraries, files });
                return Ok(());
            }
            Some(Ok(Some(TemplateMessage::Failed(text)))) => BootError::App(text),
            Some(Ok(Some(other))) => {
                BootError::Template(io::Error::other(format!("the template's first message was {other:?}")))
            }
            Some(Ok(None)) | None => {
                let code = match self.templates.get_mut(&FIRST) {
                    Some(template) => template.process.exited().await,
                    None => None,
                };
                let how = code.map_or("by a signal".to_owned(), |code| format!("with exit code {code}"));
                BootError::Template(io::Error::other(format!(
                    "the template ended {how} while it loaded the app"
                )))
            }
            Some(Err(e)) => BootError::Template(e),
        };
        if matches!(error, BootError::App(_))
            && let Some(template) = self.templates.get_mut(&FIRST)
        {
            template.process.exited().await;
        }
        Err(error)
    }

    /// Returns the state that the front threads share.
    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Returns the facts about the app from the newest template that has loaded it.
    pub fn facts(&self) -> Option<&AppFacts> {
        self.templates.values().rev().find_map(|template| template.facts.as_ref())
    }

    fn processes(&self) -> Processes {
        Processes {
            workers: self.table.rows().collect(),
            templates: self
                .templates
                .values()
                .map(|template| template.process.pid())
                .filter(|pid| *pid > 0)
                .collect(),
            facts: self.facts().cloned(),
            phase: self.templates.keys().next_back().map_or(0, |generation| generation - FIRST),
            sizing: self.sizing(),
            reloads: self.reloads_snapshot(),
            reforks: self.reforks_snapshot(),
            collections: self.collections.totals(),
        }
    }

    /// Forks the workers and supervises them until the last one has exited after [`Command::Drain`] or
    /// [`Command::Halt`]; then ends the templates.
    pub async fn run(mut self, mut commands: mpsc::Receiver<Command>, mut notify: impl FnMut(Notice)) {
        self.event(Event::TemplateBooted(FIRST), &mut notify);
        while !self.empty {
            // The tick has its own deadline, so that other events cannot postpone it.
            let looks = self.options.fibers() && !self.is_calm();
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(self.next_tick.into()) => self.tick(&mut notify),
                () = tokio::time::sleep(HELD_TICK), if looks => self.look_for_held(),
                Some((generation, message)) = self.template_reports.1.recv() => self.template_reported(generation, message, &mut notify),
                Some(report) = self.reports.recv() => self.reported(report, &mut notify),
                Some(command) = commands.recv() => self.commanded(command, &mut notify),
            }
            self.observe_refork(&mut notify);
            self.observe_reload(&mut notify);
            self.observe_jobs(&mut notify);
            self.observe_size();
            let tick =
                next_tick(self.next_tick, Instant::now(), self.is_calm(), self.options.timeouts().worker);
            self.next_tick = tick;
        }
        self.abandon().await;
    }

    /// Ends a pool that has no workers or has never run.
    pub async fn abandon(mut self) {
        while let Some((_, template)) = self.templates.pop_last() {
            template.process.exit().await;
        }
        self.end_all_jobs().await;
    }

    fn is_calm(&self) -> bool {
        let is_calm = |dispatch: &mut Dispatch| dispatch.waiting() == 0 && dispatch.is_idle();
        self.table.is_calm() && self.shared.each(is_calm).all(|calm| calm)
    }

    fn event(&mut self, event: Event, notify: &mut impl FnMut(Notice)) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in self.table.on(event, Instant::now()) {
                // An action that fails produces another event.
                events.extend(self.act(action, notify));
            }
        }
    }

    fn act(&mut self, action: Action, notify: &mut impl FnMut(Notice)) -> Option<Event> {
        match action {
            Action::StartTemplate { generation, code } => {
                self.reloads.started(generation, code);
                if let Err(e) = self.start_template(generation, code) {
                    notify(Notice::Log(format!("the template cannot be started: {e}")));
                    self.new_template_failed(generation, &format!("the template cannot be started: {e}"));
                    return Some(Event::TemplateFailed(generation));
                }
            }
            Action::EndTemplate { generation, why } => self.end_template(generation, why, notify),
            Action::Fork { generation, index, serial } => {
                if let Err(e) = self.fork(generation, index, serial) {
                    notify(Notice::Log(format!("worker {index} cannot be forked: {e}")));
                    return Some(Event::ForkFailed { generation, index });
                }
            }
            Action::Signal { serial, generation, pid, name } => self.signal(serial, generation, pid, name),
            Action::Open(serial) => self.open(serial),
            Action::OpenTrial(serial) => self.open_on_trial(serial),
            Action::Promote { serial, generation } => {
                if let Err(e) = self.promote(serial, generation) {
                    self.reforks.template_failed(generation, &format!("no socket for its template: {e}"));
                    return Some(Event::TemplateFailed(generation));
                }
            }
            Action::Close(serial) => {
                self.shared.each(|dispatch| dispatch.worker_closed(serial)).for_each(drop);
                self.shared.mailbox(0).post(ThreadMessage::Drain(serial));
                let generation = self.workers.get(&serial).map(|worker| worker.generation);
                if let Some(template) = generation.and_then(|generation| self.templates.get(&generation)) {
                    template.process.dismiss(serial);
                }
            }
            Action::Gone(exit) => self.gone(exit),
            Action::Settled => notify(Notice::Settled),
            Action::Hopeless(why) => {
                self.shared.to_all(|| ThreadMessage::Hopeless);
                notify(Notice::Hopeless(match why {
                    Hopeless::Workers => "the workers exit before they are ready; see above for the reason",
                    Hopeless::Templates => TEMPLATES_DIE,
                }));
            }
            Action::Empty => self.empty = true,
        }
        None
    }

    // Templates.

    fn start_template(&mut self, generation: Generation, code: Code) -> io::Result<()> {
        let boot = self.boot_config(code);
        let (links, sizes) = self.template_sizes();
        let (scoreboard, to) = (self.shared.scoreboard().as_fd(), self.template_reports.0.clone());
        let process = match &self.options.attached {
            Some(socket) => {
                Template::attach(generation, &boot, links, scoreboard, sizes, socket.try_clone()?, to)?
            }
            None => match without_fork(&boot.settings) {
                Some(ruby) => {
                    let pool = self.shared.clone();
                    let spawner = Spawner::start(generation, boot, ruby, (links, sizes), pool, to.clone())?;
                    Template::spawning(generation, spawner, to)?
                }
                None => Template::start(generation, &boot, links, scoreboard, sizes, to)?,
            },
        };
        self.templates.insert(generation, RunningTemplate::new(process));
        Ok(())
    }

    /// Tells a template that has evaluated `puma.rb` to load the app.
    fn boot_template(&mut self, generation: Generation) -> io::Result<()> {
        let Some(template) = self.templates.get(&generation) else { return Ok(()) };
        let boot = self.boot_config(self.table.code_of(generation).unwrap_or(self.table.in_force()));
        let (links, sizes) = self.template_sizes();
        template.process.boot(&boot, links, self.shared.scoreboard().as_fd(), sizes)
    }

    fn boot_config(&self, code: Code) -> BootConfig {
        let unlink = self.options.boot.unlink.clone();
        BootConfig { unlink, ..self.reloads.boot_of(code).unwrap_or(&self.options.boot).clone() }
    }

    /// Returns the number of links of a worker, and the number of slots with their size in bytes.
    fn template_sizes(&self) -> (usize, (usize, usize)) {
        let options = &self.options;
        let slot_len = slot_len(options.scoreboard_threads(), options.links());
        (options.links(), (self.table.slots(), slot_len))
    }

    fn set_facts(&mut self, generation: Generation, facts: AppFacts) {
        if let Some(template) = self.templates.get_mut(&generation) {
            template.facts = Some(facts);
        }
    }

    /// Records how the app's middleware handles files, as reported by a worker that loads the app itself. All
    /// workers of a generation report the same.
    fn told_of_files(&mut self, generation: Generation, files: Vec<String>, notify: &mut impl FnMut(Notice)) {
        let facts = self.templates.get_mut(&generation).and_then(|template| template.facts.as_mut());
        let Some(facts) = facts.filter(|facts| facts.files != files) else { return };
        facts.files.clone_from(&files);
        let services = facts.services.clone();
        if let Some(release) = self.table.code_of(generation) {
            notify(Notice::Declared { release, services, files });
        }
    }

    fn end_template(&mut self, generation: Generation, why: TemplateEnd, notify: &mut impl FnMut(Notice)) {
        let Some(template) = self.templates.remove(&generation) else { return };
        let place = template.place();
        let why = match why {
            TemplateEnd::Replaced => {
                // The template has no workers; only its exit remains to be awaited.
                tokio::spawn(template.process.exit());
                return;
            }
            // The template is loading the app and does not read messages.
            TemplateEnd::Abandoned => return,
            TemplateEnd::BootTimeout => "did not load the app within timeouts.worker_boot",
            TemplateEnd::Unresponsive => "does not respond",
            TemplateEnd::Broken => "forks only workers that die before they are ready",
        };
        self.reforks.template_failed(generation, &format!("its template {why}"));
        if template.process.pid() == 0 {
            // No worker has left this template behind yet.
            return;
        }
        let pid = template.process.pid();
        notify(Notice::Log(format!("the template (pid {pid}) {why} and is killed{place}")));
        self.new_template_failed(generation, &format!("its template {why}{place}"));
    }

    fn template_reported(
        &mut self,
        generation: Generation,
        message: io::Result<Option<TemplateMessage>>,
        notify: &mut impl FnMut(Notice),
    ) {
        // The template may have been ended while its message was in the channel.
        let Some(template) = self.templates.get(&generation) else { return };
        let (booting, unborn) = (template.facts.is_none(), template.process.pid() == 0);
        let is_refork = self.reforks.generation() == Some(generation);
        let event = match message {
            Ok(Some(TemplateMessage::Forked { index, pid })) => {
                self.look_after(index, pid);
                Event::Forked { generation, index, pid }
            }
            Ok(Some(TemplateMessage::ForkFailed { index, text })) => {
                notify(Notice::Log(format!("worker {index} cannot be forked: {text}")));
                Event::ForkFailed { generation, index }
            }
            Ok(Some(TemplateMessage::Exited { pid, status, peak_kib })) => {
                let row = self.table.rows().find(|row| row.generation == generation && row.pid == pid);
                let served = row.is_some_and(|row| self.has_served(row.index));
                Event::Exited { generation, pid, status, peak_kib, served }
            }
            Ok(Some(TemplateMessage::Stop)) if self.is_attached() => {
                let timeouts = self.options.timeouts();
                // For the clients first, and then for the app.
                let within = timeouts.lame_duck.unwrap_or_default() + timeouts.shutdown * 2;
                // If the process has exited, its closed socket reports that.
                let _ = template.process.stopping(within);
                return notify(Notice::Stop);
            }
            Ok(Some(TemplateMessage::Stop)) => return,
            Ok(None) | Err(_) if self.is_attached() => {
                if let Err(e) = message {
                    notify(Notice::Log(e.to_string()));
                }
                self.templates.remove(&generation);
                Event::TemplateGone(generation)
            }
            Ok(Some(TemplateMessage::Said(text))) => return notify(Notice::Log(text)),
            Ok(Some(TemplateMessage::Loading(text))) => {
                if let Some(template) = self.templates.get_mut(&generation) {
                    template.loading = Some(text);
                }
                return;
            }
            Ok(Some(TemplateMessage::Pid(pid))) => {
                if let Some(template) = self.templates.get_mut(&generation) {
                    template.process.is_process(pid);
                }
                return;
            }
            Ok(Some(TemplateMessage::Files(files))) => return self.told_of_files(generation, files, notify),
            Ok(Some(TemplateMessage::Jobs(pids))) => return self.jobs_started(generation, &pids),
            Ok(Some(TemplateMessage::Booted { ruby, rack, ms, services, notes, libraries, jobs, files })) => {
                self.jobs_started(generation, &jobs);
                let took = Duration::from_millis(ms);
                let services_of_it = services.clone();
                let facts = AppFacts {
                    ruby,
                    rack,
                    took,
                    services: services_of_it,
                    notes,
                    libraries,
                    files: files.clone(),
                };
                if !is_refork {
                    facts.notes(self.options.fibers()).for_each(|note| notify(Notice::Log(note)));
                }
                self.set_facts(generation, facts);
                if let Some(template) = self.templates.get(&generation) {
                    let _ = template.process.unlink(&self.options.boot.unlink);
                }
                if self.reloads.generation() != Some(generation) && !is_refork {
                    notify(Notice::Log("a new template has loaded the app".to_owned()));
                }
                if let Some(release) = self.table.code_of(generation).filter(|_| !is_refork) {
                    notify(Notice::Declared { release, services, files });
                }
                Event::TemplateBooted(generation)
            }
            Ok(Some(TemplateMessage::Configured(evaluated))) => {
                let Err(why) = self.configured(generation, evaluated) else { return };
                self.templates.remove(&generation);
                if self.reloads.generation() == Some(generation) {
                    self.new_template_failed(generation, &why);
                } else {
                    notify(Notice::Log(why));
                }
                Event::TemplateFailed(generation)
            }
            Ok(Some(TemplateMessage::Failed(text))) => {
                self.templates.remove(&generation);
                if self.reloads.generation() == Some(generation) {
                    let reason = format!("the app cannot be loaded:\n{}", text.trim_end());
                    self.new_template_failed(generation, &reason);
                } else if is_refork {
                    let reason = format!("the worker cannot become a template:\n{}", text.trim_end());
                    self.reforks.template_failed(generation, &reason);
                } else {
                    notify(Notice::Log(format!("the app cannot be loaded again: {text}")));
                }
                Event::TemplateFailed(generation)
            }
            Ok(None) | Err(_) => {
                if let Err(e) = message {
                    notify(Notice::Log(e.to_string()));
                }
                self.templates.remove(&generation);
                self.new_template_failed(generation, "the template died while it loaded the app");
                let why = if unborn {
                    "the worker ended without leaving a template behind"
                } else {
                    "its template died"
                };
                self.reforks.template_failed(generation, why);
                if booting && is_refork {
                    return self.event(Event::TemplateGone(generation), notify);
                }
                notify(Notice::Log(if booting {
                    "the new template died while it loaded the app".to_owned()
                } else {
                    "the template has died; its workers keep serving until workers of a new template replace them"
                        .to_owned()
                }));
                Event::TemplateGone(generation)
            }
        };
        self.event(event, notify);
    }

    // Workers.

    fn fork(&mut self, generation: Generation, index: u32, serial: Serial) -> io::Result<()> {
        self.workers.insert(serial, Worker::new(generation, self.options.front_threads(), Instant::now()));
        if let Some(spawned) =
            self.templates.get(&generation).and_then(|template| template.process.spawn(index, serial))
        {
            return spawned;
        }
        let mut theirs = Vec::with_capacity(self.shared.links());
        for &kind in self.shared.kinds() {
            for thread in 0..self.options.front_threads() {
                let (ours, end) = os::pair()?;
                end.set_nonblocking(false)?;
                theirs.push(end);
                self.shared.mailbox(thread as u16).post(ThreadMessage::Link {
                    end: End { serial, kind },
                    index: index as u16,
                    socket: ours,
                    descriptors: Descriptors::WithFrames,
                    scores: None,
                });
            }
        }
        let template =
            self.templates.get(&generation).ok_or_else(|| io::Error::other("there is no template"))?;
        template.process.fork(index, &theirs)
    }

    /// Watches the process that was forked for this slot, so that its end is noticed even if its links and
    /// its template are gone.
    fn look_after(&mut self, index: u32, pid: u32) {
        let Some(serial) = self.table.serial_in(index) else { return };
        let Some(worker) = self.workers.get_mut(&serial) else { return };
        let (process, shared) = (Process::open(pid), self.shared.clone());
        worker.process = Some(process.clone());
        tokio::spawn(async move {
            process.ended().await;
            shared.report(Report::Ended(serial));
        });
    }

    /// Sends a signal directly if the system guarantees that no other process can receive it. Otherwise the
    /// template sends it, because the template knows whether the process is still its child. An attached
    /// process gets messages instead of signals.
    fn signal(&self, serial: Serial, generation: Option<Generation>, pid: u32, name: &'static str) {
        if name == "PWR" && self.options.spawns() && !catches_dump(pid) {
            // The signal would end a virtual machine that is still starting.
            return;
        }
        let process = self.workers.get(&serial).and_then(|worker| worker.process.as_ref());
        let direct = |process: &&Process| !self.is_attached() && (process.is_exact() || generation.is_none());
        if let Some(process) = process.filter(direct) {
            return process.signal(match name {
                "KILL" => Signal::KILL,
                "URG" => Signal::URG,
                _ => DUMP.1,
            });
        }
        let name = if name == "PWR" { DUMP.0 } else { name };
        if let Some(template) = generation.and_then(|generation| self.templates.get(&generation)) {
            // An unreachable template is replaced, and its workers become orphans.
            let _ = template.process.kill(pid, name);
        }
    }

    fn open(&mut self, serial: Serial) {
        let (now, mut assigned) = (Instant::now(), Vec::new());
        let Some(worker) = self.workers.get_mut(&serial) else { return };
        worker.progress = Progress::new(now);
        for &kind in self.shared.kinds() {
            self.shared.dispatch(kind).worker_up(serial, worker.seats_of(kind), now, &mut assigned);
        }
        self.shared.deliver(&assigned);
    }

    fn gone(&mut self, mut exit: WorkerExit) {
        let process = self.workers.get(&exit.serial).and_then(|worker| worker.process.as_ref());
        // A worker whose template has died is a child of this process, on systems that support that.
        exit.status = exit.status.or_else(|| process.and_then(Process::reap));
        self.new_worker_died(&exit);
        self.refork_worker_gone(&exit);
        let slot = self.shared.slot(exit.index as usize);
        self.shared.add_blocked(&slot);
        let taken: Arc<[u64]> = slot.taken.into();
        let kernel = deaths::may_be_the_kernels(&exit);
        let oom = self.oom_kills.death(Machine::oom_kills(), kernel, Instant::now());
        let (serial, stuck) = (exit.serial, exit.cause == Cause::Stuck);
        self.shared.each(|dispatch| dispatch.worker_gone(serial)).for_each(drop);
        self.recycler.gone(serial);
        self.collections.gone(serial);
        self.shared.to_all(|| ThreadMessage::Gone { serial, taken: taken.clone(), stuck });
        if let Some(worker) = self.workers.get_mut(&serial) {
            worker.tracing.clear();
            (worker.exit, worker.requests, worker.oom) = (Some(exit), slot.requests, oom);
        }
    }

    /// Writes one record and one log line for each worker, once all front threads have reported the requests
    /// that they lost. Workers that exit as ordered, because of a shutdown or a replacement, are not logged.
    fn cleared(&mut self, serial: Serial, served: Vec<Served>, notify: &mut impl FnMut(Notice)) {
        let Some(worker) = self.workers.get_mut(&serial) else { return };
        worker.served.extend(served);
        worker.uncleared = worker.uncleared.saturating_sub(1);
        if worker.uncleared > 0 {
            return;
        }
        let Some(Worker { exit: Some(exit), stuck, served, requests, oom, memory, recycled, traces, .. }) =
            self.workers.remove(&serial)
        else {
            return;
        };
        let ordinary =
            recycled.is_none() && deaths::finished(&exit) && !(exit.status.is_none() && oom.is_kill());
        let quiet = exit.cause == Cause::Ordered
            && (self.stopping || ordinary)
            && served.iter().all(|one| !one.failed);
        let facts = Facts {
            exit: &exit,
            recycled: recycled.as_ref().map(|(cause, why)| (*cause, why.as_str())),
            requests,
            memory,
            oom,
            stuck: &stuck,
            served,
            traces: &traces,
            worker_timeout: self.options.timeouts().worker,
            noticed: Instant::now(),
        };
        let death = facts.record(SystemTime::now());
        if !quiet {
            notify(Notice::Log(death.text.clone()));
        }
        self.shared.deaths().add(death);
    }

    fn has_served(&self, index: u32) -> bool {
        self.shared.slot(index as usize).taken.iter().any(|&taken| taken > 0)
    }

    fn reported(&mut self, report: Report, notify: &mut impl FnMut(Notice)) {
        match report {
            Report::Ready { serial, seats, fiber_seats } => {
                let apart = self.shared.is_apart();
                if let Some(worker) = self.workers.get_mut(&serial) {
                    worker.seats = seats.max(1).into();
                    worker.fiber_seats = if apart { fiber_seats.max(1).into() } else { 0 };
                }
                self.event(Event::Ready(serial), notify);
            }
            Report::Stopping(serial) => self.event(Event::Stopping(serial), notify),
            Report::LinkLost { serial, why } => {
                let index = self.table.index_of(serial);
                if why != "closed" {
                    let name = index.map_or("gone".to_owned(), |index| index.to_string());
                    notify(Notice::Log(format!("worker {name}: {why}")));
                }
                let served = index.is_some_and(|index| self.has_served(index));
                self.event(Event::LinkLost { serial, served }, notify);
            }
            Report::Ended(serial) => {
                let served = self.table.index_of(serial).is_some_and(|index| self.has_served(index));
                self.event(Event::Ended { serial, served }, notify);
            }
            Report::Stuck { serial, request } => {
                if let Some(worker) = self.workers.get_mut(&serial) {
                    worker.stuck.push(request);
                }
                self.event(Event::Stuck(serial), notify);
                self.ask_traces(serial);
                // Requests that the worker has not started go back to the queue now, not when the worker is
                // killed.
                self.shared.to_all(|| ThreadMessage::Withdraw(serial));
            }
            Report::Kept { serial, thread, count } => {
                if let Some(worker) = self.workers.get_mut(&serial) {
                    worker.kept.insert(thread, (count, Instant::now()));
                }
            }
            Report::Due(serial) => {
                self.collections.due(serial);
                self.grant_collection();
            }
            Report::Collected { serial, took } => self.collected(serial, took),
            Report::Probed { serial, result } => self.probed(serial, result, notify),
            Report::Withdrawn { serial, count } => {
                if let Some(worker) = self.workers.get_mut(&serial) {
                    worker.progress.withdrawn(count);
                }
            }
            Report::Traces { serial, traces } => {
                let Some(worker) = self.workers.get_mut(&serial) else { return };
                for reply in worker.tracing.drain(..) {
                    // The receiver may have timed out.
                    let _ = reply.send(traces.clone());
                }
                worker.traces = traces;
            }
            Report::Extended { serial, link, id, until_us } => {
                if let Some(worker) = self.workers.get_mut(&serial) {
                    worker.extended.insert((link.into(), id), until_us);
                }
            }
            Report::Measured { serial, pss } => {
                self.measuring = None;
                let now = Instant::now();
                if let Some(worker) = self.workers.get_mut(&serial) {
                    worker.memory.measured(pss, now);
                }
                self.measure(now);
            }
            Report::TemplatesMeasured(pss) => self.sizer.templates_measured(pss, Instant::now()),
            Report::Weighed(figures) => self.weighed(&figures, notify),
            Report::Cleared { serial, served } => self.cleared(serial, served, notify),
        }
    }

    fn is_attached(&self) -> bool {
        self.options.attached.is_some()
    }

    /// Refuses a command that would replace an attached process or its code.
    fn refuse(&self, command: &Command, notify: &mut impl FnMut(Notice)) {
        let steps = match command {
            Command::Reload(steps) | Command::ReloadInPlace(steps) | Command::UndoReload(steps) => steps,
            _ => &None,
        };
        if steps.is_none() {
            notify(Notice::Log(NO_SUPERVISION.to_owned()));
        }
        // The caller may have gone.
        let _ = steps.as_ref().map(|steps| steps.send(ReloadStep::End(Err(NO_SUPERVISION.to_owned()))));
    }

    fn commanded(&mut self, command: Command, notify: &mut impl FnMut(Notice)) {
        match command {
            Command::More
            | Command::Fewer
            | Command::Reload(_)
            | Command::ReloadInPlace(_)
            | Command::UndoReload(_)
                if self.is_attached() =>
            {
                self.refuse(&command, notify);
            }
            Command::Listening(addresses) => {
                for template in self.templates.values().filter(|_| self.is_attached()) {
                    // If the process has exited, its closed socket reports that.
                    let _ = template.process.listening(&addresses);
                }
            }
            Command::More => self.ordered_size(Event::More, notify),
            Command::Fewer => self.ordered_size(Event::Fewer, notify),
            Command::Leave => self.sizer.leave(),
            Command::Reload(steps) => self.reload(steps, false, notify),
            Command::ReloadInPlace(steps) => self.reload(steps, true, notify),
            Command::UndoReload(steps) => self.undo_reload(steps, notify),
            Command::Drain => {
                self.stopping = true;
                self.stop_reload(notify);
                self.event(Event::Drain, notify);
            }
            Command::Halt => {
                self.stopping = true;
                self.stop_reload(notify);
                self.event(Event::Halt, notify);
            }
            Command::Processes(reply) => {
                // The receiver may have timed out.
                let _ = reply.send(self.processes());
            }
            Command::Trace(serial, reply) => self.trace(serial, reply),
            Command::ForkService(order) => self.fork_service(order),
            Command::Unlink(files) => {
                // A template that is loading the app does not read messages; it gets the list afterwards.
                for template in self.templates.values().filter(|template| template.facts.is_some()) {
                    // A template that does not read messages now is about to be replaced.
                    let _ = template.process.unlink(&files);
                }
                self.options.boot.unlink = files;
            }
        }
    }

    /// Asks a worker for backtraces, which arrive as a frame. Callers that have timed out are dropped on the
    /// next call.
    fn trace(&mut self, serial: Serial, reply: oneshot::Sender<Vec<Trace>>) {
        let Some(worker) = self.workers.get_mut(&serial) else { return };
        worker.tracing.retain(|reply| !reply.is_closed());
        worker.tracing.push(reply);
        self.ask_traces(serial);
    }

    fn ask_traces(&self, serial: Serial) {
        let Some(pid) = self.table.rows().find(|row| row.serial == serial).map(|row| row.pid) else { return };
        self.signal(serial, self.table.signal_by(pid), pid, "URG");
    }

    // Memory.

    /// Reads the workers' resident memory and the kernel's OOM-kill counter.
    fn read_memory(&mut self, rows: &[Row], now: Instant) {
        if now < self.next_reading {
            return;
        }
        self.next_reading = now + RSS_EVERY;
        self.oom_kills.read(Machine::oom_kills(), now);
        for row in rows {
            if let Some(worker) = self.workers.get_mut(&row.serial) {
                worker.memory.resident(stats::memory::rss_bytes(row.pid));
            }
        }
        self.measure(now);
    }

    /// Measures the PSS of one worker that is due, on another thread, because that takes milliseconds.
    fn measure(&mut self, now: Instant) {
        if self.measuring.is_some() {
            return;
        }
        let limit = self.limits().memory;
        let is_due = |row: &Row| {
            let Some(worker) = self.workers.get(&row.serial) else { return false };
            let crossed = |limit| {
                let mut at = self.recycler.thresholds(row.serial, limit).into_iter();
                at.any(|threshold| worker.memory.is_due(Some(threshold), now))
            };
            row.stage != Stage::Booting && limit.map_or(worker.memory.is_due(None, now), crossed)
        };
        let Some(Row { serial, pid, .. }) = self.table.rows().find(is_due) else { return };
        self.measuring = Some(serial);
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || {
            shared.report(Report::Measured { serial, pss: stats::memory::pss_bytes(pid) });
        });
    }

    // Limits.

    fn limits(&self) -> recycle::Limits {
        let settings = self.options.settings.borrow();
        let limits = &settings.limits;
        recycle::Limits {
            memory: limits.worker_memory,
            max_requests: limits.max_requests,
            max_age: limits.max_age,
        }
    }

    /// Returns the figures that decide about replacing a worker and about reforks.
    fn seen(&self, row: &Row, now: Instant) -> Seen {
        Seen {
            serial: row.serial,
            age: now.saturating_duration_since(row.forked),
            requests: self.shared.slot(row.index as usize).requests,
            pss: self.workers.get(&row.serial).and_then(|worker| worker.memory.pss()),
        }
    }

    fn check_limits(&mut self, rows: &[Row], now: Instant, notify: &mut impl FnMut(Notice)) {
        let limits = self.limits();
        if self.is_attached() || limits == recycle::Limits::default() {
            return;
        }
        let up = rows.iter().filter(|row| row.stage == Stage::Up);
        let seen: Vec<Seen> = up.map(|row| self.seen(row, now)).collect();
        for decision in self.recycler.decide(limits, &seen) {
            match decision {
                recycle::Decision::Recycle(serial, why) => {
                    self.note_limit(serial, why.cause(), why.describe(limits));
                    self.event(Event::Recycle(serial), notify);
                }
                recycle::Decision::Kill(serial, pss) => {
                    self.note_limit(serial, DeathCause::Memory, recycle::describe_kill(pss, limits));
                    self.event(Event::Kill(serial), notify);
                }
                recycle::Decision::TooSmall(pss) => {
                    notify(Notice::Log(recycle::describe_too_small(pss, limits)));
                }
            }
        }
    }

    fn note_limit(&mut self, serial: Serial, cause: DeathCause, why: String) {
        if let Some(worker) = self.workers.get_mut(&serial) {
            worker.recycled = Some((cause, why));
        }
    }

    // Deadlines.

    fn tick(&mut self, notify: &mut impl FnMut(Notice)) {
        let now = Instant::now();
        if let Some(limit) = now.checked_sub(self.options.timeouts().queue) {
            for ticket in self.shared.each(|dispatch| dispatch.expire(limit)).flatten() {
                self.shared.mailbox(ticket.thread).post(ThreadMessage::Expired(ticket));
            }
        }
        let rows: Vec<Row> = self.table.rows().collect();
        self.read_memory(&rows, now);
        self.check_limits(&rows, now, notify);
        self.check_size(&rows, now, notify);
        self.check_collections(now);
        self.consider_refork(&rows, notify);
        let templates = self.templates.values().map(|template| template.process.pid());
        let ours: Vec<u32> = templates.chain(rows.iter().map(|row| row.pid)).collect();
        self.orphans.reap(&ours, now);
        self.ask_slow_templates(now);
        for row in rows.iter().filter(|row| row.stage != Stage::Booting) {
            self.check_worker(row, now, notify);
        }
        self.event(Event::Tick, notify);
    }

    /// Asks templates that have almost used up their time to load the app for their backtraces, before they
    /// are killed.
    fn ask_slow_templates(&mut self, now: Instant) {
        let limit = self.options.timeouts().worker_boot;
        let slow = limit.saturating_sub(asks_before(limit));
        let loads = |one: &&mut RunningTemplate| one.facts.is_none() && !one.asked;
        for template in self.templates.values_mut().filter(loads) {
            if now.saturating_duration_since(template.begun) >= slow {
                template.asked = true;
                template.process.ask_where();
            }
        }
    }

    fn check_worker(&mut self, row: &Row, now: Instant, notify: &mut impl FnMut(Notice)) {
        let slot = self.shared.slot(row.index as usize);
        self.check_progress(row, &slot, now, notify);
        self.trace_slow(row, &slot);
        let Some(timeout) = self.options.timeouts().worker else { return };
        if self.options.fibers() {
            // The scoreboard does not show which fibers are waiting.
            self.shared.to_all(|| ThreadMessage::OverdueSince { serial: row.serial, timeout });
        }
        let Some(worker) = self.workers.get_mut(&row.serial) else { return };
        let key = |busy: &Busy| (busy.serving.link, busy.serving.id);
        worker.extended.retain(|request, _| slot.busy.iter().any(|busy| key(busy) == *request));
        let (extended, now_us) = (&worker.extended, os::monotonic_us());
        let limit = now_us.saturating_sub(timeout.as_micros() as u64);
        let is_extended = |busy: &Busy| extended.get(&key(busy)).is_some_and(|until| now_us < *until);
        let overdue = || slot.busy.iter().filter(|busy| busy.since_us < limit && !is_extended(busy));
        for busy in overdue() {
            let Some((thread, kind)) = self.shared.link_end(busy.serving.link) else { continue };
            let end = End { serial: row.serial, kind };
            self.shared.mailbox(thread).post(ThreadMessage::Overdue { end, id: busy.serving.id });
        }
        let serves = self.shared.serving(&slot, self.options.fibers()) as usize;
        // Most fibers are waiting, which the scoreboard does not show; the front threads report them.
        let held = match (self.options.fibers(), self.shared.is_apart()) {
            (false, _) => overdue().count(),
            (true, false) => worker.kept(now),
            (true, true) => {
                let threads = self.options.worker_threads() as u32;
                worker.kept(now) + overdue().filter(|busy| busy.thread < threads).count()
            }
        };
        if !worker.stuck.is_empty() && (held >= serves || os::is_stopped(row.pid)) {
            self.event(Event::OthersFinished(row.serial), notify);
        }
    }

    /// With fibers: finds workers that are computing on all of their threads. They get new requests only when
    /// all others are full.
    fn look_for_held(&self) {
        let limit = os::monotonic_us().saturating_sub(HELD.as_micros() as u64);
        let threads = self.options.worker_threads() as u32;
        let (kind, loops) = match self.shared.is_apart() {
            true => (SeatKind::Fiber, threads..threads + 1),
            false => (SeatKind::Thread, 0..threads),
        };
        for row in self.table.rows().filter(|row| row.stage == Stage::Up) {
            let slot = self.shared.slot(row.index as usize);
            let stuck = |thread| slot.busy.iter().any(|busy| busy.thread == thread && busy.since_us < limit);
            let held = loops.clone().all(|thread| slot.computes(thread) || stuck(thread));
            self.shared.dispatch(kind).worker_held(row.serial, held);
        }
    }

    /// Asks for the backtrace of the oldest request when it is slow, at intervals that double.
    fn trace_slow(&mut self, row: &Row, slot: &Slot) {
        let Some(worker) = self.workers.get_mut(&row.serial) else { return };
        let oldest = slot.busy.iter().map(|busy| busy.since_us).min();
        let age = oldest.map_or(0, |since| os::monotonic_us().saturating_sub(since));
        let age = Duration::from_micros(age);
        if age < SLOW {
            worker.trace_at = SLOW;
        } else if age >= worker.trace_at {
            worker.trace_at = age * 2;
            self.ask_traces(row.serial);
        }
    }

    fn check_progress(&mut self, row: &Row, slot: &Slot, now: Instant, notify: &mut impl FnMut(Notice)) {
        let (serial, pid) = (row.serial, row.pid);
        let Some(worker) = self.workers.get_mut(&serial) else { return };
        let (mut handed, mut stalled) = (0, false);
        self.shared.each(|dispatch| (dispatch.taken(serial), dispatch.is_stalled(serial))).for_each(
            |(taken, stalls)| {
                handed += taken;
                stalled |= stalls;
            },
        );
        let seen = Observation {
            handed,
            stalled,
            busy: self.shared.serving(slot, self.options.fibers()) as u32,
            threads: worker.seats + worker.fiber_seats,
            work: slot.taken.iter().sum::<u64>().wrapping_add(slot.requests),
        };
        let (threads, timeout) = (self.options.front_threads(), self.options.timeouts().worker);
        match worker.progress.observe(seen, now, threads, timeout, || os::is_stopped(pid)) {
            Decision::None => {}
            Decision::Suspend { idle_thread } => {
                self.shared.each(|dispatch| dispatch.worker_suspended(serial)).for_each(drop);
                self.shared.to_all(|| ThreadMessage::Withdraw(serial));
                self.event(Event::Suspended { serial, idle_thread }, notify);
            }
            Decision::Resume => {
                let mut assigned = Vec::new();
                self.shared
                    .each(|dispatch| dispatch.worker_resumed(serial, now, &mut assigned))
                    .for_each(drop);
                self.shared.deliver(&assigned);
                self.event(Event::Resumed(serial), notify);
            }
            Decision::Freeze => self.event(Event::Frozen(serial), notify),
        }
    }
}

/// Returns how long before its deadline a template is asked for its backtrace.
fn asks_before(limit: Duration) -> Duration {
    (limit / 4).min(IDLE_TICK * 2)
}

/// Returns the time of the next check of deadlines. An event may bring it forward but never postpones it.
fn next_tick(planned: Instant, now: Instant, calm: bool, worker_timeout: Option<Duration>) -> Instant {
    let idle = worker_timeout.map_or(IDLE_TICK, |timeout| IDLE_TICK.min(timeout / 2)).max(BUSY_TICK);
    let tick = now + if calm { idle } else { BUSY_TICK };
    if planned <= now { tick } else { planned.min(tick) }
}

/// Returns the number of slots: enough for workers that drain while their successors boot, and for some
/// TTINs.
fn slots(workers: usize) -> usize {
    (workers * 2 + SPARE_SLOTS).max(32)
}

const SPARE_SLOTS: usize = 8;

mod collections;
mod jobs;
mod refork;
mod reload;
mod services;
mod sizing;
use jobs::Jobs;
use refork::Reforks;
use reload::Reloads;
pub use reload::{ReloadStep, Steps};
use sizing::Sizer;
pub use sizing::Sizing;

#[cfg(test)]
#[path = "supervisor_tests.rs"]
mod tests;
