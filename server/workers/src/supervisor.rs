//! Carries out the acts of the [reconciler](crate::reconciler), and turns what the kernel, the processes and
//! the front threads report into [`Change`]s.
//!
//! Runs on the main thread, which serves no requests. The supervisor never waits for a process: the result of
//! anything that takes time arrives as a report. It decides nothing about templates and workers. Other
//! subjects have files of their own: the `deadlines` of requests, `memory`, `trials` of new code, the
//! `sizing` figures, `collections`, `jobs`, `services`.

mod acts;
mod boot;
mod collections;
mod deadlines;
mod jobs;
mod meter;
mod orders;
mod profiling;
mod services;
mod shape_file;
mod shaping;
mod sizing;
mod templates;
mod trials;
mod worker;

use crate::clients;
use crate::collections::Collections;
use crate::deaths;
use crate::messages::{SupervisorMessage, ThreadMessage};
use crate::orphans::{self, Orphans};
use crate::os;
use crate::process::Generation;
use crate::reconciler::{
    Act, Capabilities, Change, FIRST, FIRST_RELEASE, Health, Phase, Reconciler, ReloadKind, Row, Timeouts,
    Wish, recycle, slots_for,
};
use crate::shared::Shared;
use crate::spawner::{AppFacts, TemplateReport, message, pools, seats};
use jobs::Jobs;
use meter::Meter;
use net::memory;
use orders::Followers;
pub use orders::{
    BootError, Command, Follower, Notice, Options, PROFILE_GRACE, Processes, ProfileWish, ReleaseReader,
};
use profiling::Profiling;
use queue::{Dispatch, PassReason, PoolIndex, Serial};
use settings::Settings;
use shaping::Shaping;
use sizing::Sampler;
pub use sizing::Sizing;
use stats::{ReforksSnapshot, ReloadsSnapshot, Running, SizeChange, WorkerState};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use templates::RunningTemplate;
use tokio::sync::mpsc;
use trials::Trials;
use worker::Worker;

/// The interval at which the supervisor checks whether workers with fibers are computing.
const HELD_TICK: Duration = Duration::from_millis(25);
/// The interval between two checks of deadlines while requests or processes are in progress.
const BUSY_TICK: Duration = Duration::from_millis(200);
/// A request that has waited for this long makes responses end whose clients do not read.
const LONG_WAIT: Duration = Duration::from_millis(250);
/// The interval between two checks of deadlines while the server is idle.
const IDLE_TICK: Duration = Duration::from_secs(1);

/// A booted pool without workers yet.
pub struct Supervisor {
    options: Options,
    shared: Arc<Shared>,
    inbox: Inbox,
    reconciler: Reconciler,
    templates: BTreeMap<Generation, RunningTemplate>,
    workers: BTreeMap<Serial, Worker>,
    followers: Followers,
    trials: Trials,
    subjects: Subjects,
    outbox: Outbox,
}

/// The messages of other threads and of templates.
struct Inbox {
    reports: mpsc::UnboundedReceiver<SupervisorMessage>,
    templates: (mpsc::UnboundedSender<TemplateReport>, mpsc::UnboundedReceiver<TemplateReport>),
}

/// The supervisor's notices and its end.
#[derive(Default)]
struct Outbox {
    notices: Vec<Notice>,
    history: History,
    /// No worker is left, as ordered.
    empty: bool,
}

/// The reloads, reforks and changes of size so far, for statistics.
#[derive(Default, Clone)]
struct History {
    reloads: ReloadsSnapshot,
    reforks: ReforksSnapshot,
    /// When the running or last one of both began.
    began: Option<SystemTime>,
    size: Option<SizeChange>,
}

/// The subjects that do not decide which processes exist.
struct Subjects {
    next_tick: Instant,
    meter: Meter,
    sampler: Sampler,
    /// The shape that follows the objective, if there is one.
    shaping: Option<Shaping>,
    orphans: Orphans,
    collections: Collections,
    jobs: Jobs,
    profiling: Option<Profiling>,
}

