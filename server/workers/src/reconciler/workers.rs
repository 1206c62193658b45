//! The lives of workers: from the order to fork to the report that they are gone.

use super::*;
use crate::process::ExitStatus;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Forking,
    Booting {
        /// Set once the worker has been asked for backtraces, because it has almost used up its time to boot.
        asked: bool,
    },
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
pub(super) struct Worker {
    pub(super) serial: Serial,
    pub(super) pool: PoolIndex,
    pub(super) generation: Generation,
    pub(super) pid: u32,
    pub(super) state: State,
    /// When the state began. In [`State::Ending`]: the time of the last KILL.
    pub(super) since: Instant,
    pub(super) forked: Instant,
    pub(super) signs: Signs,
    /// Set once the worker has been sent KILL.
    pub(super) killed: bool,
    /// Set while the worker serves until its successor is ready.
    pub(super) retiring: bool,
    /// Set if it is the baseline of a shadow: it gets no requests of clients, and counts as none of the wanted workers.
    pub(super) baseline: bool,
}

/// The events that a worker has reported, besides its state.
#[derive(Debug, Clone, Default)]
pub(super) struct Signs {
    /// When the worker reported that it is ready. That can precede the report of its fork, because the two
    /// messages use different sockets.
    pub(super) ready: Option<Instant>,
    /// Since when the worker has had an idle thread without taking up requests.
    pub(super) suspended: Option<Instant>,
    pub(super) link_lost: bool,
    /// When the end of its process was noticed.
    pub(super) ended: Option<Instant>,
}

impl Worker {
    fn new(serial: Serial, pool: PoolIndex, generation: Generation, now: Instant) -> Worker {
        Worker {
            serial,
            pool,
            generation,
            pid: 0,
            state: State::Forking,
            since: now,
            forked: now,
            signs: Signs::default(),
            killed: false,
            retiring: false,
            baseline: false,
        }
    }

    /// Returns whether a worker of generation `newest` should replace this one.
    pub(super) fn is_outdated(&self, newest: Generation) -> bool {
        self.generation != newest || self.retiring
    }

    /// Returns whether the worker counts as one of the wanted workers.
    pub(super) fn counts(&self, now: Instant) -> bool {
        let absent = self.signs.suspended.is_some_and(|since| now.saturating_duration_since(since) >= ABSENT);
        let lives = matches!(self.state, State::Forking | State::Booting { .. })
            || (self.state == State::Up && !absent);
        lives && !self.baseline
    }

    pub(super) fn is_staying(&self) -> bool {
        matches!(self.state, State::Forking | State::Booting { .. } | State::Up)
    }
}

impl Reconciler {
    /// Returns whether the worker's template has exited, so that it cannot report the worker's exit.
    pub(super) fn is_orphan(&self, worker: &Worker) -> bool {
        let gone = |g: &GenerationState| g.number == worker.generation && g.template == Template::Gone;
        self.generations.iter().any(gone)
    }

    // The beginning.

    pub(super) fn fork(&mut self, generation: Generation, pool: PoolIndex, baseline: bool) {
        let Some(index) = self.slots.workers.iter().position(Option::is_none) else { return };
        let serial = self.slots.next;
        self.slots.next += 1;
        let worker = Worker::new(serial, pool, generation, self.now);
        self.slots.workers[index] = Some(Worker { baseline, ..worker });
        self.acts.push(Act::Fork { generation, pool, index: index as u32, serial });
    }

    pub(super) fn forked(&mut self, by: Generation, index: u32, pid: u32) {
        let abandoned = |g: &GenerationState| g.number == by && g.role == Role::Abandoned;
        let unwanted = self.is_stopping() || self.generations.iter().any(abandoned);
        let now = self.now;
        let Some(worker) = self.slots.workers.get_mut(index as usize).and_then(Option::as_mut) else {
            return;
        };
        if worker.generation != by || worker.state != State::Forking {
            return;
        }
        (worker.pid, worker.state, worker.since, worker.forked) =
            (pid, State::Booting { asked: false }, now, now);
        let (serial, ready) = (worker.serial, worker.signs.ready);
        let link_lost = std::mem::take(&mut worker.signs.link_lost);
        if unwanted {
            self.kill(index as usize, Cause::Ordered);
        } else if ready.is_some() {
            self.ready(serial);
        }
        if link_lost {
            self.link_lost(serial, false);
        }
    }

    pub(super) fn fork_failed(&mut self, by: Generation, index: u32) {
        let index = index as usize;
        let forking = |w: &Worker| w.generation == by && w.state == State::Forking;
        if self.slots.workers.get(index).and_then(Option::as_ref).is_some_and(forking) {
            self.count_death(index, false);
            self.gone(index, None, Cause::Crashed);
        }
    }

