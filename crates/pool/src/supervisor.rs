//! Carries out what the [process table](crate::table) decides: the template, forks, signals, burials, deadlines.
//!
//! Runs on the main thread, beside no request. It never waits for a worker: whatever takes time comes back as an event.

use crate::dispatch::{Dispatch, Serial};
use crate::os;
use crate::shared::{Letter, Report, Shared};
use crate::table::{Action, Cause, Event, Grave, Patience, Row, Stage, Table};
use crate::template::{End, Plan, Said, Template};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use wire::scoreboard::{Busy, slot_len};
use wire::traces::Trace;

/// Sizes and times of a pool.
#[derive(Debug, Clone)]
pub struct Options {
    /// How to start the template.
    pub plan: Plan,
    /// Workers to begin with.
    pub workers: usize,
    /// Front threads, each of which has a link to each worker.
    pub front_threads: usize,
    /// Requests that may wait.
    pub max_queue: usize,
    /// How long each may wait.
    pub queue_timeout: Duration,
    /// How long an answer may take to begin, if there is a limit.
    pub worker_timeout: Option<Duration>,
    /// Booting and finishing.
    pub patience: Patience,
}

/// What the outside wants of a running pool.
#[derive(Debug)]
pub enum Command {
    /// One worker more (TTIN).
    More,
    /// One worker fewer (TTOU).
    Fewer,
    /// Let all workers finish what they have, then end.
    Drain,
    /// End at once.
    Halt,
    /// Tell what workers there are.
    Rows(oneshot::Sender<Vec<Row>>),
    /// Ask a worker where in the app its threads are. The answer comes when its main thread gets to the GVL, so perhaps never.
    Trace(Serial, oneshot::Sender<Vec<Trace>>),
}

/// What the outside should know.
#[derive(Debug)]
pub enum Notice {
    /// All workers are up: open the port.
    Settled,
    /// Workers die before any of them was ready: give up.
    Hopeless,
    /// A line for the log.
    Log(String),
}

/// What the template said about the app.
#[derive(Debug, Clone)]
pub struct AppFacts {
    /// Ruby engine and version.
    pub ruby: String,
    /// Rack release.
    pub rack: String,
    /// How long loading took.
    pub took: Duration,
}

/// The app cannot be loaded.
#[derive(Debug)]
pub enum BootError {
    /// The exception that loading raised, with its backtrace.
    App(String),
    /// The template did not come up.
    Template(io::Error),
}

/// A booted pool without workers yet.
pub struct Supervisor {
    options: Options,
    shared: Arc<Shared>,
    reports: mpsc::UnboundedReceiver<Report>,
    table: Table,
    template: Option<Template>,
    graves: HashMap<Serial, (Grave, usize, Vec<String>)>,
    stuck: HashMap<Serial, String>,
    threads: HashMap<Serial, u16>,
    /// Who waits for a worker's [`Trace`]s.
    tracing: HashMap<Serial, Vec<oneshot::Sender<Vec<Trace>>>>,
    retry_template: Option<Instant>,
    overdue_checked: Instant,
    facts: AppFacts,
    empty: bool,
}

/// How often deadlines are looked at while something is going on, and while nothing is.
const BUSY_TICK: Duration = Duration::from_millis(200);
const IDLE_TICK: Duration = Duration::from_secs(1);

impl Supervisor {
    /// Starts the template and waits until it has loaded the app.
    ///
    /// # Errors
    /// See [`BootError`].
    pub async fn boot(options: Options) -> Result<Supervisor, BootError> {
        let slots = slots(options.workers);
        let worker_threads = options.plan.threads_max as usize;
        let slot_len = slot_len(worker_threads, options.front_threads);
        let scoreboard = os::scoreboard_memory(slots, slot_len).map_err(BootError::Template)?;
        let (to_us, reports) = mpsc::unbounded_channel();
        let dispatch = Dispatch::new(options.max_queue);
        let shared =
            Arc::new(Shared::new(dispatch, options.front_threads, to_us, scoreboard, worker_threads));
        let mut template = start_template(&options, &shared).await.map_err(BootError::Template)?;
        let facts = match template.listen().await {
            Ok(Some(Said::Booted { ruby, rack, ms })) => {
                AppFacts { ruby, rack, took: Duration::from_millis(ms) }
            }
            Ok(Some(Said::Failed(text))) => {
                let _ = template.gone().await;
                return Err(BootError::App(text));
            }
            Ok(None) => {
                let code = template.gone().await.ok().flatten();
                let how = code.map_or("by a signal".to_owned(), |code| format!("with exit code {code}"));
                return Err(BootError::Template(io::Error::other(format!(
                    "the template ended {how} while it loaded the app"
                ))));
            }
            Ok(Some(other)) => {
                template.put_down();
                return Err(BootError::Template(io::Error::other(format!(
                    "the template said {other:?} first"
                ))));
            }
            Err(e) => {
                template.put_down();
                return Err(BootError::Template(e));
            }
        };
        Ok(Supervisor {
            table: Table::new(options.workers, slots, options.patience),
            options,
            shared,
            reports,
            template: Some(template),
            graves: HashMap::new(),
            stuck: HashMap::new(),
            threads: HashMap::new(),
            tracing: HashMap::new(),
            retry_template: None,
            overdue_checked: Instant::now(),
            facts,
            empty: false,
        })
    }