impl Supervisor {
    fn new(options: Options) -> io::Result<Supervisor> {
        let now = Instant::now();
        let source = options.source();
        let pools = pools(&options.boot.settings);
        let workers_of = pools.iter().map(|pool| pool.workers as usize);
        let mut counts: BTreeMap<PoolIndex, usize> = (0..).map(PoolIndex).zip(workers_of).collect();
        let others: usize = counts.values().skip(1).sum();
        let slots = if source.can_replace { slots_for(options.most_workers() + others) } else { 1 };
        if !source.can_replace {
            counts.insert(PoolIndex::DEFAULT, 1);
        }
        let (shaping, notes) = Shaping::at_start(&options.boot.settings, &pools[0], source).unzip();
        let workers = match &shaping {
            Some(shaping) => settings::Workers::exactly(shaping.shape().workers),
            None => options.boot.settings.workers,
        };
        if shaping.is_some() {
            counts.insert(PoolIndex::DEFAULT, workers.min as usize);
        }
        let limits = options.timeouts();
        let boot = limits.worker_boot * source.boot_factor;
        let wish = Wish {
            release: FIRST_RELEASE,
            counts,
            limits: recycle::Limits::default(),
            refork_after: None,
            timeouts: Timeouts { boot, shutdown: limits.shutdown, worker: limits.worker },
            phase: Phase::Serving,
        };
        let (to_supervisor, reports) = mpsc::unbounded_channel();
        let with_queues = pools.iter().map(|pool| {
            let (queue, seats) = (Dispatch::new(pool.max_queue), seats(pool));
            let in_advance = seats.in_advance() && source.returns_requests;
            (if in_advance { queue } else { queue.without_prefetching() }, seats)
        });
        let shared = Shared::new(with_queues.collect(), slots, options.front_threads(), to_supervisor)?;
        let classes = clients::shares(&options.boot.settings);
        shared.each(|queue| queue.set_classes(&classes)).for_each(drop);
        if let Some(shaping) = &shaping {
            shaping.begin(&shared, now);
        }
        Ok(Supervisor {
            reconciler: Reconciler::new(source, wish, slots, workers, now),
            followers: Followers::default(),
            options,
            shared: Arc::new(shared),
            inbox: Inbox { reports, templates: mpsc::unbounded_channel() },
            templates: BTreeMap::new(),
            workers: BTreeMap::new(),
            trials: Trials::default(),
            subjects: Subjects {
                next_tick: now,
                meter: Meter::new(now),
                sampler: Sampler::new(now),
                shaping,
                orphans: Orphans::new(now),
                collections: Collections::default(),
                jobs: Jobs::default(),
                profiling: None,
            },
            outbox: Outbox {
                notices: notes.into_iter().flatten().map(Notice::Log).collect(),
                ..Outbox::default()
            },
        })
    }

    /// Returns the state that the front threads share.
    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Returns what the source of the workers can do.
    pub fn source(&self) -> Capabilities {
        self.reconciler.source()
    }

    /// Returns the facts about the app from the newest template that has loaded it.
    pub fn facts(&self) -> Option<&AppFacts> {
        self.templates.values().rev().find_map(|template| template.facts.as_ref())
    }

    fn processes(&self) -> Processes {
        let pids = self.templates.values().map(|template| template.process.pid());
        let History { mut reloads, mut reforks, began, .. } = self.outbox.history.clone();
        let stage = self.reconciler.reload_stage(Instant::now());
        if let Some(((kind, stage, text), started_at)) = stage.zip(began) {
            let running = Some(Running { stage, text, started_at });
            match kind {
                ReloadKind::Reload => reloads.running = running,
                ReloadKind::Refork => reforks.running = running,
            }
        }
        Processes {
            workers: self.reconciler.rows().collect(),
            templates: pids.filter(|pid| *pid > 0).collect(),
            facts: self.facts().cloned(),
            phase: self.templates.keys().next_back().map_or(0, |generation| generation - FIRST),
            sizing: self.sizing(),
            shape: self.shape(),
            reloads,
            reforks,
            collections: self.subjects.collections.totals(),
        }
    }

