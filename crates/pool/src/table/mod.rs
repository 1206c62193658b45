//! The process table: knows which templates and workers exist and how many should exist, and decides how to
//! close the gap.
//!
//! Pure: takes events and the time, and returns actions, which [`crate::supervisor`] carries out. The states
//! of a worker:
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
//!    replaced with growing delays ([`generation`]). Until a generation has had a ready worker, it has at
//!    most one worker at a time.
//! 3. Every wait has a limit. A template is ended if it boots for longer than `boot` or does not carry out an
//!    order within 5 s. A worker is killed if it boots for longer than `boot` or drains for longer than
//!    `shutdown`.
//! 4. A worker with a stuck request gets no new requests, is asked for backtraces and is replaced. It is
//!    killed when its other requests have finished, or after `shutdown`.
//! 5. Each generation has the code that was ordered with it: that of a [trial](Event::TrialGeneration), or
//!    the code [in force](Event::InForce). Its number is known only when it begins.
//! 6. A new generation takes over one worker at a time, or in larger [steps](Event::Step): an old worker
//!    drains when a new one is ready. Until then, and if the new generation fails, the old one keeps serving.
//!    The workers of a template that has died also keep serving.
//! 7. A worker that is recycled drains when its successor is ready, like one of an old generation. Until then
//!    it keeps serving.
//! 8. A generation on trial has one worker, which does not count as one of the wanted workers. The trial
//!    never costs another worker, whatever its result.
//! 9. In place, with fewer workers ([`Event::Vacate`]), at most one worker exists beyond the serving ones,
//!    including those that leave. Only the ordered template is started.
//! 10. A promoted worker leaves a template behind when its successor takes its place. The template belongs to
//!     a new generation, which is on trial.
//! 11. Attached ([`Table::attached`]): the process that has started the front is both template and worker.
//!     There is never another worker, the end of that process is the end of the server, and the process may
//!     be asked to stop but is never replaced.
//! 12. [`Action::Gone`] is reported exactly once for every worker whose fork was ordered: when its template
//!     has reported its exit, or when its process [has ended](Event::Ended) and no template is left to report
//!     it. The end of a worker's links is only a hint.

mod event;
mod generation;

use crate::dispatch::Serial;
use crate::spawner::ExitStatus;
pub use event::*;
use generation::{GenerationState, Role, Template};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Forking,
    Booting,
    Up,
    Draining,
    /// A request is stuck; the others may finish.
    Stuck {
        others_finished: bool,
    },
    /// The worker is exiting or is being killed.
    Ending(Cause),
}

#[derive(Debug, Clone)]
struct Worker {
    serial: Serial,
    generation: Generation,
    pid: u32,
    state: State,
    /// When the state began. In [`State::Ending`]: the time of the last KILL.
    since: Instant,
    forked: Instant,
    /// When the worker reported that it is ready. That can precede the report of its fork, because the two
    /// messages use different sockets.
    ready: Option<Instant>,
    /// Since when the worker has had an idle thread without taking up requests.
    suspended: Option<Instant>,
    link_lost: Option<Instant>,
    /// When the end of its process was noticed.
    ended: Option<Instant>,
    /// Set once the worker has been asked for backtraces, because it has almost used up its time to boot.
    asked: bool,
    /// Set once the worker has been sent KILL.
    killed: bool,
    /// Set while the worker serves until its successor is ready.
    retiring: bool,
    /// Whether the worker leaves a template behind when its successor is ready.
    promoted: bool,
    /// Its template has exited and so cannot report the worker's exit.
    orphan: bool,
}

impl Worker {
    /// Returns whether a worker of generation `newest` should replace this one.
    fn is_outdated(&self, newest: Generation) -> bool {
        self.generation != newest || self.retiring
    }

    /// Returns whether the worker counts as one of the wanted workers.
    fn counts(&self, now: Instant) -> bool {
        let absent = self.suspended.is_some_and(|since| now.saturating_duration_since(since) >= ABSENT);
        matches!(self.state, State::Forking | State::Booting) || (self.state == State::Up && !absent)
    }
}

/// A takeover on a machine that is short of memory.
#[derive(Debug, Clone, Copy)]
struct InPlace {
    /// The number of workers that serve meanwhile.
    serving: usize,
    old: Generation,
    /// Whether the new generation has been ordered.
    ordered: bool,
}

#[derive(Debug)]
pub struct Table {
    workers: Vec<Option<Worker>>,
    restarts: Vec<u32>,
    /// The last generation that can serve is the one that takes over.
    generations: Vec<GenerationState>,
    last_generation: Generation,
    /// The code of the next template, unless that is on trial.
    in_force: Code,
    /// When to start another template, while there is none.
    retry: Option<Instant>,
    /// The number of templates that have died before any worker was ready; `None` once a worker was ready.
    lost_at_start: Option<u32>,
    wanted: usize,
    /// The number of workers that may exist beyond the wanted ones during a takeover.
    step: usize,
    /// A reload in place, until the new generation has taken over.
    in_place: Option<InPlace>,
    timeouts: Timeouts,
    next: Serial,
    stopping: bool,
    settled: bool,
    attached: bool,
}