    /// What front threads need.
    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// What the template said about the app.
    pub fn facts(&self) -> &AppFacts {
        &self.facts
    }

    /// The template's process id.
    pub fn template_pid(&self) -> Option<u32> {
        self.template.as_ref().map(Template::pid)
    }

    /// Forks the workers and looks after them until the last has gone after [`Command::Drain`] or [`Command::Halt`]; then ends the
    /// template.
    pub async fn run(mut self, mut commands: mpsc::Receiver<Command>, mut notify: impl FnMut(Notice)) {
        self.event(Event::TemplateBooted, &mut notify).await;
        while !self.empty {
            let tick = tokio::time::sleep(if self.is_calm() { IDLE_TICK } else { BUSY_TICK });
            tokio::select! {
                said = hear(&mut self.template) => self.heard(said, &mut notify).await,
                Some(report) = self.reports.recv() => self.reported(report, &mut notify).await,
                Some(command) = commands.recv() => self.commanded(command, &mut notify).await,
                () = tick => self.tick(&mut notify).await,
            }
        }
        self.abandon().await;
    }

    /// Ends a pool that has no workers, or has not run.
    pub async fn abandon(mut self) {
        if let Some(mut template) = self.template.take() {
            let _ = template.exit().await;
            let _ = template.gone().await;
        }
    }

    fn is_calm(&self) -> bool {
        self.table.rows().all(|row| row.stage == Stage::Up)
            && self.table.rows().count() == self.table.wanted()
            && self.shared.dispatch().waiting() == 0
    }

    async fn event(&mut self, event: Event, notify: &mut impl FnMut(Notice)) {
        for action in self.table.on(event, Instant::now()) {
            self.act(action, notify).await;
        }
    }

    async fn act(&mut self, action: Action, notify: &mut impl FnMut(Notice)) {
        match action {
            Action::StartTemplate => self.restart_template(notify).await,
            Action::Fork { index, serial } => self.fork(index, serial, notify).await,
            Action::Signal { pid, name } => self.signal(pid, name).await,
            Action::Open(serial) => self.open(serial),
            Action::Close(serial) => {
                self.shared.dispatch().worker_closed(serial);
                self.shared.mailbox(0).post(Letter::Drain(serial));
            }
            Action::Bury(grave) => self.bury(grave),
            Action::Settled => notify(Notice::Settled),
            Action::Hopeless => {
                self.shared.to_all(|| Letter::Hopeless);
                notify(Notice::Hopeless);
            }
            Action::Empty => self.empty = true,
        }
    }

    async fn restart_template(&mut self, notify: &mut impl FnMut(Notice)) {
        if let Some(template) = self.template.take() {
            template.put_down();
        }
        match start_template(&self.options, &self.shared).await {
            Ok(template) => self.template = Some(template),
            Err(e) => {
                notify(Notice::Log(format!("the template cannot be started: {e}; trying again in 5 s")));
                self.retry_template = Some(Instant::now() + Duration::from_secs(5));
            }
        }
    }

    async fn fork(&mut self, index: u32, serial: Serial, notify: &mut impl FnMut(Notice)) {
        if let Err(e) = self.try_fork(index, serial).await {
            notify(Notice::Log(format!("worker {index} cannot be forked: {e}")));
            Box::pin(self.event(Event::ForkFailed { index }, notify)).await;
        }
    }

    async fn try_fork(&mut self, index: u32, serial: Serial) -> io::Result<()> {
        let mut theirs = Vec::with_capacity(self.options.front_threads);
        for thread in 0..self.options.front_threads {
            let (ours, end) = os::pair()?;
            end.set_nonblocking(false)?;
            theirs.push(end);
            self.shared.mailbox(thread as u16).post(Letter::Link {
                serial,
                index: index as u16,
                socket: ours,
            });
        }
        let template = self.template.as_ref().ok_or_else(|| io::Error::other("there is no template"))?;
        template.fork(index, &theirs).await
    }