    /// Forks the workers and supervises them until the last one has exited after [`Command::Drain`] or
    /// [`Command::Halt`]; then ends the templates.
    pub async fn run(mut self, mut commands: mpsc::Receiver<Command>, mut notify: impl FnMut(Notice)) {
        self.see(Change::Template { generation: FIRST, usable: Ok(()) });
        self.outbox.notices.drain(..).for_each(&mut notify);
        let mut looks_at = Instant::now();
        let mut relief = memory::relief();
        while !self.outbox.empty {
            // Both ticks have their own deadlines, so that other events cannot postpone them.
            let looks = self.has_fibers() && !self.is_calm();
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(self.subjects.next_tick.into()) => self.tick(),
                () = tokio::time::sleep_until(looks_at.into()), if looks => {
                    self.look_for_held();
                    looks_at = Instant::now() + HELD_TICK;
                }
                Some((generation, message)) = self.inbox.templates.1.recv() => self.template_reported(generation, message),
                Ok(()) = relief.changed() => self.shared.resume(),
                Some(report) = self.inbox.reports.recv() => self.reported(report),
                Some(command) = commands.recv() => self.commanded(command),
            }
            self.judge();
            self.observe_jobs();
            self.observe_size();
            self.outbox.notices.drain(..).for_each(&mut notify);
            let (calm, timeout) = (self.is_calm(), self.options.shortest_timeout());
            self.subjects.next_tick = next_tick(self.subjects.next_tick, Instant::now(), calm, timeout);
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
        self.reconciler.is_calm() && self.shared.each(is_calm).all(|calm| calm)
    }

    fn is_stopping(&self) -> bool {
        self.reconciler.wish().phase == Phase::Stopping
    }

    fn has_fibers(&self) -> bool {
        self.shared.has_fibers()
    }

    fn notify(&mut self, notice: Notice) {
        self.outbox.notices.push(notice);
    }

    fn log(&mut self, text: String) {
        self.notify(Notice::Log(text));
    }

    fn see(&mut self, seen: Change) {
        let acts = self.reconciler.see(seen, Instant::now());
        self.carry_out(acts);
    }

    fn carry_out(&mut self, acts: Vec<Act>) {
        let mut acts = VecDeque::from(acts);
        while let Some(act) = acts.pop_front() {
            // An act that fails, or has a result at once, is a change.
            if let Some(seen) = self.act(act) {
                acts.extend(self.reconciler.see(seen, Instant::now()));
            }
        }
    }

    fn commanded(&mut self, command: Command) {
        let now = Instant::now();
        let acts = match command {
            Command::More | Command::Fewer => {
                let auto =
                    self.options.boot.settings.workers_auto.is_some() || self.subjects.shaping.is_some();
                self.reconciler.resize(matches!(command, Command::More), auto, now)
            }
            Command::Leave => return self.reconciler.leave(),
            Command::Reload(wish, follower) => {
                let caller = self.followers.add(follower);
                self.reconciler.reload(wish, caller, now)
            }
            Command::Drain => self.reconciler.drain(now),
            Command::Halt => self.reconciler.halt(now),
            Command::Processes(reply) => {
                // The receiver may have timed out.
                let _ = reply.send(self.processes());
                return;
            }
            Command::IsReloading(reply) => {
                // The receiver may be gone.
                let _ = reply.send(self.reconciler.has_reload());
                return;
            }
            Command::Trace(serial, reply) => return self.trace(serial, reply),
            Command::BeginProfile(wish, reply) => return self.begin_profile(wish, reply),
            Command::EndProfile(reply) => return self.end_profile(reply),
            Command::ForkService(order) => return self.fork_service(order),
            Command::Listening(addresses) => {
                let receives = self.reconciler.source().starts_server;
                for template in self.templates.values().filter(|_| receives) {
                    // If the process has exited, its closed socket reports that.
                    let _ = template.process.tell(&message::listening(&addresses));
                }
                return;
            }
            Command::Unlink(files) => {
                // A template that is loading the app does not read messages; it gets the list afterwards.
                for template in self.templates.values().filter(|template| template.facts.is_some()) {
                    // A template that does not read messages now is about to be replaced.
                    let _ = template.process.tell(&message::unlink(&files));
                }
                self.options.boot.unlink = files;
                return;
            }
        };
        self.carry_out(acts);
    }

