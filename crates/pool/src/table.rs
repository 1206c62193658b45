//! The process table: which workers there are, which should be, and what to do about the difference.
//!
//! Pure: events and the time go in, actions come out; [`crate::supervisor`] carries them out. Every worker goes
//!
//! ```text
//! Forking ─► Booting ─► Up ─► Draining ─► (gone)
//!               └─────────┴──► Doomed ──┘
//! ```
//!
//! Contract:
//! 1. One fork is under way at a time.
//! 2. A worker that died is replaced at once; when workers die young, each replacement waits twice as long as the one before.
//!    Until one worker was ready there is only one at a time.
//! 3. A worker that boots for longer than `boot`, or drains for longer than `shutdown`, is killed. One that is stuck is asked for
//!    backtraces and killed a second later.
//! 4. Every worker that was forked is buried exactly once.

use crate::dispatch::Serial;
use crate::template::End;
use std::time::{Duration, Instant};

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// From fork to readiness (`worker_boot_timeout`).
    pub boot: Duration,
    /// From the order to finish to the end (`shutdown_timeout`).
    pub shutdown: Duration,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The template can fork.
    TemplateBooted,
    /// The template has gone; its workers are orphans.
    TemplateGone,
    /// A fork succeeded.
    Forked {
        /// Scoreboard slot.
        index: u32,
        /// Process id.
        pid: u32,
    },
    /// A fork failed.
    ForkFailed {
        /// Scoreboard slot.
        index: u32,
    },
    /// A worker can take requests.
    Ready(Serial),
    /// A worker was told by somebody else to stop.
    Stopping(Serial),
    /// A link to a worker ended.
    LinkLost(Serial),
    /// A worker has not answered for `worker_timeout`.
    Stuck(Serial),
    /// A process ended.
    Exited {
        /// Process id.
        pid: u32,
        /// How.
        end: End,
        /// Peak memory, KiB.
        peak_kib: u64,
    },
    /// One worker more.
    More,
    /// One worker fewer.
    Fewer,
    /// Let all workers finish.
    Drain,
    /// Kill all workers.
    Halt,
    /// Time passes.
    Tick,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Start a template.
    StartTemplate,
    /// Fork a worker.
    Fork {
        /// Scoreboard slot.
        index: u32,
        /// Its serial number.
        serial: Serial,
    },
    /// Send a signal.
    Signal {
        /// To whom.
        pid: u32,
        /// Its name without `SIG`.
        name: &'static str,
    },
    /// The worker takes requests.
    Open(Serial),
    /// The worker gets no more requests and is told to finish.
    Close(Serial),
    /// The worker is gone.
    Bury(Grave),
    /// All workers that are wanted are up for the first time.
    Settled,
    /// Workers keep dying before one was ever ready.
    Hopeless,
    /// No worker is left, as was ordered.
    Empty,
}

/// What is known of a worker that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grave {
    /// Its serial number.
    pub serial: Serial,
    /// Its scoreboard slot.
    pub index: u32,
    /// Its process id; 0 when it was never forked.
    pub pid: u32,
    /// How it ended; `None` when nobody could tell.
    pub end: Option<End>,
    /// Peak memory in KiB.
    pub peak_kib: u64,
    /// Why.
    pub cause: Cause,
    /// When the next one will be tried, if it has to wait.
    pub wait: Option<Duration>,
}

/// Why a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It was told to.
    Ordered,
    /// It broke.
    Crashed,
    /// It was stuck and killed.
    Stuck,
    /// It did not get ready in time and was killed.
    SlowBoot,
    /// It did not finish in time and was killed.
    SlowDrain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Forking,
    Booting,
    Up,
    Draining,
    Doomed(Cause),
}

#[derive(Debug, Clone)]
struct Worker {
    serial: Serial,
    pid: u32,
    state: State,
    since: Instant,
    forked: Instant,
    /// It said so before the template said that it had forked it: they speak over different sockets.
    ready: bool,
    killed: bool,
    orphan: bool,
}

/// Where in its life a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Forked, not ready yet.
    Booting,
    /// Takes requests.
    Up,
    /// Finishes what it has, or is about to be killed.
    Leaving,
}