    /// Through the template, which knows whether the process is still its child; an orphan directly.
    async fn signal(&self, pid: u32, name: &'static str) {
        match &self.template {
            Some(template) if !self.table.is_orphan(pid) => {
                // Whoever cannot be reached through a template that is gone is an orphan from now on.
                let _ = template.kill(pid, name).await;
            }
            _ => {
                let signal = match name {
                    "KILL" => Signal::KILL,
                    "URG" => Signal::URG,
                    _ => Signal::POWER,
                };
                if let Some(pid) = Pid::from_raw(pid as i32) {
                    let _ = kill_process(pid, signal);
                }
            }
        }
    }

    fn open(&mut self, serial: Serial) {
        let threads = self.threads.get(&serial).copied().unwrap_or(1);
        let mut assigned = Vec::new();
        self.shared.dispatch().worker_up(serial, threads.into(), Instant::now(), &mut assigned);
        self.shared.deliver(&assigned);
    }

    fn bury(&mut self, grave: Grave) {
        let taken: Arc<[u64]> = self.shared.slot(grave.index as usize).taken.into();
        let (serial, stuck) = (grave.serial, grave.cause == Cause::Stuck);
        self.threads.remove(&serial);
        self.tracing.remove(&serial);
        self.shared.dispatch().worker_gone(serial);
        self.shared.to_all(|| Letter::Gone { serial, taken: taken.clone(), stuck });
        self.graves.insert(serial, (grave, self.shared.threads(), Vec::new()));
    }

    async fn heard(&mut self, said: io::Result<Option<Said>>, notify: &mut impl FnMut(Notice)) {
        let event = match said {
            Ok(Some(Said::Forked { index, pid })) => Event::Forked { index, pid },
            Ok(Some(Said::ForkFailed { index, text })) => {
                notify(Notice::Log(format!("worker {index} cannot be forked: {text}")));
                Event::ForkFailed { index }
            }
            Ok(Some(Said::Exited { pid, end, peak_kib })) => Event::Exited { pid, end, peak_kib },
            Ok(Some(Said::Booted { .. })) => {
                notify(Notice::Log("a new template has loaded the app".to_owned()));
                Event::TemplateBooted
            }
            Ok(Some(Said::Failed(text))) => {
                notify(Notice::Log(format!("the app cannot be loaded again; trying again in 5 s\n{text}")));
                self.lose_template();
                return;
            }
            Ok(None) | Err(_) => {
                if let Err(e) = said {
                    notify(Notice::Log(e.to_string()));
                }
                // A template that never got as far as forking is tried again later, not at once.
                if self.retry_template.is_some() || self.template.is_none() {
                    return self.lose_template();
                }
                notify(Notice::Log(
                    "the template has died; its workers finish, and a new one is started".to_owned(),
                ));
                self.lose_template();
                self.retry_template = None;
                Event::TemplateGone
            }
        };
        self.event(event, notify).await;
    }

    fn lose_template(&mut self) {
        if let Some(template) = self.template.take() {
            template.put_down();
        }
        self.retry_template = Some(Instant::now() + Duration::from_secs(5));
    }

    async fn reported(&mut self, report: Report, notify: &mut impl FnMut(Notice)) {
        match report {
            Report::Ready { serial, threads } => {
                self.threads.insert(serial, threads.max(1));
                self.event(Event::Ready(serial), notify).await;
            }
            Report::Stopping(serial) => self.event(Event::Stopping(serial), notify).await,
            Report::LinkLost { serial, why } => {
                if why != "closed" {
                    notify(Notice::Log(format!("worker {}: {why}", self.name(serial))));
                }
                self.event(Event::LinkLost(serial), notify).await;
            }
            Report::Stuck { serial, request } => {
                self.stuck.entry(serial).or_insert(request);
                self.event(Event::Stuck(serial), notify).await;
            }
            Report::Traces { serial, traces } => {
                for answer in self.tracing.remove(&serial).unwrap_or_default() {
                    // Whoever asked may have lost patience.
                    let _ = answer.send(traces.clone());
                }
            }
            Report::Buried { serial, lost } => self.mourn(serial, lost, notify),
        }
    }

    fn name(&self, serial: Serial) -> String {
        self.table.index_of(serial).map_or("gone".to_owned(), |index| index.to_string())
    }

    /// One line for each worker that did not end by order, once all threads have said what they lost.
    fn mourn(&mut self, serial: Serial, mut lost: Vec<String>, notify: &mut impl FnMut(Notice)) {
        let Some((_, threads, all)) = self.graves.get_mut(&serial) else { return };
        all.append(&mut lost);
        *threads -= 1;
        if *threads > 0 {
            return;
        }
        let Some((grave, _, lost)) = self.graves.remove(&serial) else { return };
        let stuck = self.stuck.remove(&serial);
        if grave.cause != Cause::Ordered || !lost.is_empty() {
            notify(Notice::Log(epitaph(&grave, stuck.as_deref(), &lost, self.options.worker_timeout)));
        }
    }