    fn reported(&mut self, report: SupervisorMessage) {
        match report {
            SupervisorMessage::Ready { serial, seats } => {
                if let Some(worker) = self.workers.get_mut(&serial) {
                    worker.seats = seats.max(1);
                }
                self.see(Change::Ready(serial));
            }
            SupervisorMessage::Stopping(serial) => self.see(Change::Health(serial, Health::Stopping)),
            SupervisorMessage::LinkLost { serial, why } => self.link_lost(serial, &why),
            SupervisorMessage::Ended(serial) => self.process_ended(serial),
            SupervisorMessage::Stuck { serial, request } => self.stuck(serial, request),
            SupervisorMessage::Due(serial) => {
                self.subjects.collections.due(serial);
                self.grant_collection();
            }
            SupervisorMessage::Collected { serial, took } => self.collected(serial, took),
            SupervisorMessage::Probed { serial, result } => self.probed(serial, result),
            SupervisorMessage::Weighed(figures) => self.see(Change::Weighed(figures)),
            SupervisorMessage::Measured { serial, pss } => self.measured(serial, pss),
            SupervisorMessage::TemplatesMeasured(pss) => {
                self.subjects.sampler.templates_measured(pss, Instant::now());
            }
            SupervisorMessage::ShapeSaved(result) => self.shape_saved(result),
            SupervisorMessage::Profile { serial, order, records, last } => {
                self.profiled(serial, order, &records, last);
            }
            SupervisorMessage::Cleared { serial, served } => self.cleared(serial, served),
            SupervisorMessage::Kept { serial, .. }
            | SupervisorMessage::Withdrawn { serial, .. }
            | SupervisorMessage::Traces { serial, .. }
            | SupervisorMessage::Extended { serial, .. } => {
                if let Some(worker) = self.workers.get_mut(&serial) {
                    worker.told(report, Instant::now());
                }
            }
        }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        let settings = self.options.settings.borrow().clone();
        self.apply_classes(&settings);
        for pool in self.shared.pools().indexes() {
            let limit = now.checked_sub(settings.timeouts_of(pool.0.into()).0);
            for ticket in limit.map(|limit| self.shared.dispatch(pool).expire(limit)).unwrap_or_default() {
                self.shared.mailbox(ticket.thread).post(ThreadMessage::Expired(ticket));
            }
            self.free_seats(pool, now);
        }
        // Memory may have become free by so little that no thread has told so.
        self.shared.resume();
        let rows: Vec<Row> = self.reconciler.rows().collect();
        self.apply_limits();
        self.read_memory(&rows, now);
        self.check_figures(&rows, now);
        self.apply_objective(&rows, now);
        self.check_size(&rows, now);
        self.check_collections(now);
        let templates = self.templates.values().map(|template| template.process.pid());
        let ours: Vec<u32> = templates.chain(rows.iter().map(|row| row.pid)).collect();
        self.subjects.orphans.reap(&ours, now);
        self.ask_slow_templates(now);
        self.check_profile(now);
        for row in rows.iter().filter(|row| row.state != WorkerState::Booting) {
            self.check_worker(row, now);
        }
        self.see(Change::Tick);
    }

    /// Makes front threads end responses of clients that do not read, if requests have waited for seats of this pool for a while.
    fn free_seats(&self, pool: PoolIndex, now: Instant) {
        let queue = self.shared.dispatch(pool);
        let (oldest, count) = (queue.oldest(), queue.waiting());
        drop(queue);
        if oldest.is_some_and(|since| now.saturating_duration_since(since) >= LONG_WAIT) {
            self.shared.to_all(|| ThreadMessage::FreeSeats { pool, count });
        }
    }

    /// Takes over the classes of the settings in force. Front threads may know other ones for a moment.
    fn apply_classes(&self, settings: &Settings) {
        let classes = clients::shares(settings);
        self.shared.each(|queue| queue.set_classes(&classes)).for_each(drop);
    }

    /// Takes over the limits of the settings in force.
    fn apply_limits(&mut self) {
        let settings = self.options.settings.borrow().clone();
        let limits = recycle::Limits {
            memory: settings.limits.worker_memory,
            max_requests: settings.limits.max_requests,
            max_age: settings.limits.max_age,
        };
        let is_development = settings.process.environment == "development";
        let after = settings.rack.refork_after.threshold(self.reconciler.reforks());
        let refork = after.filter(|_| !is_development);
        self.reconciler.set_limits(limits, refork, settings.timeouts.worker);
    }

    /// Reports the figures of the workers by which they are replaced.
    fn check_figures(&mut self, rows: &[Row], now: Instant) {
        let figures = |row: &Row| recycle::Figures {
            serial: row.serial,
            age: now.saturating_duration_since(row.forked),
            requests: self.shared.scoreboard().slot(row.index as usize).requests,
            pss: self.workers.get(&row.serial).and_then(|worker| worker.memory.pss()),
        };
        if self.reconciler.needs_figures() {
            let up = rows.iter().filter(|row| row.state == WorkerState::Ready).map(figures).collect();
            self.see(Change::Workers(up));
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

#[cfg(test)]
#[path = "supervisor_tests.rs"]
mod tests;