    pub(super) fn ready(&mut self, serial: Serial) {
        let now = self.now;
        let Some(worker) = self.worker(serial) else { return };
        worker.signs.ready = Some(now);
        if !matches!(worker.state, State::Booting { .. }) {
            return;
        }
        (worker.state, worker.since) = (State::Up, now);
        let (number, baseline) = (worker.generation, worker.baseline);
        self.start.lost = None;
        let Some(generation) = self.generation(number) else { return };
        generation.worker_ready();
        match generation.role {
            _ if baseline => {}
            Role::Service => self.acts.push(Act::Open { serial, share: None }),
            Role::Trial { share: Some(share) } => self.acts.push(Act::Open { serial, share: Some(share) }),
            Role::Trial { share: None } | Role::Spare | Role::Abandoned => {}
        }
    }

    // The middle.

    pub(super) fn health(&mut self, serial: Serial, health: Health) {
        let now = self.now;
        match health {
            Health::Stopping => self.close(serial),
            Health::Suspended { idle_thread } => self.suspended(serial, idle_thread.then_some(now)),
            Health::Resumed => self.suspended(serial, None),
            Health::Frozen if self.source.can_replace => self.kill_worker(serial, Cause::Frozen),
            Health::Stuck if self.source.can_replace => self.stuck(serial),
            Health::Frozen | Health::Stuck => {}
            Health::OthersFinished => self.others_finished(serial),
        }
    }

    fn suspended(&mut self, serial: Serial, since: Option<Instant>) {
        if let Some(worker) = self.worker(serial) {
            worker.signs.suspended = since;
        }
    }

    fn stuck(&mut self, serial: Serial) {
        let now = self.now;
        let Some(index) = self.position(serial) else { return };
        let Some(worker) = self.slots.workers[index].as_mut() else { return };
        if matches!(worker.state, State::Up | State::Draining) {
            (worker.state, worker.since) = (State::Stuck { others_finished: false }, now);
            self.slots.restarts[index] += 1;
            self.acts.push(Act::Close { serial, leaves: None });
            self.signal(index, WorkerSignal::Backtraces);
        }
    }

    fn others_finished(&mut self, serial: Serial) {
        if let Some(worker) = self.worker(serial)
            && matches!(worker.state, State::Stuck { .. })
        {
            worker.state = State::Stuck { others_finished: true };
        }
    }

    /// Lets a worker serve until its successor is ready.
    pub(super) fn recycle(&mut self, serial: Serial) {
        if let Some(worker) = self.worker(serial).filter(|worker| worker.state == State::Up) {
            worker.retiring = true;
        }
    }

    // The end.

    pub(super) fn close(&mut self, serial: Serial) {
        self.close_leaving(serial, None);
    }

    fn close_leaving(&mut self, serial: Serial, leaves: Option<Generation>) {
        let now = self.now;
        let Some(worker) = self.worker(serial) else { return };
        if matches!(worker.state, State::Up | State::Booting { .. }) {
            (worker.state, worker.since) = (State::Draining, now);
            self.acts.push(Act::Close { serial, leaves });
        }
    }

    /// Makes room for a worker's successor. The worker that a refork has chosen becomes the template of a new
    /// generation on trial.
    pub(super) fn make_room(&mut self, serial: Serial) {
        let up = |w: &&Worker| w.serial == serial && w.state == State::Up;
        let by = self.workers().find(up).map(|worker| worker.generation);
        let leaves =
            by.filter(|_| self.rules.reload.is_replacing(serial)).and_then(|by| self.next_template(by));
        self.close_leaving(serial, leaves);
    }

    pub(super) fn kill_worker(&mut self, serial: Serial, cause: Cause) {
        let Some(index) = self.position(serial) else { return };
        let live = |w: &Worker| matches!(w.state, State::Up | State::Draining | State::Stuck { .. });
        if self.slots.workers[index].as_ref().is_some_and(live) {
            self.slots.restarts[index] += 1;
            self.acts.push(Act::Close { serial, leaves: None });
            self.kill(index, cause);
        }
    }

    pub(super) fn worker_ended(&mut self, serial: Serial, served: bool, end: End) {
        match end {
            End::Link => self.link_lost(serial, served),
            End::Process => self.process_ended(serial, served),
            End::Reported { status, peak_kib } => self.exited(serial, (status, peak_kib), served),
        }
    }