/// A worker as statistics want to see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Scoreboard slot.
    pub index: u32,
    /// Serial number.
    pub serial: Serial,
    /// Process id.
    pub pid: u32,
    /// Whether it boots, takes requests, or leaves.
    pub stage: Stage,
    /// When it was forked.
    pub forked: Instant,
    /// How many workers died in this slot before.
    pub restarts: u32,
}

/// The table.
#[derive(Debug)]
pub struct Table {
    workers: Vec<Option<Worker>>,
    restarts: Vec<u32>,
    wanted: usize,
    patience: Patience,
    next: Serial,
    template: bool,
    stopping: bool,
    settled: bool,
    ever_ready: bool,
    young_deaths: u32,
    not_before: Option<Instant>,
}

/// A worker that lived shorter than this died young.
const YOUNG: Duration = Duration::from_secs(5);
/// Young deaths in a row after which a server that never had a worker gives up.
const HOPELESS: u32 = 4;
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Time that a stuck worker gets to write its backtraces.
const LAST_WORDS: Duration = Duration::from_secs(1);

impl Table {
    /// No workers yet, `wanted` of them to come, in at most `slots` slots.
    pub fn new(wanted: usize, slots: usize, patience: Patience) -> Table {
        Table {
            workers: vec![None; slots],
            restarts: vec![0; slots],
            wanted: wanted.min(slots),
            patience,
            next: 1,
            template: false,
            stopping: false,
            settled: false,
            ever_ready: false,
            young_deaths: 0,
            not_before: None,
        }
    }

