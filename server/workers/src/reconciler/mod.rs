//! The reconciler: compares what should exist (the [`Wish`]) with what exists ([`Change`]) and returns the next
//! steps ([`Act`]). It is the only place that decides about templates and workers.
//!
//! Pure: takes changes and the time, and returns acts, which [`crate::supervisor`] carries out. Each rule is a
//! file: `templates`, `workers` and `balance` keep the processes, `reload` moves workers from one generation to
//! another, also for a [`refork`], [`recycle`], [`growth`] and `sizes` change the wish. The states of
//! a worker:
//!
//! ```text
//! Forking ─► Booting ─► Up ─► Draining ─► (gone)
//!               │        ├──► Stuck ──┐
//!               └────────┴──► Ending ◄┘ ─► (gone)
//! ```
//!
//! Contract:
//! 1. One fork is in progress at a time.
//! 2. A worker that was ready is replaced at once when it dies. Workers that fail before they are ready are
//!    replaced with growing delays (`templates`). Until a generation has had a ready worker, it has at most
//!    one worker at a time.
//! 3. Every wait has a limit. A template is ended if it boots for longer than `boot` or does not carry out an
//!    order within 5 s. A worker is killed if it boots for longer than `boot` or drains for longer than
//!    `shutdown`.
//! 4. A worker with a stuck request gets no new requests, is asked for backtraces and is replaced. It is
//!    killed when its other requests have finished, or after `shutdown`.
//! 5. Numbers of code, generations and workers are given here and travel with each act. A template loads the
//!    code that was ordered with it: that of a reload, or the code in force ([`Wish::release`]). Whatever is in force, no template of another
//!    code stays in service.
//! 6. A new generation takes over one worker at a time, or in larger steps: an old worker drains when a new
//!    one is ready. Until then, and if the new generation fails, the old one keeps serving. The workers of a
//!    template that has died also keep serving.
//! 7. A worker that is recycled drains when its successor is ready, like one of an old generation. Until then
//!    it keeps serving.
//! 8. A generation on trial has one worker, which does not count as one of the wanted workers. The trial
//!    never costs another worker, whatever its result.
//! 9. While workers make room for new code in place, at most one worker exists beyond the serving ones,
//!    including those that leave, and only the ordered template is started.
//! 10. Without [`Capabilities::can_replace`] there is never another worker, the end of the template is the end
//!     of the server, and the worker may be asked to stop but is never replaced.
//! 11. Every ordered fork ends in exactly one [`Act::Gone`]. The reconciler returns it when the template has
//!     reported the worker's exit, or when the process has ended and no template is left to report it. The
//!     end of a worker's links is only a hint.
//! 12. The baseline of a shadow is one worker of the old generation beside the wanted ones. It never gets a
//!     request of a client, and it leaves when the shadow ends, however it ends.
//! 13. Each pool has its own number of workers. All pools are forked from one template, and a generation takes
//!     over in all of them.

mod balance;
pub mod growth;
mod messages;
pub mod recycle;
pub mod refork;
mod reload;
mod sizes;
mod templates;
mod workers;

use crate::deaths::{Cause, WorkerExit};
use crate::process::{Generation, ReleaseId, WorkerSignal};
pub use messages::*;
use queue::{PoolIndex, Serial};
use recycle::Recycler;
use refork::Refork;
use reload::Reload;
use sizes::Sizes;
pub use sizes::slots_for;
use stats::WorkerState;
use std::time::{Duration, Instant};
use templates::{GenerationState, Role, Template};
use workers::{State, Worker};

/// The generation of a new reconciler.
pub const FIRST: Generation = 1;
/// The release of a new reconciler.
pub const FIRST_RELEASE: ReleaseId = 1;
/// The number of consecutive boot failures after which a generation that never had a ready worker is given
/// up. Also the number of templates that may die before any worker is ready until the server is given up.
const HOPELESS: u32 = 4;
/// The number of new workers that may die during a takeover before the old generation takes over again. A
/// single death may be an accident.
const DEATHS: u32 = 3;
/// The time that a stuck worker, or one that boots for too long, has to log its backtraces. Also the interval
/// between two KILLs.
const KILL_AFTER: Duration = Duration::from_secs(1);
/// The time limit for a template to carry out an order or to report an exit.
const ORDER_TIMEOUT: Duration = Duration::from_secs(5);
/// The delay before another template is started.
const RETRY: Duration = Duration::from_secs(5);
/// The same delay during start-up, when clients are waiting for the server.
const RETRY_AT_START: Duration = Duration::from_secs(1);
/// A worker that has been suspended for this long, with an idle thread, is replaced. It may still resume.
const ABSENT: Duration = Duration::from_secs(4);
/// The reply to orders about workers and code if the source cannot replace workers.
const NO_SUPERVISION: &str = "the Ruby process that has started this server is its only worker, and loads its code itself: restart that process";

/// The workers by scoreboard slot.
#[derive(Debug)]
struct Slots {
    workers: Vec<Option<Worker>>,
    /// The number of workers that died in each slot.
    restarts: Vec<u32>,
    next: Serial,
}