    /// Handles the end of a link: the worker is exiting or broken. It gets no more requests, and is killed if
    /// it does not exit.
    fn link_lost(&mut self, serial: Serial, served: bool) {
        let Some(index) = self.position(serial) else { return };
        let Some(worker) = self.slots.workers[index].as_mut() else { return };
        if std::mem::replace(&mut worker.signs.link_lost, true) {
            return;
        }
        let cause = match worker.state {
            // The report of the fork is still to come.
            State::Forking => return,
            State::Booting { .. } | State::Up => Cause::Crashed,
            State::Draining => Cause::Ordered,
            State::Stuck { .. } => Cause::Stuck,
            State::Ending(cause) => cause,
        };
        if !matches!(worker.state, State::Ending(_)) {
            self.set_ending(index, cause);
            self.acts.push(Act::Close { serial, leaves: None });
        }
        if cause == Cause::Crashed && !self.is_stopping() {
            self.count_death(index, served);
        }
    }

    /// Handles the end of a worker's process. A worker with a template is gone only when the template has
    /// reported its exit. If the template does not report in time, it is broken.
    fn process_ended(&mut self, serial: Serial, served: bool) {
        let now = self.now;
        let Some(index) = self.position(serial) else { return };
        let Some(worker) = self.slots.workers[index].as_mut().filter(|worker| worker.state != State::Forking)
        else {
            return;
        };
        worker.signs.ended.get_or_insert(now);
        let generation = worker.generation;
        if !self.source.can_replace {
            return self.detached(generation);
        }
        let orphan = self.slots.workers[index].as_ref().is_some_and(|worker| self.is_orphan(worker));
        self.link_lost(serial, served);
        if let Some(State::Ending(cause)) = self.slots.workers[index].as_ref().map(|worker| worker.state)
            && orphan
        {
            self.gone(index, None, cause);
        }
    }

    fn exited(&mut self, serial: Serial, status: (ExitStatus, u64), served: bool) {
        let Some(index) = self.position(serial) else { return };
        let cause = match self.slots.workers[index].as_ref().map(|worker| worker.state) {
            None | Some(State::Forking) => return,
            Some(State::Ending(cause)) => cause,
            Some(State::Stuck { .. }) => Cause::Stuck,
            Some(State::Booting { .. } | State::Up) if !self.is_stopping() => {
                self.count_death(index, served);
                Cause::Crashed
            }
            _ => Cause::Ordered,
        };
        self.gone(index, Some(status), cause);
    }

    pub(super) fn gone(&mut self, index: usize, status: Option<(ExitStatus, u64)>, cause: Cause) {
        let now = self.now;
        let Some(worker) = self.slots.workers[index].take() else { return };
        let (status, peak_kib) = status.map_or((None, 0), |(status, peak)| (Some(status), peak));
        let wait = self.generation(worker.generation).and_then(|generation| generation.wait(now));
        let Worker { serial, pid, generation, forked, killed, .. } = worker;
        let index = index as u32;
        let exit =
            WorkerExit { serial, index, generation, pid, forked, killed, status, peak_kib, cause, wait };
        self.rules.recycler.gone(serial);
        self.worker_gone(&exit);
        self.acts.push(Act::Gone(exit));
        if !self.source.can_replace {
            (self.wish.phase, self.start.retry) = (Phase::Stopping, None);
        }
    }

    /// Counts an unexpected death when it is first noticed, because the delay of the next fork depends on it.
    pub(super) fn count_death(&mut self, index: usize, served: bool) {
        let now = self.now;
        self.slots.restarts[index] += 1;
        let Some(worker) = &self.slots.workers[index] else { return };
        let (number, ready) = (worker.generation, worker.signs.ready);
        let others = self.generations.iter().any(|other| other.number != number && other.proven);
        let Some(generation) = self.generation(number) else { return };
        if let Some(ready) = ready {
            return generation.worker_died(ready, served, now);
        }
        generation.boot_failed(now);
        let failures = if generation.proven { 0 } else { generation.boot_failures };
        if others && failures >= HOPELESS {
            let why = "forks only workers that die before they are ready";
            self.end_template(number, TemplateEnd::Failed { why, place: String::new() });
        } else if self.start.lost.is_some() && failures == HOPELESS {
            self.reached(Milestone::Hopeless(Hopeless::Workers));
        }
    }

    fn set_ending(&mut self, index: usize, cause: Cause) {
        let now = self.now;
        if let Some(worker) = self.slots.workers[index].as_mut() {
            (worker.state, worker.since) = (State::Ending(cause), now);
        }
    }

    pub(super) fn kill(&mut self, index: usize, cause: Cause) {
        self.set_ending(index, cause);
        if let Some(worker) = self.slots.workers[index].as_mut() {
            worker.killed = true;
            self.signal(index, WorkerSignal::Kill);
        }
    }

    pub(super) fn signal(&mut self, index: usize, signal: WorkerSignal) {
        let Some(worker) = &self.slots.workers[index] else { return };
        let generation = (!self.is_orphan(worker)).then_some(worker.generation);
        let (serial, pid) = (worker.serial, worker.pid);
        self.acts.push(Act::Signal { serial, generation, pid, signal });
    }
}