    /// What to do after `event`.
    pub fn on(&mut self, event: Event, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::TemplateBooted => self.template = true,
            Event::TemplateGone => self.template_gone(now, &mut actions),
            Event::Forked { index, pid } => self.forked(index, pid, now, &mut actions),
            Event::ForkFailed { index } => self.fork_failed(index, now, &mut actions),
            Event::Ready(serial) => self.ready(serial, now, &mut actions),
            Event::Stopping(serial) => self.close(serial, now, &mut actions),
            Event::LinkLost(serial) => self.link_lost(serial, now, &mut actions),
            Event::Stuck(serial) => self.stuck(serial, now, &mut actions),
            Event::Exited { pid, end, peak_kib } => self.exited(pid, end, peak_kib, now, &mut actions),
            Event::More => self.wanted = (self.wanted + 1).min(self.workers.len()),
            Event::Fewer => self.wanted = self.wanted.saturating_sub(1).max(1),
            Event::Drain => self.drain(now, &mut actions),
            Event::Halt => self.halt(&mut actions),
            Event::Tick => self.tick(now, &mut actions),
        }
        self.balance(now, &mut actions);
        actions
    }

    /// Number of workers that there should be.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// All workers that have been forked.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.workers.iter().enumerate().filter_map(|(index, worker)| {
            let worker = worker.as_ref().filter(|w| w.state != State::Forking)?;
            let stage = match worker.state {
                State::Forking | State::Booting => Stage::Booting,
                State::Up => Stage::Up,
                State::Draining | State::Doomed(_) => Stage::Leaving,
            };
            let (restarts, index) = (self.restarts[index], index as u32);
            Some(Row {
                index,
                serial: worker.serial,
                pid: worker.pid,
                stage,
                forked: worker.forked,
                restarts,
            })
        })
    }

    /// The scoreboard slot of a worker.
    pub fn index_of(&self, serial: Serial) -> Option<u32> {
        self.position(serial).map(|index| index as u32)
    }

    /// Whether a worker has lost the template that forked it: no other template can signal it.
    pub fn is_orphan(&self, pid: u32) -> bool {
        self.workers.iter().flatten().any(|worker| worker.pid == pid && worker.orphan)
    }

    fn position(&self, serial: Serial) -> Option<usize> {
        self.workers.iter().position(|worker| worker.as_ref().is_some_and(|w| w.serial == serial))
    }

    fn worker(&mut self, serial: Serial) -> Option<&mut Worker> {
        self.workers.iter_mut().flatten().find(|worker| worker.serial == serial)
    }

    fn forked(&mut self, index: u32, pid: u32, now: Instant, actions: &mut Vec<Action>) {
        let stopping = self.stopping;
        if let Some(worker) = self.workers.get_mut(index as usize).and_then(Option::as_mut) {
            let (serial, ready) = (worker.serial, worker.ready);
            (worker.pid, worker.state, worker.since, worker.forked) = (pid, State::Booting, now, now);
            if stopping {
                worker.state = State::Doomed(Cause::Ordered);
                worker.killed = true;
                actions.push(Action::Signal { pid, name: "KILL" });
            }
            if ready {
                self.ready(serial, now, actions);
            }
        }
    }

    fn fork_failed(&mut self, index: u32, now: Instant, actions: &mut Vec<Action>) {
        if let Some(worker) = self.workers.get_mut(index as usize).and_then(Option::take) {
            self.died_young(now, actions);
            actions.push(Action::Bury(self.grave(worker, index, None, 0, Cause::Crashed, now)));
        }
    }

    fn ready(&mut self, serial: Serial, now: Instant, actions: &mut Vec<Action>) {
        let Some(worker) = self.worker(serial) else { return };
        worker.ready = true;
        if worker.state != State::Booting {
            return;
        }
        (worker.state, worker.since) = (State::Up, now);
        self.ever_ready = true;
        actions.push(Action::Open(serial));
    }

    fn close(&mut self, serial: Serial, now: Instant, actions: &mut Vec<Action>) {
        let Some(worker) = self.worker(serial) else { return };
        match worker.state {
            State::Up | State::Booting => {
                (worker.state, worker.since) = (State::Draining, now);
                actions.push(Action::Close(serial));
            }
            State::Forking | State::Draining | State::Doomed(_) => {}
        }
    }

    /// A link ends because the worker does, and its end will be reported; if not, the worker is beside itself.
    fn link_lost(&mut self, serial: Serial, now: Instant, actions: &mut Vec<Action>) {
        let Some(index) = self.position(serial) else { return };
        let Some(worker) = self.workers[index].as_mut() else { return };
        if worker.orphan {
            let worker = self.workers[index].take();
            actions.extend(
                worker.map(|w| Action::Bury(self.grave(w, index as u32, None, 0, Cause::Ordered, now))),
            );
        } else if !worker.killed && worker.state != State::Forking {
            worker.killed = true;
            worker.since = now;
            match worker.state {
                State::Draining => worker.state = State::Doomed(Cause::Ordered),
                State::Booting | State::Up => {
                    worker.state = State::Doomed(Cause::Crashed);
                    self.died(index, now, actions);
                }
                State::Forking | State::Doomed(_) => {}
            }
            actions.push(Action::Close(serial));
        }
    }

    fn stuck(&mut self, serial: Serial, now: Instant, actions: &mut Vec<Action>) {
        let Some(index) = self.position(serial) else { return };
        let Some(worker) = self.workers[index].as_mut() else { return };
        if matches!(worker.state, State::Up | State::Draining) {
            (worker.state, worker.since) = (State::Doomed(Cause::Stuck), now);
            let pid = worker.pid;
            self.restarts[index] += 1;
            actions.push(Action::Close(serial));
            actions.push(Action::Signal { pid, name: "PWR" });
        }
    }

    fn exited(&mut self, pid: u32, end: End, peak_kib: u64, now: Instant, actions: &mut Vec<Action>) {
        let dead = self
            .workers
            .iter()
            .position(|w| w.as_ref().is_some_and(|w| w.pid == pid && w.state != State::Forking));
        let Some(index) = dead else { return };
        let cause = match self.workers[index].as_ref().map(|worker| worker.state) {
            Some(State::Doomed(cause)) => cause,
            Some(State::Booting | State::Up) if !self.stopping => {
                self.died(index, now, actions);
                Cause::Crashed
            }
            _ => Cause::Ordered,
        };
        let Some(worker) = self.workers[index].take() else { return };
        actions.push(Action::Bury(self.grave(worker, index as u32, Some(end), peak_kib, cause, now)));
    }

    fn grave(
        &self,
        worker: Worker,
        index: u32,
        end: Option<End>,
        peak_kib: u64,
        cause: Cause,
        now: Instant,
    ) -> Grave {
        let wait = self.not_before.map(|at| at.saturating_duration_since(now)).filter(|wait| !wait.is_zero());
        Grave { serial: worker.serial, index, pid: worker.pid, end, peak_kib, cause, wait }
    }

    /// Counts a death that nobody ordered, when it is first noticed: a replacement must know of it.
    fn died(&mut self, index: usize, now: Instant, actions: &mut Vec<Action>) {
        self.restarts[index] += 1;
        let Some(worker) = &self.workers[index] else { return };
        if now.saturating_duration_since(worker.forked) < YOUNG || !worker.ready {
            self.died_young(now, actions);
        } else {
            (self.young_deaths, self.not_before) = (0, None);
        }
    }

    fn died_young(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.young_deaths += 1;
        if !self.ever_ready && self.young_deaths == HOPELESS {
            actions.push(Action::Hopeless);
        }
        // The first death of one that follows others is an accident; from the second on there is a reason.
        let reasons = self.young_deaths - u32::from(self.ever_ready);
        let wait = if reasons == 0 { Duration::ZERO } else { FIRST_WAIT * (1 << (reasons - 1).min(10)) };
        self.not_before = Some(now + wait.min(LONGEST_WAIT));
    }

    fn template_gone(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.template = false;
        for index in 0..self.workers.len() {
            let Some(worker) = self.workers[index].as_mut() else { continue };
            worker.orphan = true;
            let (serial, state) = (worker.serial, worker.state);
            if state == State::Forking {
                let worker = self.workers[index].take();
                actions.extend(
                    worker.map(|w| Action::Bury(self.grave(w, index as u32, None, 0, Cause::Crashed, now))),
                );
            } else {
                self.close(serial, now, actions);
            }
        }
        if !self.stopping {
            actions.push(Action::StartTemplate);
        }
    }

    fn drain(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.stopping = true;
        for serial in self.serials() {
            self.close(serial, now, actions);
        }
    }

    fn halt(&mut self, actions: &mut Vec<Action>) {
        self.stopping = true;
        for worker in self.workers.iter_mut().flatten().filter(|w| w.state != State::Forking) {
            (worker.state, worker.killed) = (State::Doomed(Cause::Ordered), true);
            actions.push(Action::Signal { pid: worker.pid, name: "KILL" });
        }
    }

    fn serials(&self) -> Vec<Serial> {
        self.workers.iter().flatten().map(|worker| worker.serial).collect()
    }

    fn tick(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let patience = self.patience;
        for worker in
            self.workers.iter_mut().flatten().filter(|w| !w.killed || matches!(w.state, State::Doomed(_)))
        {
            let age = now.saturating_duration_since(worker.since);
            let doom = match worker.state {
                State::Booting if age >= patience.boot => Cause::SlowBoot,
                State::Draining if age >= patience.shutdown => Cause::SlowDrain,
                State::Doomed(cause) if age >= LAST_WORDS => cause,
                _ => continue,
            };
            (worker.state, worker.killed, worker.since) = (State::Doomed(doom), true, now);
            actions.push(Action::Signal { pid: worker.pid, name: "KILL" });
        }
    }

    /// Closes the gap between what is and what should be.
    fn balance(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.stopping {
            if self.workers.iter().all(Option::is_none) {
                actions.push(Action::Empty);
            }
            return;
        }
        let serving = |state| matches!(state, State::Forking | State::Booting | State::Up);
        let mut alive: Vec<Serial> =
            self.workers.iter().flatten().filter(|w| serving(w.state)).map(|w| w.serial).collect();
        while alive.len() > self.wanted {
            // The youngest leaves: it has the coldest caches.
            let Some(serial) = alive.pop() else { break };
            self.close(serial, now, actions);
        }
        let up = self.workers.iter().flatten().filter(|w| w.state == State::Up).count();
        let waiting = self.not_before.is_some_and(|at| at > now);
        if !self.settled && (up >= self.wanted || (up > 0 && waiting)) {
            self.settled = true;
            actions.push(Action::Settled);
        }
        // The very first worker goes alone: what kills it would kill them all.
        let busy = |state| state == State::Forking || (state == State::Booting && !self.ever_ready);
        let busy = self.workers.iter().flatten().any(|worker| busy(worker.state));
        if self.template && !busy && !waiting && alive.len() < self.wanted {
            self.fork(now, actions);
        }
    }

    fn fork(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Some(index) = self.workers.iter().position(Option::is_none) else { return };
        let serial = self.next;
        self.next += 1;
        let state = State::Forking;
        self.workers[index] = Some(Worker {
            serial,
            pid: 0,
            state,
            since: now,
            forked: now,
            ready: false,
            killed: false,
            orphan: false,
        });
        actions.push(Action::Fork { index: index as u32, serial });
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