/// How the server starts, and starts again after the death of its template.
#[derive(Debug)]
struct Start {
    /// When to start another template, while there is none.
    retry: Option<Instant>,
    /// The number of templates that have died before any worker was ready; `None` once a worker was ready.
    lost: Option<u32>,
    settled: bool,
}

/// How a new generation takes over.
#[derive(Debug)]
struct Takeover {
    /// The number of workers of a pool that may exist beyond the wanted ones.
    step: settings::Step,
    /// On a machine that is short of memory, until the new generation has taken over.
    in_place: Option<InPlace>,
}

#[derive(Debug, Clone, Copy)]
struct InPlace {
    /// The number of workers that serve meanwhile.
    serving: usize,
    old: Generation,
    /// Whether the new generation has been ordered.
    ordered: bool,
}

/// The rules that change the wish, or move workers, without an order from outside.
#[derive(Debug)]
struct Rules {
    reload: Reload,
    refork: Refork,
    recycler: Recycler,
    sizes: Sizes,
}

#[derive(Debug)]
pub struct Reconciler {
    source: Capabilities,
    wish: Wish,
    slots: Slots,
    /// The last generation that can serve is the one that takes over.
    generations: Vec<GenerationState>,
    last_generation: Generation,
    start: Start,
    takeover: Takeover,
    rules: Rules,
    now: Instant,
    acts: Vec<Act>,
}

impl Reconciler {
    /// Creates a reconciler without workers, for at most `slots` of them. Generation [`FIRST`] is booting the
    /// code of the wish. `range` limits the number of workers of pool [`PoolIndex::DEFAULT`].
    pub fn new(
        source: Capabilities,
        wish: Wish,
        slots: usize,
        range: settings::Workers,
        now: Instant,
    ) -> Reconciler {
        Reconciler {
            source,
            slots: Slots { workers: vec![None; slots], restarts: vec![0; slots], next: 1 },
            generations: vec![GenerationState::new(FIRST, wish.release, now)],
            last_generation: FIRST,
            start: Start { retry: None, lost: Some(0), settled: false },
            takeover: Takeover { step: settings::Step::Workers(1), in_place: None },
            rules: Rules {
                reload: Reload::new(wish.release, now),
                refork: Refork::new(now),
                recycler: Recycler::new(fastrand::Rng::new()),
                sizes: Sizes::new(range),
            },
            wish,
            now,
            acts: Vec::new(),
        }
    }

    /// Takes a change and returns the acts that follow from it.
    pub fn see(&mut self, seen: Change, now: Instant) -> Vec<Act> {
        self.now = now;
        match seen {
            Change::Template { generation, usable: Ok(()) } => self.template_booted(generation),
            Change::Template { generation, usable: Err(why) } => self.template_failed(generation, &why),
            Change::Warming { generation, text } => self.warming(generation, text),
            Change::Forked { generation, index, pid: Some(pid) } => self.forked(generation, index, pid),
            Change::Forked { generation, index, pid: None } => self.fork_failed(generation, index),
            Change::Ready(serial) => self.ready(serial),
            Change::Health(serial, health) => self.health(serial, health),
            Change::Ended { serial, served, end } => self.worker_ended(serial, served, end),
            Change::Read(release, result) => self.read(release, result),
            Change::Weighed(figures) => self.weighed(&figures),
            Change::Tried(result) => self.tried(result),
            Change::Workers(figures) => self.check_limits(&figures),
            Change::Load(sample, least_missed) => self.check_size(*sample, least_missed),
            Change::Tick => self.tick(),
        }
        self.settle_all()
    }

    /// Lets all workers finish their requests and starts no more.
    pub fn drain(&mut self, now: Instant) -> Vec<Act> {
        self.now = now;
        self.stop();
        self.serials().into_iter().for_each(|serial| self.close(serial));
        self.settle_all()
    }

    /// Kills all workers and starts no more.
    pub fn halt(&mut self, now: Instant) -> Vec<Act> {
        self.now = now;
        self.stop();
        for index in 0..self.slots.workers.len() {
            if self.slots.workers[index].as_ref().is_some_and(|w| w.state != State::Forking) {
                self.kill(index, Cause::Ordered);
            }
        }
        self.settle_all()
    }

    /// Applies all rules until none has anything to do, and returns the acts.
    fn settle_all(&mut self) -> Vec<Act> {
        self.balance();
        self.observe_reload();
        self.end_outdated();
        std::mem::take(&mut self.acts)
    }

    fn stop(&mut self) {
        (self.wish.phase, self.start.retry) = (Phase::Stopping, None);
        self.stop_reload();
    }

    fn is_stopping(&self) -> bool {
        self.wish.phase == Phase::Stopping
    }

    fn log(&mut self, text: String) {
        self.acts.push(Act::Log(text));
    }

    fn reached(&mut self, milestone: Milestone) {
        self.acts.push(Act::Reached(milestone));
    }

    pub fn source(&self) -> Capabilities {
        self.source
    }