    async fn commanded(&mut self, command: Command, notify: &mut impl FnMut(Notice)) {
        match command {
            Command::More => self.event(Event::More, notify).await,
            Command::Fewer => self.event(Event::Fewer, notify).await,
            Command::Drain => self.event(Event::Drain, notify).await,
            Command::Halt => self.event(Event::Halt, notify).await,
            Command::Rows(answer) => {
                // Whoever asked may have hung up.
                let _ = answer.send(self.table.rows().collect());
            }
            Command::Trace(serial, answer) => self.trace(serial, answer).await,
        }
    }

    /// The worker answers with a frame. Those who have given up are forgotten with the next question.
    async fn trace(&mut self, serial: Serial, answer: oneshot::Sender<Vec<Trace>>) {
        let Some(pid) = self.table.rows().find(|row| row.serial == serial).map(|row| row.pid) else { return };
        self.tracing.values_mut().for_each(|waiting| waiting.retain(|answer| !answer.is_closed()));
        self.tracing.retain(|_, waiting| !waiting.is_empty());
        self.tracing.entry(serial).or_default().push(answer);
        self.signal(pid, "URG").await;
    }

    async fn tick(&mut self, notify: &mut impl FnMut(Notice)) {
        let now = Instant::now();
        if self.retry_template.is_some_and(|at| at <= now) {
            self.retry_template = None;
            self.restart_template(notify).await;
        }
        if let Some(limit) = now.checked_sub(self.options.queue_timeout) {
            let expired = self.shared.dispatch().expire(limit);
            for ticket in expired {
                self.shared.mailbox(ticket.thread).post(Letter::Expired(ticket));
            }
        }
        if now.saturating_duration_since(self.overdue_checked) >= IDLE_TICK {
            self.overdue_checked = now;
            self.check_overdue();
        }
        self.event(Event::Tick, notify).await;
    }

    /// Asks the front threads about requests that the scoreboard shows as started too long ago.
    fn check_overdue(&self) {
        let Some(timeout) = self.options.worker_timeout else { return };
        let limit = os::monotonic_us().saturating_sub(timeout.as_micros() as u64);
        for row in self.table.rows() {
            for Busy { serving, since_us, .. } in self.shared.slot(row.index as usize).busy {
                if since_us < limit && (serving.link as usize) < self.shared.threads() {
                    self.shared
                        .mailbox(serving.link as u16)
                        .post(Letter::Overdue { serial: row.serial, id: serving.id });
                }
            }
        }
    }
}

async fn start_template(options: &Options, shared: &Shared) -> io::Result<Template> {
    let slot_len = slot_len(options.plan.threads_max as usize, options.front_threads);
    let (scoreboard, slots) = (shared.scoreboard().as_fd(), slots(options.workers));
    Template::start(&options.plan, options.front_threads, scoreboard, slots, slot_len).await
}

/// Room for workers that drain while their successors boot, and for some TTINs.
fn slots(workers: usize) -> usize {
    (workers * 2 + 8).max(32)
}

async fn hear(template: &mut Option<Template>) -> io::Result<Option<Said>> {
    match template {
        Some(template) => template.listen().await,
        None => std::future::pending().await,
    }
}

/// What is written on a worker's grave.
fn epitaph(grave: &Grave, stuck: Option<&str>, lost: &[String], worker_timeout: Option<Duration>) -> String {
    let Grave { index, pid, end, peak_kib, cause, wait, .. } = grave;
    let mut text = format!("worker {index} (pid {pid}) ");
    let how = end.map_or("unknown end".to_owned(), |end: End| end.to_string());
    text += &match cause {
        Cause::Ordered => format!("ended with requests unanswered: {how}"),
        Cause::Crashed => format!("died: {how}"),
        Cause::Stuck => {
            let seconds = worker_timeout.map_or(0.0, |timeout| timeout.as_secs_f64());
            let request = stuck.map_or(String::new(), |request| format!(" by {request}"));
            format!("was stuck for more than worker_timeout ({seconds} s){request} and was killed")
        }
        Cause::SlowBoot => "did not get ready within worker_boot_timeout and was killed".to_owned(),
        Cause::SlowDrain => "did not finish within shutdown_timeout and was killed".to_owned(),
    };
    text += &format!("; peak memory {:.1} MiB", *peak_kib as f64 / 1024.0);
    if !lost.is_empty() {
        text += &format!("; it was serving {}", lost.join(", "));
    }
    if let Some(wait) = wait {
        text += &format!("; it died young, the next one is tried in {:.1} s", wait.as_secs_f64());
    }
    text
}