/// The generation of a new table.
pub const FIRST: Generation = 1;
/// The code of a new table.
pub const FIRST_CODE: Code = 1;
/// The number of consecutive boot failures after which a generation that never had a ready worker is given
/// up. Also the number of templates that may die before any worker is ready until the server is given up.
const HOPELESS: u32 = 4;
/// The time that a stuck worker, or one that boots for too long, has to log its backtraces. Also the interval
/// between two KILLs.
const KILL_AFTER: Duration = Duration::from_secs(1);
/// The time limit for a template to carry out an order or to report an exit.
pub(crate) const ORDER_TIMEOUT: Duration = Duration::from_secs(5);
/// The delay before another template is started.
const RETRY: Duration = Duration::from_secs(5);
/// The same delay during start-up, when clients are waiting for the server.
const RETRY_AT_START: Duration = Duration::from_secs(1);
/// A worker that has been suspended for this long, with an idle thread, is replaced. It may still resume.
const ABSENT: Duration = Duration::from_secs(4);

impl Table {
    /// Creates a table with no workers yet and `wanted` to come, in at most `slots` slots. Generation
    /// [`FIRST`] is booting.
    pub fn new(wanted: usize, slots: usize, timeouts: Timeouts, now: Instant) -> Table {
        Table {
            workers: vec![None; slots],
            restarts: vec![0; slots],
            generations: vec![GenerationState::new(FIRST, FIRST_CODE, now)],
            last_generation: FIRST,
            in_force: FIRST_CODE,
            retry: None,
            lost_at_start: Some(0),
            wanted: wanted.min(slots),
            step: 1,
            in_place: None,
            timeouts,
            next: 1,
            stopping: false,
            settled: false,
            attached: false,
        }
    }

    /// Creates the table of a front whose only worker is the process that has started it.
    pub fn attached(timeouts: Timeouts, now: Instant) -> Table {
        Table { attached: true, ..Table::new(1, 1, timeouts, now) }
    }

    /// Handles `event` and returns the actions to carry out.
    pub fn on(&mut self, event: Event, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.attached && event.replaces_a_worker() {
            return actions;
        }
        match event {
            Event::NewGeneration => self.start_generation(now, &mut actions),
            Event::TrialGeneration(code) => self.start_trial(code, now, &mut actions),
            Event::InForce(code) => self.in_force = code,
            Event::OpenTrial(generation) => self.open_trial(generation, &mut actions),
            Event::Vacate(serving) => self.vacate(serving),
            Event::Reoccupy => self.reoccupy(now, &mut actions),
            Event::RetireTemplates => self.retire_templates(now, &mut actions),
            Event::Step(step) => self.step = step.max(1),
            Event::Roll(generation) => self.roll(generation, &mut actions),
            Event::Abandon(generation) => self.abandon(generation, now, &mut actions),
            Event::Keep(generation) => self.keep(generation),
            Event::Spare(generation) => self.spare(generation),
            Event::TemplateBooted(generation) => self.template_booted(generation),
            Event::TemplateFailed(generation) | Event::TemplateGone(generation) => {
                self.template_gone(generation, now, &mut actions);
            }
            Event::Forked { generation, index, pid } => {
                self.forked(generation, index, pid, now, &mut actions);
            }
            Event::ForkFailed { generation, index } => self.fork_failed(generation, index, now, &mut actions),
            Event::Ready(serial) => self.ready(serial, now, &mut actions),
            Event::Stopping(serial) => self.close(serial, now, &mut actions),
            Event::LinkLost { serial, served } => self.link_lost(serial, served, now, &mut actions),
            Event::Ended { serial, served } => self.ended(serial, served, now, &mut actions),
            Event::Suspended { serial, idle_thread } => self.suspended(serial, idle_thread.then_some(now)),
            Event::Resumed(serial) => self.suspended(serial, None),
            Event::Frozen(serial) => self.kill_worker(serial, Cause::Frozen, now, &mut actions),
            Event::Recycle(serial) => self.recycle(serial),
            Event::Promote(serial) => {
                self.recycle(serial);
                self.set_promoted(serial, true);
            }
            Event::Demote(serial) => self.set_promoted(serial, false),
            Event::Kill(serial) => self.kill_worker(serial, Cause::Ordered, now, &mut actions),
            Event::Stuck(serial) => self.stuck(serial, now, &mut actions),
            Event::OthersFinished(serial) => self.others_finished(serial),
            Event::Exited { generation, pid, status, peak_kib, served } => {
                self.exited(generation, pid, (status, peak_kib), served, now, &mut actions);
            }
            Event::More => self.wanted = (self.wanted + 1).min(self.workers.len()),
            Event::Fewer => self.wanted = self.wanted.saturating_sub(1).max(1),
            Event::Retire(serial) => self.retire(serial, now, &mut actions),
            Event::Want(number) => self.wanted = number.clamp(1, self.workers.len()),
            Event::Drain => self.drain(now, &mut actions),
            Event::Halt => self.halt(now, &mut actions),
            Event::Tick => self.tick(now, &mut actions),
        }
        self.balance(now, &mut actions);
        actions
    }

    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// Returns the largest possible number of workers.
    pub fn slots(&self) -> usize {
        self.workers.len()
    }

    /// Returns whether the wanted number of workers take requests, and none is being replaced by one of
    /// another generation.
    pub fn is_complete(&self) -> bool {
        let newest = self.newest().map_or(0, |generation| generation.number);
        let mut up = 0;
        for worker in self.workers.iter().flatten() {
            match worker.state {
                State::Up if worker.generation != newest => return false,
                State::Up => up += 1,
                State::Forking | State::Booting => return false,
                State::Draining | State::Stuck { .. } | State::Ending(_) => {}
            }
        }
        !self.stopping && up == self.wanted
    }