    pub fn wish(&self) -> &Wish {
        &self.wish
    }

    /// Sets the limits that the settings in force have.
    pub fn set_limits(
        &mut self,
        limits: recycle::Limits,
        refork_after: Option<u64>,
        worker: Option<Duration>,
    ) {
        (self.wish.limits, self.wish.refork_after) = (limits, refork_after);
        self.wish.timeouts.worker = worker;
    }

    /// Returns the wanted number of workers of all pools.
    pub fn wanted(&self) -> usize {
        self.wish.counts.values().sum()
    }

    /// Returns the largest possible number of workers.
    pub fn slots(&self) -> usize {
        self.slots.workers.len()
    }

    /// Returns whether the wanted number of workers take requests, and none is being replaced by one of
    /// another generation.
    pub fn is_complete(&self) -> bool {
        let newest = self.newest_number();
        let settled = |worker: &Worker| match worker.state {
            State::Up => worker.generation == newest,
            State::Forking | State::Booting { .. } => false,
            State::Draining | State::Stuck { .. } | State::Ending(_) => true,
        };
        let exactly = |(pool, count): (&PoolIndex, &usize)| self.up(*pool) == *count;
        !self.is_stopping() && self.workers().all(settled) && self.wish.counts.iter().all(exactly)
    }

    /// Returns whether the wanted number of workers take requests, even if they are being replaced.
    pub fn is_staffed(&self) -> bool {
        let enough = |(pool, count): (&PoolIndex, &usize)| self.up(*pool) >= *count;
        !self.is_stopping() && self.wish.counts.iter().all(enough)
    }

    /// Returns whether all workers are up and no act is due soon.
    pub fn is_calm(&self) -> bool {
        let calm = |worker: &Worker| worker.state == State::Up && worker.signs.suspended.is_none();
        self.start.retry.is_none() && self.workers().count() == self.wanted() && self.workers().all(calm)
    }

    fn up(&self, pool: PoolIndex) -> usize {
        let up = |worker: &&Worker| worker.pool == pool && worker.state == State::Up && !worker.baseline;
        self.workers().filter(up).count()
    }

    /// Returns all workers that have been forked.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.slots.workers.iter().enumerate().filter_map(|(index, worker)| {
            let worker = worker.as_ref().filter(|w| w.state != State::Forking)?;
            let state = match worker.state {
                State::Forking | State::Booting { .. } => WorkerState::Booting,
                State::Up => WorkerState::Ready,
                State::Draining | State::Stuck { .. } | State::Ending(_) => WorkerState::Draining,
            };
            let Worker { serial, pool, generation, pid, forked, .. } = *worker;
            let (index, restarts) = (index as u32, self.slots.restarts[index]);
            Some(Row { index, serial, pool, generation, pid, state, forked, restarts })
        })
    }

    /// Returns the worker in a slot of the scoreboard.
    pub fn serial_in(&self, index: u32) -> Option<Serial> {
        self.slots.workers.get(index as usize)?.as_ref().map(|worker| worker.serial)
    }

    /// Returns the scoreboard slot of a worker.
    pub fn index_of(&self, serial: Serial) -> Option<u32> {
        self.position(serial).map(|index| index as u32)
    }

    /// Returns the template through which a worker can be signalled; `None` for an orphan.
    pub fn signal_by(&self, serial: Serial) -> Option<Generation> {
        let of = |w: &&Worker| w.serial == serial && !self.is_orphan(w);
        self.workers().find(of).map(|worker| worker.generation)
    }

    /// Returns the generation that serves, or would serve if it had workers.
    pub fn serving(&self) -> Option<Generation> {
        let up = || self.workers().filter(|w| w.state == State::Up).map(|w| w.generation).max();
        self.newest().map(|generation| generation.number).or_else(up)
    }

    /// Returns the code of a generation, as long as its template or one of its workers exists.
    pub fn release_of(&self, number: Generation) -> Option<ReleaseId> {
        self.generations.iter().find(|generation| generation.number == number).map(|one| one.release)
    }

    fn workers(&self) -> impl Iterator<Item = &Worker> {
        self.slots.workers.iter().flatten()
    }

    fn workers_of(&self, number: Generation) -> impl Iterator<Item = &Worker> {
        self.workers().filter(move |worker| worker.generation == number)
    }

    fn serials(&self) -> Vec<Serial> {
        self.workers().map(|worker| worker.serial).collect()
    }

    fn position(&self, serial: Serial) -> Option<usize> {
        self.slots.workers.iter().position(|worker| worker.as_ref().is_some_and(|w| w.serial == serial))
    }

    fn worker(&mut self, serial: Serial) -> Option<&mut Worker> {
        self.slots.workers.iter_mut().flatten().find(|worker| worker.serial == serial)
    }

    fn generation(&mut self, number: Generation) -> Option<&mut GenerationState> {
        self.generations.iter_mut().find(|generation| generation.number == number)
    }
}

#[cfg(test)]
mod in_place_tests;
#[cfg(test)]
mod reload_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