    /// Returns whether the wanted number of workers take requests, even if they are being replaced.
    pub fn is_staffed(&self) -> bool {
        let up = self.workers.iter().flatten().filter(|worker| worker.state == State::Up).count();
        !self.stopping && up >= self.wanted
    }

    /// Returns all workers that have been forked.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.workers.iter().enumerate().filter_map(|(index, worker)| {
            let worker = worker.as_ref().filter(|w| w.state != State::Forking)?;
            let stage = match worker.state {
                State::Forking | State::Booting => Stage::Booting,
                State::Up => Stage::Up,
                State::Draining | State::Stuck { .. } | State::Ending(_) => Stage::Leaving,
            };
            Some(Row {
                index: index as u32,
                serial: worker.serial,
                generation: worker.generation,
                pid: worker.pid,
                stage,
                forked: worker.forked,
                restarts: self.restarts[index],
            })
        })
    }

    /// Returns the generation that serves, or would serve if it had workers.
    pub fn serving(&self) -> Option<Generation> {
        let newest = self.newest().map(|generation| generation.number);
        newest.or_else(|| {
            self.workers.iter().flatten().filter(|w| w.state == State::Up).map(|w| w.generation).max()
        })
    }

    /// Returns the number of the newest generation that was started.
    pub fn last_generation(&self) -> Generation {
        self.last_generation
    }

    /// Returns the code that replacement templates load.
    pub fn in_force(&self) -> Code {
        self.in_force
    }

    /// Returns the code of a generation, as long as its template or one of its workers exists.
    pub fn code_of(&self, number: Generation) -> Option<Code> {
        self.generations.iter().find(|generation| generation.number == number).map(|one| one.code)
    }

    /// Returns the worker in a slot of the scoreboard.
    pub fn serial_in(&self, index: u32) -> Option<Serial> {
        self.workers.get(index as usize)?.as_ref().map(|worker| worker.serial)
    }

    /// Returns the state of a generation.
    pub fn census(&self, number: Generation) -> Census {
        let workers = || self.workers.iter().flatten().filter(|worker| worker.generation == number);
        let staying = |w: &&Worker| matches!(w.state, State::Forking | State::Booting | State::Up);
        let template = self.generations.iter().find(|generation| generation.number == number);
        Census {
            template: match template.map(|generation| generation.template) {
                Some(Template::Booting { .. }) => TemplateStage::Booting,
                Some(Template::Up) => TemplateStage::Up,
                Some(Template::Gone) | None => TemplateStage::Gone,
            },
            ready: workers().filter(|worker| worker.state == State::Up).count(),
            staying: workers().filter(staying).count(),
            all: workers().count(),
        }
    }

    /// Returns the number of ready workers of other generations than `number`, not counting those on trial.
    pub fn others_ready(&self, number: Generation) -> usize {
        let serves =
            |w: &&Worker| w.state == State::Up && w.generation != number && self.is_in_service(w.generation);
        self.workers.iter().flatten().filter(serves).count()
    }

    /// Returns the scoreboard slot of a worker.
    pub fn index_of(&self, serial: Serial) -> Option<u32> {
        self.position(serial).map(|index| index as u32)
    }

    /// Returns whether all workers are up and no action is due soon.
    pub fn is_calm(&self) -> bool {
        let calm = |worker: &Worker| worker.state == State::Up && worker.suspended.is_none();
        let workers = || self.workers.iter().flatten();
        self.retry.is_none() && workers().count() == self.wanted && workers().all(calm)
    }

    /// Returns the template through which a worker can be signalled; `None` for an orphan.
    pub fn signal_by(&self, pid: u32) -> Option<Generation> {
        self.workers.iter().flatten().find(|w| w.pid == pid && !w.orphan).map(|w| w.generation)
    }

    fn position(&self, serial: Serial) -> Option<usize> {
        self.workers.iter().position(|worker| worker.as_ref().is_some_and(|w| w.serial == serial))
    }

    fn worker(&mut self, serial: Serial) -> Option<&mut Worker> {
        self.workers.iter_mut().flatten().find(|worker| worker.serial == serial)
    }

    fn generation(&mut self, number: Generation) -> Option<&mut GenerationState> {
        self.generations.iter_mut().find(|generation| generation.number == number)
    }

    // Templates.

    fn start_generation(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let booting =
            |g: &GenerationState| g.role == Role::Service && matches!(g.template, Template::Booting { .. });
        if self.stopping || self.generations.iter().any(booting) {
            return;
        }
        self.retry = None;
        self.begin(Role::Service, self.in_force, now, actions);
    }

    fn begin(&mut self, role: Role, code: Code, now: Instant, actions: &mut Vec<Action>) {
        let generation = self.next_generation(role, code, now);
        if let Some(place) = &mut self.in_place {
            place.ordered = true;
        }
        actions.push(Action::StartTemplate { generation, code });
    }

    fn next_generation(&mut self, role: Role, code: Code, now: Instant) -> Generation {
        self.last_generation += 1;
        let mut generation = GenerationState::new(self.last_generation, code, now);
        generation.role = role;
        self.generations.push(generation);
        self.last_generation
    }

    fn start_trial(&mut self, code: Code, now: Instant, actions: &mut Vec<Action>) {
        let on_trial = |generation: &GenerationState| matches!(generation.role, Role::Trial { .. });
        if self.stopping || self.generations.iter().any(on_trial) {
            return;
        }
        self.begin(Role::Trial { open: false }, code, now, actions);
    }

    fn open_trial(&mut self, number: Generation, actions: &mut Vec<Action>) {
        let Some(generation) = self.generation(number) else { return };
        if generation.role == (Role::Trial { open: false }) {
            generation.role = Role::Trial { open: true };
            self.open_all(number, Action::OpenTrial, actions);
        }
    }

    fn open_all(&self, number: Generation, open: impl Fn(Serial) -> Action, actions: &mut Vec<Action>) {
        let up = |w: &&Worker| w.generation == number && w.state == State::Up;
        actions.extend(self.workers.iter().flatten().filter(up).map(|worker| open(worker.serial)));
    }

    fn roll(&mut self, number: Generation, actions: &mut Vec<Action>) {
        let Some(at) = self.generations.iter().position(|g| g.number == number) else { return };
        if self.stopping || self.generations[at].role == Role::Abandoned {
            return;
        }
        let mut generation = self.generations.remove(at);
        let on_trial = matches!(generation.role, Role::Trial { .. });
        (generation.role, generation.kept) = (Role::Service, false);
        self.generations.push(generation);
        if on_trial {
            self.open_all(number, Action::Open, actions);
        }
    }

    fn abandon(&mut self, number: Generation, now: Instant, actions: &mut Vec<Action>) {
        let Some(generation) = self.generation(number) else { return };
        if !matches!(generation.role, Role::Trial { .. } | Role::Spare) {
            return;
        }
        generation.role = Role::Abandoned;
        if matches!(generation.template, Template::Booting { .. }) {
            self.end_template(number, TemplateEnd::Abandoned, now, actions);
        }
        let of = |w: &&Worker| w.generation == number;
        let serials: Vec<Serial> = self.workers.iter().flatten().filter(of).map(|w| w.serial).collect();
        serials.into_iter().for_each(|serial| self.close(serial, now, actions));
    }

    fn vacate(&mut self, serving: usize) {
        self.in_place = self.serving().map(|old| InPlace { serving, old, ordered: false });
    }

    /// Cancels a reload in place. Its templates may have died meanwhile.
    fn reoccupy(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.in_place = None;
        if !self.has_template() {
            self.start_generation(now, actions);
        }
    }

    /// Returns whether a template in service exists or is booting.
    fn has_template(&self) -> bool {
        self.generations.iter().any(|g| g.role == Role::Service && g.template != Template::Gone)
    }

    /// Ends the templates in service. There is more than one if a template had died and its successor is
    /// booting.
    fn retire_templates(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.retry = None;
        let serves = |g: &&GenerationState| g.role == Role::Service && g.template != Template::Gone;
        let numbers: Vec<(Generation, bool)> =
            self.generations.iter().filter(serves).map(|g| (g.number, g.template == Template::Up)).collect();
        for (generation, up) in numbers {
            let why = if up { TemplateEnd::Replaced } else { TemplateEnd::Abandoned };
            actions.push(Action::EndTemplate { generation, why });
            self.orphan_workers(generation, now, actions);
        }
    }

    fn keep(&mut self, number: Generation) {
        if let Some(generation) = self.generation(number) {
            generation.kept = true;
        }
    }

    fn spare(&mut self, number: Generation) {
        if let Some(generation) = self.generation(number).filter(|generation| generation.kept) {
            generation.role = Role::Spare;
        }
    }

    fn is_in_service(&self, number: Generation) -> bool {
        // Generations that were removed from the list have no workers.
        self.generations.iter().any(|g| g.number == number && g.role == Role::Service)
    }

    fn template_booted(&mut self, number: Generation) {
        if let Some(generation) =
            self.generation(number).filter(|g| matches!(g.template, Template::Booting { .. }))
        {
            generation.template = Template::Up;
        }
    }

    fn end_template(
        &mut self,
        number: Generation,
        why: TemplateEnd,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        actions.push(Action::EndTemplate { generation: number, why });
        self.template_gone(number, now, actions);
    }

    /// Handles the end of a template. Its workers keep serving as orphans until another generation has taken
    /// over.
    fn template_gone(&mut self, number: Generation, now: Instant, actions: &mut Vec<Action>) {
        let Some(generation) = self.generation(number).filter(|g| g.template != Template::Gone) else {
            return;
        };
        let (proven, in_trial) = (generation.proven, generation.role != Role::Service);
        if self.attached {
            return self.detached(number, now, actions);
        }
        self.orphan_workers(number, now, actions);
        if in_trial || self.has_template() {
            return;
        }
        if self.in_place.is_some_and(|place| !place.ordered) {
            // Memory has room for one template, which is the next one.
            return;
        }
        // A template that never produced a ready worker is not retried at once.
        if let Some(lost) = &mut self.lost_at_start {
            *lost += 1;
            let hopeless = *lost >= HOPELESS;
            self.retry = Some(now + if hopeless { RETRY } else { RETRY_AT_START });
            if *lost == HOPELESS && !self.stopping {
                actions.push(Action::Hopeless(Hopeless::Templates));
            }
        } else if proven {
            self.start_generation(now, actions);
        } else {
            self.retry = Some(now + RETRY);
        }
    }

    /// Ends the server, because the attached process has exited or is about to.
    fn detached(&mut self, number: Generation, now: Instant, actions: &mut Vec<Action>) {
        if let Some(generation) = self.generation(number) {
            generation.template = Template::Gone;
        }
        for index in 0..self.workers.len() {
            let Some(worker) = &self.workers[index] else { continue };
            actions.push(Action::Close(worker.serial));
            self.gone(index, None, Cause::Ordered, now, actions);
        }
        self.stop();
    }

    fn orphan_workers(&mut self, number: Generation, now: Instant, actions: &mut Vec<Action>) {
        if let Some(generation) = self.generation(number) {
            generation.template = Template::Gone;
        }
        for index in 0..self.workers.len() {
            let Some(worker) = self.workers[index].as_mut().filter(|w| w.generation == number) else {
                continue;
            };
            worker.orphan = true;
            let cause = match worker.state {
                State::Forking => Cause::Crashed,
                State::Ending(cause) => cause,
                _ => Cause::Ordered,
            };
            if worker.state == State::Forking || worker.ended.is_some() {
                self.gone(index, None, cause, now, actions);
            }
        }
    }

    // Workers: start.

    fn forked(&mut self, by: Generation, index: u32, pid: u32, now: Instant, actions: &mut Vec<Action>) {
        let stopping =
            self.stopping || self.generations.iter().any(|g| g.number == by && g.role == Role::Abandoned);
        let Some(worker) = self.workers.get_mut(index as usize).and_then(Option::as_mut) else { return };
        if worker.generation != by || worker.state != State::Forking {
            return;
        }
        let (serial, ready, link_lost) = (worker.serial, worker.ready, worker.link_lost.take());
        (worker.pid, worker.state, worker.since, worker.forked) = (pid, State::Booting, now, now);
        if stopping {
            self.kill(index as usize, Cause::Ordered, now, actions);
        } else if ready.is_some() {
            self.ready(serial, now, actions);
        }
        if link_lost.is_some() {
            self.link_lost(serial, false, now, actions);
        }
    }

    fn fork_failed(&mut self, by: Generation, index: u32, now: Instant, actions: &mut Vec<Action>) {
        let index = index as usize;
        let forking = |w: &Worker| w.generation == by && w.state == State::Forking;
        if self.workers.get(index).and_then(Option::as_ref).is_some_and(forking) {
            self.count_death(index, false, now, actions);
            self.gone(index, None, Cause::Crashed, now, actions);
        }
    }

    fn ready(&mut self, serial: Serial, now: Instant, actions: &mut Vec<Action>) {
        let Some(worker) = self.worker(serial) else { return };
        worker.ready = Some(now);
        if worker.state != State::Booting {
            return;
        }
        (worker.state, worker.since) = (State::Up, now);
        let generation = worker.generation;
        self.lost_at_start = None;
        let Some(generation) = self.generation(generation) else { return };
        generation.worker_ready();
        match generation.role {
            Role::Service => actions.push(Action::Open(serial)),
            Role::Trial { open: true } => actions.push(Action::OpenTrial(serial)),
            Role::Trial { open: false } | Role::Spare | Role::Abandoned => {}
        }
    }

    // Workers: end.

    fn close(&mut self, serial: Serial, now: Instant, actions: &mut Vec<Action>) {
        let Some(worker) = self.worker(serial) else { return };
        if matches!(worker.state, State::Up | State::Booting) {
            (worker.state, worker.since) = (State::Draining, now);
            actions.push(Action::Close(serial));
        }
    }

    /// Handles the end of a link: the worker is exiting or broken. It gets no more requests, and is killed if
    /// it does not exit.
    fn link_lost(&mut self, serial: Serial, served: bool, now: Instant, actions: &mut Vec<Action>) {
        let Some(index) = self.position(serial) else { return };
        let Some(worker) = self.workers[index].as_mut() else { return };
        if worker.link_lost.is_some() {
            return;
        }
        worker.link_lost = Some(now);
        if worker.state == State::Forking {
            // The report of the fork is still to come.
            return;
        }
        let state = worker.state;
        let cause = match state {
            State::Forking | State::Booting | State::Up => Cause::Crashed,
            State::Draining => Cause::Ordered,
            State::Stuck { .. } => Cause::Stuck,
            State::Ending(cause) => cause,
        };
        if !matches!(state, State::Ending(_)) {
            self.set_ending(index, cause, now);
            actions.push(Action::Close(serial));
        }
        if cause == Cause::Crashed && !self.stopping {
            self.count_death(index, served, now, actions);
        }
    }

    /// Handles the end of a worker's process. A worker with a template is gone only when the template has
    /// reported its exit. If the template does not report in time, it is broken.
    fn ended(&mut self, serial: Serial, served: bool, now: Instant, actions: &mut Vec<Action>) {
        let Some(index) = self.position(serial) else { return };
        let Some(worker) = self.workers[index].as_mut().filter(|worker| worker.state != State::Forking)
        else {
            return;
        };
        worker.ended.get_or_insert(now);
        let (generation, orphan) = (worker.generation, worker.orphan);
        if self.attached {
            return self.detached(generation, now, actions);
        }
        self.link_lost(serial, served, now, actions);
        if let Some(State::Ending(cause)) = self.workers[index].as_ref().map(|worker| worker.state)
            && orphan
        {
            self.gone(index, None, cause, now, actions);
        }
    }

    fn suspended(&mut self, serial: Serial, since: Option<Instant>) {
        if let Some(worker) = self.worker(serial) {
            worker.suspended = since;
        }
    }

    fn recycle(&mut self, serial: Serial) {
        if let Some(worker) = self.worker(serial).filter(|worker| worker.state == State::Up) {
            worker.retiring = true;
        }
    }

    fn retire(&mut self, serial: Serial, now: Instant, actions: &mut Vec<Action>) {
        let up = |worker: &&mut Worker| worker.state == State::Up;
        if self.wanted > 1 && self.worker(serial).filter(up).is_some() {
            self.wanted -= 1;
            self.close(serial, now, actions);
        }
    }

    fn set_promoted(&mut self, serial: Serial, promoted: bool) {
        if let Some(worker) = self.worker(serial).filter(|worker| worker.state == State::Up) {
            worker.promoted = promoted;
        }
    }

    /// Makes room for a worker's successor. A promoted worker becomes the template of a new generation on
    /// trial.
    fn leave(&mut self, serial: Serial, now: Instant, actions: &mut Vec<Action>) {
        let promoted = self.worker(serial).is_some_and(|worker| worker.promoted && worker.state == State::Up);
        if promoted && !self.generations.iter().any(|g| matches!(g.role, Role::Trial { .. })) {
            let by = self.worker(serial).map(|worker| worker.generation).unwrap_or_default();
            let code = self.code_of(by).unwrap_or(self.in_force);
            // The worker finishes its requests first.
            let begins = now + self.timeouts.shutdown;
            let generation = self.next_generation(Role::Trial { open: false }, code, begins);
            actions.push(Action::Promote { serial, generation });
        }
        self.close(serial, now, actions);
    }

    fn kill_worker(&mut self, serial: Serial, cause: Cause, now: Instant, actions: &mut Vec<Action>) {
        let Some(index) = self.position(serial) else { return };
        let live = |w: &Worker| matches!(w.state, State::Up | State::Draining | State::Stuck { .. });
        if self.workers[index].as_ref().is_some_and(live) {
            self.restarts[index] += 1;
            actions.push(Action::Close(serial));
            self.kill(index, cause, now, actions);
        }
    }

    fn stuck(&mut self, serial: Serial, now: Instant, actions: &mut Vec<Action>) {
        let Some(index) = self.position(serial) else { return };
        let Some(worker) = self.workers[index].as_mut() else { return };
        if matches!(worker.state, State::Up | State::Draining) {
            (worker.state, worker.since) = (State::Stuck { others_finished: false }, now);
            let signal = signal(worker, "PWR");
            self.restarts[index] += 1;
            actions.push(Action::Close(serial));
            actions.push(signal);
        }
    }

    fn others_finished(&mut self, serial: Serial) {
        if let Some(worker) = self.worker(serial)
            && matches!(worker.state, State::Stuck { .. })
        {
            worker.state = State::Stuck { others_finished: true };
        }
    }

    fn exited(
        &mut self,
        by: Generation,
        pid: u32,
        status: (ExitStatus, u64),
        served: bool,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let is_it = |w: &Worker| w.generation == by && w.pid == pid && w.state != State::Forking;
        let found = self.workers.iter().position(|worker| worker.as_ref().is_some_and(is_it));
        let Some(index) = found else { return };
        let cause = match self.workers[index].as_ref().map(|worker| worker.state) {
            Some(State::Ending(cause)) => cause,
            Some(State::Stuck { .. }) => Cause::Stuck,
            Some(State::Booting | State::Up) if !self.stopping => {
                self.count_death(index, served, now, actions);
                Cause::Crashed
            }
            _ => Cause::Ordered,
        };
        self.gone(index, Some(status), cause, now, actions);
    }

    fn gone(
        &mut self,
        index: usize,
        status: Option<(ExitStatus, u64)>,
        cause: Cause,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let Some(worker) = self.workers[index].take() else { return };
        let (status, peak_kib) = status.map_or((None, 0), |(status, peak)| (Some(status), peak));
        let wait = self.generation(worker.generation).and_then(|generation| generation.wait(now));
        let Worker { serial, pid, generation, forked, killed, .. } = worker;
        let index = index as u32;
        actions.push(Action::Gone(WorkerExit {
            serial,
            index,
            generation,
            pid,
            forked,
            killed,
            status,
            peak_kib,
            cause,
            wait,
        }));
        if self.attached {
            self.stop();
        }
    }

    /// Counts an unexpected death when it is first noticed, because the delay of the next fork depends on it.
    fn count_death(&mut self, index: usize, served: bool, now: Instant, actions: &mut Vec<Action>) {
        self.restarts[index] += 1;
        let Some(worker) = &self.workers[index] else { return };
        let (number, ready) = (worker.generation, worker.ready);
        let others = self.generations.iter().any(|other| other.number != number && other.proven);
        let at_start = self.lost_at_start.is_some();
        let Some(generation) = self.generation(number) else { return };
        if let Some(ready) = ready {
            return generation.worker_died(ready, served, now);
        }
        generation.boot_failed(now);
        let failures = if generation.proven { 0 } else { generation.boot_failures };
        if others && failures >= HOPELESS {
            self.end_template(number, TemplateEnd::Broken, now, actions);
        } else if at_start && failures == HOPELESS {
            actions.push(Action::Hopeless(Hopeless::Workers));
        }
    }

    fn set_ending(&mut self, index: usize, cause: Cause, now: Instant) {
        if let Some(worker) = self.workers[index].as_mut() {
            (worker.state, worker.since) = (State::Ending(cause), now);
        }
    }

    fn kill(&mut self, index: usize, cause: Cause, now: Instant, actions: &mut Vec<Action>) {
        self.set_ending(index, cause, now);
        if let Some(worker) = self.workers[index].as_mut() {
            worker.killed = true;
            actions.push(signal(worker, "KILL"));
        }
    }

    fn drain(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.stop();
        let serials: Vec<Serial> = self.workers.iter().flatten().map(|worker| worker.serial).collect();
        for serial in serials {
            self.close(serial, now, actions);
        }
    }

    fn halt(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.stop();
        for index in 0..self.workers.len() {
            if self.workers[index].as_ref().is_some_and(|w| w.state != State::Forking) {
                self.kill(index, Cause::Ordered, now, actions);
            }
        }
    }

    fn stop(&mut self) {
        (self.stopping, self.retry) = (true, None);
    }

    // Deadlines.

    fn tick(&mut self, now: Instant, actions: &mut Vec<Action>) {
        for index in 0..self.workers.len() {
            self.check_worker(index, now, actions);
        }
        let late: Vec<Generation> =
            self.generations.iter().filter(|g| self.is_late(g, now)).map(|g| g.number).collect();
        for generation in late {
            let booting = |g: &&mut GenerationState| matches!(g.template, Template::Booting { .. });
            let boots = self.generation(generation).filter(booting).is_some();
            let why = if boots { TemplateEnd::BootTimeout } else { TemplateEnd::Unresponsive };
            self.end_template(generation, why, now, actions);
        }
        if self.retry.is_some_and(|at| at <= now) {
            self.start_generation(now, actions);
        }
    }

    fn check_worker(&mut self, index: usize, now: Instant, actions: &mut Vec<Action>) {
        let Some(worker) = self.workers[index].as_ref() else { return };
        let age = now.saturating_duration_since(worker.since);
        match worker.state {
            State::Booting if age >= self.timeouts.boot => {
                self.count_death(index, false, now, actions);
                self.kill(index, Cause::SlowBoot, now, actions);
            }
            State::Booting if age + KILL_AFTER >= self.timeouts.boot && !worker.asked => {
                actions.push(signal(worker, "PWR"));
                if let Some(worker) = &mut self.workers[index] {
                    worker.asked = true;
                }
            }
            State::Draining if age >= self.timeouts.shutdown => {
                self.kill(index, Cause::SlowDrain, now, actions);
            }
            State::Stuck { others_finished }
                if age >= KILL_AFTER && (others_finished || age >= self.timeouts.shutdown) =>
            {
                self.kill(index, Cause::Stuck, now, actions);
            }
            // Repeated until the process has ended, because a template may have failed to deliver the signal.
            State::Ending(cause) if age >= KILL_AFTER && worker.ended.is_none() => {
                self.kill(index, cause, now, actions);
            }
            _ => {}
        }
    }

    /// Returns whether a template has missed a deadline.
    fn is_late(&self, generation: &GenerationState, now: Instant) -> bool {
        let over = |since: Instant, limit| now.saturating_duration_since(since) >= limit;
        match generation.template {
            Template::Gone => false,
            Template::Booting { since } => over(since, self.timeouts.boot),
            Template::Up => self.workers.iter().flatten().any(|worker| {
                let waits_for =
                    if worker.state == State::Forking { Some(worker.since) } else { worker.ended };
                worker.generation == generation.number
                    && waits_for.is_some_and(|since| over(since, ORDER_TIMEOUT))
            }),
        }
    }

    // Reconciliation of the actual and the wanted workers.

    fn balance(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.stopping {
            if self.workers.iter().all(Option::is_none) {
                actions.push(Action::Empty);
            }
            return;
        }
        self.close_surplus(now, actions);
        self.end_in_place();
        self.end_replaced(actions);
        self.settle(now, actions);
        if self.workers.iter().flatten().all(|worker| worker.state != State::Forking)
            && let Some(generation) = self.next_fork(now)
        {
            self.fork(generation, now, actions);
        }
    }

    /// Returns the generation that takes over or has taken over.
    fn newest(&self) -> Option<&GenerationState> {
        self.generations.iter().rfind(|generation| generation.can_serve())
    }

    /// Returns the workers that count.
    fn counting(&self, now: Instant) -> impl Iterator<Item = &Worker> {
        let counts = move |worker: &&Worker| worker.counts(now) && self.is_in_service(worker.generation);
        self.workers.iter().flatten().filter(counts)
    }

    /// Counts the workers that count: all of them, or those of one generation that stay.
    fn count(&self, of: Option<Generation>, now: Instant) -> usize {
        let is_of = |worker: &&Worker| of.is_none_or(|number| !worker.is_outdated(number));
        self.counting(now).filter(is_of).count()
    }

    /// Returns the wanted number of workers, which is reduced during a reload in place.
    fn target(&self) -> usize {
        self.in_place.map_or(self.wanted, |place| place.serving.clamp(1, self.wanted.max(1)))
    }

    /// Returns whether another worker may exist. In place, workers that are leaving count too.
    fn has_room(&self) -> bool {
        self.in_place.is_none() || self.workers.iter().flatten().count() <= self.target()
    }

    /// Ends the reload in place once all workers belong to the new generation. From then on, the full number
    /// is wanted again.
    fn end_in_place(&mut self) {
        let Some(place) = self.in_place else { return };
        let newest = self.newest().filter(|newest| newest.proven && newest.number > place.old);
        if newest.is_some_and(|newest| self.workers.iter().flatten().all(|w| w.generation == newest.number)) {
            self.in_place = None;
        }
    }

    /// Returns how many workers may exist beyond the wanted ones, because successors have to be ready first:
    /// a step for old generations, one worker for recycling.
    fn surge(&self, newest: Generation, now: Instant) -> usize {
        let outdated = || self.counting(now).filter(|worker| newest > 0 && worker.is_outdated(newest));
        if self.in_place.is_none() && outdated().any(|worker| worker.generation != newest) {
            self.step
        } else {
            usize::from(outdated().next().is_some())
        }
    }

    /// Closes workers that are not needed. Old and recycled workers leave when the wanted number is up
    /// without them, other workers when there are too many. The youngest leaves first, because its caches are
    /// the coldest.
    fn close_surplus(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let newest = self.newest().map_or(0, |generation| generation.number);
        let proven = self.newest().is_some_and(|generation| generation.proven);
        loop {
            let counting = || self.counting(now);
            let closable = || counting().filter(|worker| worker.state != State::Forking);
            let old = closable().filter(|w| w.is_outdated(newest)).max_by_key(|worker| worker.serial);
            let up = counting().filter(|worker| worker.state == State::Up).count();
            let surge = self.surge(newest, now);
            let surplus = counting().count() > self.target() + surge;
            let forking = counting().any(|worker| worker.state == State::Forking);
            let victim = match old {
                Some(old) if proven && up > self.target() => Some(old),
                // Workers that serve nothing yet go first. A worker whose fork is in progress is closed
                // later.
                _ if surplus => closable()
                    .max_by_key(|w| (w.state != State::Up, proven && w.is_outdated(newest), w.serial))
                    .filter(|worker| worker.state != State::Up || !forking || surge > 0),
                _ => None,
            };
            let Some(serial) = victim.map(|worker| worker.serial) else { return };
            self.leave(serial, now, actions);
        }
    }

    /// Ends templates that a newer generation has replaced, and removes generations without template and
    /// workers.
    fn end_replaced(&mut self, actions: &mut Vec<Action>) {
        let proven = self.newest().filter(|generation| generation.proven).map(|generation| generation.number);
        for generation in &mut self.generations {
            let empty = self.workers.iter().flatten().all(|worker| worker.generation != generation.number);
            let replaced = match generation.role {
                Role::Service => proven.is_some_and(|newest| newest != generation.number) && !generation.kept,
                Role::Trial { .. } | Role::Spare => false,
                Role::Abandoned => true,
            };
            if empty && generation.template == Template::Up && replaced {
                generation.template = Template::Gone;
                let (generation, why) = (generation.number, TemplateEnd::Replaced);
                actions.push(Action::EndTemplate { generation, why });
            }
        }
        let workers = &self.workers;
        self.generations.retain(|generation| {
            generation.template != Template::Gone
                || workers.iter().flatten().any(|worker| worker.generation == generation.number)
        });
    }

    fn settle(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let up = self.counting(now).filter(|worker| worker.state == State::Up).count();
        let waiting = self.newest().is_some_and(|generation| generation.wait(now).is_some());
        if !self.settled && (up >= self.wanted || (up > 0 && waiting)) {
            self.settled = true;
            actions.push(Action::Settled);
        }
    }

    /// Returns the generation from which the next worker is forked, if one is needed now. A worker on trial
    /// comes after the wanted ones.
    fn next_fork(&self, now: Instant) -> Option<Generation> {
        self.next_wanted(now).or_else(|| {
            let untried = |g: &&GenerationState| {
                matches!(g.role, Role::Trial { .. })
                    && g.template == Template::Up
                    && g.wait(now).is_none()
                    && self.workers.iter().flatten().all(|worker| worker.generation != g.number)
            };
            self.generations.iter().find(untried).map(|generation| generation.number)
        })
    }

    fn next_wanted(&self, now: Instant) -> Option<Generation> {
        let newest = self.newest()?;
        let (all, new) = (self.count(None, now), self.count(Some(newest.number), now));
        let allowed = |generation: &GenerationState| generation.wait(now).is_none();
        if newest.proven {
            let target = self.target();
            let needed = new < target && all < target + self.surge(newest.number, now) && self.has_room();
            return (needed && allowed(newest)).then_some(newest.number);
        }
        let is_fallback = |g: &&GenerationState| g.number != newest.number && g.proven && g.can_serve();
        let fallback = self.generations.iter().rfind(is_fallback);
        if let Some(old) = fallback.filter(|old| all - new < self.target() && allowed(old)) {
            return Some(old.number);
        }
        // The first worker of a generation is forked alone, because a fault that kills it would kill all of
        // them.
        (new == 0 && allowed(newest)).then_some(newest.number)
    }

    fn fork(&mut self, generation: Generation, now: Instant, actions: &mut Vec<Action>) {
        let Some(index) = self.workers.iter().position(Option::is_none) else { return };
        let serial = self.next;
        self.next += 1;
        self.workers[index] = Some(Worker {
            serial,
            generation,
            pid: 0,
            state: State::Forking,
            since: now,
            forked: now,
            ready: None,
            suspended: None,
            link_lost: None,
            ended: None,
            asked: false,
            killed: false,
            retiring: false,
            promoted: false,
            orphan: false,
        });
        actions.push(Action::Fork { generation, index: index as u32, serial });
    }
}

fn signal(worker: &Worker, name: &'static str) -> Action {
    let generation = (!worker.orphan).then_some(worker.generation);
    Action::Signal { serial: worker.serial, generation, pid: worker.pid, name }
}

#[cfg(test)]
mod tests;
