//! What the threads of a worker share: links, the inbox, and their roles.
//!
//! Roles, when there is more than one thread (they are not part of docs/wire.md):
//! 1. At most one thread is the *leader*: only it waits for the links and reads them.
//! 2. A leader that takes up a request gives up leadership. If recent requests were slow, or most of them wait for something
//!    outside the processor (a database: meanwhile another thread could run), it makes an idle thread the leader at once. If
//!    not, it serves the requests of the batch alone, because waking another thread costs more than a fast request; one idle
//!    thread, the *standby*, checks after [`STANDBY_AFTER`] whether a request is slow, and then becomes the leader.
//! 3. All other idle threads sleep until they are woken. An idle worker causes no wake-ups.

use crate::link::{Job, Link, Message};
use crate::place::{self, PLACES, Place, place};
use crate::raw::gvl::{Guarded, Gvl};
use crate::raw::os;
use crate::scoreboard::Scoreboard;
use crate::task::{Loan, Task};
use crate::thread::ServingThread;
use crate::watchdog::Port;
use crate::{fibers, guest};
use std::collections::{HashMap, VecDeque};
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// A finished response waits at most this long to be sent with others, in microseconds; or a [`PATIENCE`]th of what requests wait before they
/// are served, if that is more.
const BATCH_US: u64 = 250;
/// See [`BATCH_US`]. Where requests queue anyway, larger batches cost their clients little.
const PATIENCE: u64 = 8;
/// Beyond this the watchdog sends it, in microseconds.
const LONGEST_US: u64 = 1000;
/// Unsent bytes beyond which responses do not wait for others.
const BATCH_BYTES: usize = 64 << 10;
/// Requests that take longer than this are slow, in microseconds.
pub(crate) const SLOW_US: u64 = 1000;
/// One request in this many is sampled for the time that it spends off the processor.
const SAMPLE_EVERY: u32 = 8;
/// A request that is off the processor for longer than this counts as waiting, in microseconds.
const WAITED_US: u64 = 20;
/// How long a request may take before the standby takes over reading.
pub(crate) const STANDBY_AFTER: Duration = Duration::from_millis(1);

/// Settings of the worker.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) threads_min: usize,
    pub(crate) threads_max: usize,
    /// Fibers of each thread; 0: threads serve without.
    pub(crate) fibers: usize,
    /// The fibers have a thread of their own, and serve what comes over links of their own; the other threads serve without.
    pub(crate) fibers_apart: bool,
    /// Processor time that a fiber may use while others are ready, microseconds; 0 is without limit.
    pub(crate) slice_us: u64,
    /// How long a call may stop a loop of fibers before that is told, microseconds; 0: it never is.
    pub(crate) blocking_us: u64,
    /// Largest response head, in bytes.
    pub(crate) max_head: usize,
    /// Whether the app may send early hints.
    pub(crate) early_hints: bool,
    /// Whether the app's Rack is 3 or later.
    pub(crate) rack3: bool,
    /// Bytes of a response that may wait for its client in memory.
    pub(crate) response_memory: u64,
    /// Bytes of a response that may wait for its client in a file.
    pub(crate) response_spool: u64,
    /// Where such files are.
    pub(crate) temp_dir: &'static Path,
}

pub(crate) struct Worker {
    pub(crate) options: Options,
    pub(crate) links: Vec<Link>,
    pub(crate) inbox: VecDeque<Job>,
    pub(crate) tasks: Vec<&'static Task>,
    pub(crate) scoreboard: Scoreboard,
    pub(crate) leader: Option<usize>,
    idle: Vec<usize>,
    pub(crate) active: usize,
    /// Decaying maximum of the durations of recent requests, microseconds.
    recent_us: u64,
    /// When a thread last looked whether something must be sent, microseconds.
    looked_us: u64,
    /// Decaying maximum of how long it takes until a thread looks again, microseconds.
    unseen_us: u64,
    /// How long a finished response may wait for others now, microseconds.
    patience_us: u64,
    begun: u32,
    /// Share of the sampled requests that waited, in 1/256; recent ones count most.
    waits: u32,
    /// With fibers: the requests that are being served, by link and id.
    by_request: HashMap<(u32, u32), &'static Task, fibers::Fast>,
    /// With fibers: requests that the front has sent something for.
    woken: Vec<&'static Task>,
    pub(crate) draining: bool,
    pub(crate) finished: bool,
    /// A full collection is to be made when no request is being served.
    collect: bool,
    /// The socket of the template that it makes when it has finished.
    pub(crate) promotion: Option<RawFd>,
    ports: &'static [Port],
    place: &'static Place,
    /// What makes it an attached one; `None` for one that has been forked.
    pub(crate) attached: Option<Attached>,
    /// What it has to do with another one in its process, with which it is one worker to the front.
    pub(crate) pair: Pair,
    /// Its front has gone: what it would send goes nowhere.
    pub(crate) lost: bool,
}

/// With fibers for some paths a process has two workers, at two places, with links of their own: one whose threads serve without fibers, and one
/// of a single thread that serves with them. They share the scoreboard's slot, and end together.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Pair {
    /// It is alone.
    #[default]
    None,
    /// It serves without fibers, and the other, at this place, has not finished.
    Threads(usize),
    /// It serves with them, for the one at this place.
    Fibers(usize),
}

/// A worker in a process that is not its own: Ruby has other things to do there, so it never ends the process.
pub(crate) struct Attached {
    /// Tells it from others that have been at the same place.
    serial: u64,
    /// A pipe that is written to when [`Worker::release`] or [`Worker::take_killed`] has something to do.
    bell: RawFd,
    /// Its threads that have started and not ended.
    threads: usize,
    /// Those that the app has killed.
    killed: Vec<usize>,
}

/// What a child that was forked from a worker has inherited of it, and does not use.
struct Retired {
    place: usize,
    scoreboard: Scoreboard,
    ports: &'static [Port],
    tasks: Vec<&'static Task>,
}

// A forked worker is at place 0.
static WORKERS: Guarded<[Option<Worker>; PLACES]> = Guarded::new([const { None }; PLACES]);

static SERIAL: Guarded<u64> = Guarded::new(0);

static RETIRED: Guarded<Vec<Retired>> = Guarded::new(Vec::new());

static ABANDONED: AtomicBool = AtomicBool::new(false);

/// Borrows the worker of the calling thread.
#[inline]
pub(crate) fn worker<R>(gvl: &Gvl, f: impl FnOnce(&mut Worker) -> R) -> R {
    WORKERS.with(gvl, |workers| f(workers[place::here()].as_mut().expect("the worker has been set up")))
}

/// Borrows the worker at a place; `None` when there is none, or not any more.
#[inline]
pub(crate) fn worker_at<R>(gvl: &Gvl, at: usize, f: impl FnOnce(&mut Worker) -> R) -> Option<R> {
    WORKERS.with(gvl, |workers| workers[at].as_mut().map(f))
}

/// Whether the worker of the calling thread is in another process: the app has forked this one.
#[inline]
pub(crate) fn is_abandoned(gvl: &Gvl) -> bool {
    ABANDONED.load(Relaxed) && !is_set_up(gvl)
}

/// Whether the calling thread has a worker: this is neither the template nor a child that the app has forked.
pub(crate) fn is_set_up(gvl: &Gvl) -> bool {
    WORKERS.with(gvl, |workers| workers[place::here()].is_some())
}

/// A place for an attached worker; `None` when all are taken.
pub(crate) fn free_place(gvl: &Gvl) -> Option<usize> {
    (1..PLACES).find(|&at| !place::is_burnt(gvl, at) && WORKERS.with(gvl, |workers| workers[at].is_none()))
}

/// The place of the attached worker with this serial number, if it has not been released.
pub(crate) fn find(gvl: &Gvl, serial: u64) -> Option<usize> {
    let is_it = |w: &Worker| w.attached.as_ref().is_some_and(|attached| attached.serial == serial);
    WORKERS.with(gvl, |workers| workers.iter().position(|worker| worker.as_ref().is_some_and(is_it)))
}

/// Ends the watchdogs of all workers that belong to this process.
pub(crate) fn stop_watchdogs(gvl: &Gvl) {
    let is_own = |at: &usize| {
        WORKERS.with(gvl, |workers| workers[*at].as_ref().is_some_and(|worker| worker.attached.is_none()))
    };
    (0..PLACES).filter(is_own).for_each(|at| place::at(at).watchdog.stop());
}

/// Nothing of a thread and its last request stays.
fn retire_thread(gvl: &Gvl, task: &'static Task) {
    task.retire(gvl);
    task.thread.retire();
}

/// What a thread does next.
pub(crate) enum Step {
    Run(Job, Help),
    /// Requests were discarded, which the front has to hear of, though there is nothing else to do.
    Send,
    Read,
    Collect,
    Sleep,
    Stop,
}

/// What the loop of a thread with fibers does next.
pub(crate) enum FiberStep {
    /// Give it to an idle fiber.
    Run(Job, Help),
    /// As [`Step::Send`].
    Send,
    Collect,
    /// Wait, if no fiber is ready.
    Wait {
        /// Also for the links, and read them.
        leads: bool,
    },
    Stop,
}

/// What must be done, besides serving the request, so that the links are still read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Help {
    None,
    /// Start one more thread: the one with this index.
    Spawn(usize),
    /// Set the timer of the standby.
    SetTimer,
}

impl Worker {
    pub(crate) fn install(
        gvl: &Gvl,
        options: Options,
        ports: &'static [Port],
        scoreboard: Scoreboard,
        tasks: Vec<&'static Task>,
    ) {
        let links = (0u32..).zip(ports).map(|(number, port)| Link::new(number, port, scoreboard)).collect();
        #[rustfmt::skip]
        let worker = Worker {
            options, links, inbox: VecDeque::new(), tasks, scoreboard, leader: None, idle: Vec::new(), active: 0,
            recent_us: 0, looked_us: 0, unseen_us: 0, patience_us: BATCH_US, begun: 0, waits: 0, by_request: HashMap::default(), woken: Vec::new(), draining: false, finished: false, collect: false, promotion: None, ports,
            place: place(), attached: None, pair: Pair::None, lost: false,
        };
        WORKERS.with(gvl, |workers| workers[place::here()] = Some(worker));
    }

    /// Makes the worker that has been installed an attached one. Returns its serial number.
    pub(crate) fn attach(gvl: &Gvl, bell: RawFd) -> u64 {
        let serial = SERIAL.with(gvl, |last| {
            *last += 1;
            *last
        });
        let attached = Attached { serial, bell, threads: 0, killed: Vec::new() };
        worker(gvl, |w| w.attached = Some(attached));
        serial
    }

    /// Takes back [`Worker::install`]: no thread has been started.
    pub(crate) fn uninstall(gvl: &mut Gvl) {
        let Some(worker) = WORKERS.with(gvl, |workers| workers[place::here()].take()) else { return };
        worker.place.watchdog.stop();
        worker.scoreboard.unmap();
        worker.place.vacate(gvl);
    }

    /// A thread is about to start.
    pub(crate) fn thread_starts(&mut self) {
        self.attached.iter_mut().for_each(|attached| attached.threads += 1);
    }

    /// A thread has ended. Whether another must be started in its place; that of an attached worker is left to
    /// [`Worker::take_killed`], because Ruby may be killing all threads to end the process.
    pub(crate) fn thread_ends(&mut self, me: usize) -> bool {
        self.awake(me);
        if self.leader == Some(me) {
            self.leader = None;
        }
        match &mut self.attached {
            // The first thread is the process's own.
            None => !self.finished && (me > 0 || matches!(self.pair, Pair::Fibers(_))),
            Some(attached) => {
                attached.threads -= 1;
                if !self.finished {
                    attached.killed.push(me);
                }
                if !self.finished || attached.threads == 0 {
                    os::ring(attached.bell);
                }
                false
            }
        }
    }

    /// The threads of an attached worker that must be started again.
    pub(crate) fn take_killed(&mut self) -> Vec<usize> {
        let Some(attached) = self.attached.as_mut().filter(|_| !self.finished) else { return Vec::new() };
        std::mem::take(&mut attached.killed)
    }

    /// The front has gone: no request will come, and no response goes anywhere.
    pub(crate) fn lose(&mut self, gvl: &Gvl) {
        (self.lost, self.finished) = (true, true);
        self.inbox.drain(..).for_each(|job| job.discard());
        for task in &self.tasks {
            task.gone.set(true);
            task.tell(gvl);
            task.thread.wake();
        }
        for task in self.by_request.values() {
            task.gone.set(true);
            task.tell(gvl);
            self.woken.push(task);
        }
        // Threads may have ended before.
        self.attached.iter().for_each(|attached| os::ring(attached.bell));
    }

    /// Gives up what an attached worker has had, when it has finished and its last thread has ended. Whether it has.
    pub(crate) fn release(gvl: &mut Gvl, at: usize) -> bool {
        let over =
            |w: &Worker| w.finished && w.attached.as_ref().is_some_and(|attached| attached.threads == 0);
        let taken = WORKERS.with(gvl, |workers| workers[at].take_if(|w| over(w)));
        let Some(worker) = taken else { return false };
        worker.place.watchdog.stop();
        worker.links.iter().for_each(|link| os::close(link.fd));
        // The ports themselves, some hundred bytes, stay: the links had borrowed them for ever.
        worker.ports.iter().for_each(|port| port.outbox.clear());
        worker.promotion.into_iter().for_each(os::close);
        worker.scoreboard.unmap();
        worker.tasks.iter().for_each(|task| retire_thread(gvl, task));
        ServingThread::keep(gvl, at, worker.tasks);
        worker.place.vacate(gvl);
        true
    }

    /// Closes the links in a child that the app has forked; they belong to the parent.
    pub(crate) fn abandon(gvl: &Gvl) {
        for at in 0..PLACES {
            let Some(worker) = WORKERS.with(gvl, |workers| workers[at].take()) else { continue };
            worker.links.iter().for_each(|link| os::close(link.fd));
            worker.tasks.iter().chain(worker.by_request.values()).for_each(|task| task.return_loan());
            worker.promotion.into_iter().for_each(os::close);
            ABANDONED.store(true, Relaxed);
            fibers::abandon(gvl);
            guest::abandon(gvl);
            // The locks of another place may be held by threads that this child does not have. At place 0 nothing else starts.
            if at > 0 {
                place::burn(gvl, at);
            }
            if worker.attached.is_none() {
                let Worker { scoreboard, ports, tasks, .. } = worker;
                RETIRED.with(gvl, |all| all.push(Retired { place: at, scoreboard, ports, tasks }));
            }
        }
    }

    /// Makes the child of a finished worker a template, whose children can be workers in turn. Nothing of the worker is left but its
    /// tasks, which those use again.
    ///
    /// The watchdog has been stopped before the fork.
    pub(crate) fn retire(gvl: &mut Gvl) {
        for Retired { place, scoreboard, ports, tasks } in RETIRED.with(gvl, std::mem::take) {
            scoreboard.unmap();
            ports.iter().for_each(|port| port.outbox.clear());
            tasks.iter().for_each(|task| retire_thread(gvl, task));
            ServingThread::keep(gvl, place, tasks);
            place::at(place).reset();
            place::mend(gvl, place);
        }
        ABANDONED.store(false, Relaxed);
    }

    /// Whether finished responses must be sent before the next request is taken up.
    #[inline]
    pub(crate) fn must_send(&mut self, now_us: u64) -> bool {
        self.looked_us = now_us;
        !self.lost
            && self.links.iter().any(|link| {
                let unsent = link.outbox().unsent();
                unsent > 0
                    && (self.inbox.is_empty()
                        || unsent > BATCH_BYTES
                        // While it waits, no thread may come by to send it.
                        || self.unseen_us > SLOW_US
                        || link.outbox().age_us(now_us) > self.patience_us)
            })
    }

    /// Decides what thread `me` does next.
    #[inline]
    pub(crate) fn step(&mut self, me: usize, now_us: u64) -> Step {
        if self.finished {
            return Step::Stop;
        }
        let mut discarded = false;
        while let Some(job) = self.inbox.pop_front() {
            if !self.links[job.link as usize].take_up() {
                job.discard();
                discarded = true;
                continue;
            }
            self.active += 1;
            self.place.watchdog.begun();
            let help = self.step_down(me, now_us);
            return Step::Run(job, help);
        }
        if discarded {
            return Step::Send;
        }
        if self.draining && self.active == 0 && !matches!(self.pair, Pair::Threads(_)) {
            self.finish();
            return Step::Stop;
        }
        if self.active == 0 && std::mem::take(&mut self.collect) {
            return Step::Collect;
        }
        match self.leader {
            Some(leader) if leader != me => {
                self.idle.push(me);
                Step::Sleep
            }
            _ => {
                self.lead(me);
                Step::Read
            }
        }
    }

    pub(crate) fn lead(&mut self, me: usize) {
        self.leader = Some(me);
        self.place.is_led();
    }

    /// Gives up leadership, if thread `me` has it, before the app runs.
    #[inline]
    pub(crate) fn step_down(&mut self, me: usize, now_us: u64) -> Help {
        if self.leader == Some(me) {
            self.leader = None;
        }
        if self.leader.is_some() || self.options.threads_max == 1 {
            return Help::None;
        }
        if self.recent_us > SLOW_US || self.waits > 128 {
            return if self.appoint() { Help::None } else { self.more() };
        }
        self.place.is_leaderless(now_us);
        if !self.place.has_standby() {
            let Some(&chosen) = self.idle.last() else { return self.more() };
            self.place.choose_standby(chosen);
            self.tasks[chosen].thread.wakeup.wake();
        }
        if self.place.arm() { Help::SetTimer } else { Help::None }
    }

    /// Makes an idle thread the leader, if there is one.
    pub(crate) fn appoint(&mut self) -> bool {
        let Some(chosen) = self.idle.pop() else { return false };
        self.place.dismiss_standby(chosen);
        self.lead(chosen);
        self.tasks[chosen].thread.wake();
        true
    }

    /// A thread that serves nothing waits for the front, as `guest`. Whether it has to read the links meanwhile.
    pub(crate) fn guest_leads(&mut self, guest: usize) -> bool {
        let leads = self.leader.is_none() && !self.appoint();
        if leads {
            self.lead(guest);
        }
        leads
    }

    /// It has waited.
    pub(crate) fn guest_leaves(&mut self, guest: usize, now_us: u64) -> Help {
        if self.leader != Some(guest) {
            return Help::None;
        }
        self.leader = None;
        if self.appoint() { Help::None } else { self.step_down(guest, now_us) }
    }

    fn more(&mut self) -> Help {
        if self.tasks.len() < self.options.threads_max { Help::Spawn(self.tasks.len()) } else { Help::None }
    }

    /// Thread `me` is awake again.
    pub(crate) fn awake(&mut self, me: usize) {
        self.idle.retain(|&idle| idle != me);
        self.place.dismiss_standby(me);
    }

    /// Whether the request that begins is sampled; never with a single thread, where nothing depends on it.
    #[inline]
    pub(crate) fn samples(&mut self) -> bool {
        self.begun = self.begun.wrapping_add(1);
        self.options.threads_max > 1 && self.options.fibers == 0 && self.begun.is_multiple_of(SAMPLE_EVERY)
    }

    // Threads that serve with fibers. They take more than one request at a time, so who reads the links is decided when a thread waits, and when
    // it stops waiting.

    /// Decides what the loop of thread `me` does next. `can_take`: it has an idle fiber.
    #[inline]
    pub(crate) fn fiber_step(&mut self, me: usize, now_us: u64, can_take: bool) -> FiberStep {
        if self.finished {
            return FiberStep::Stop;
        }
        if can_take {
            let waiting = self.inbox.len();
            if let Some((job, help)) = self.fiber_take(me, now_us) {
                return FiberStep::Run(job, help);
            }
            if waiting > 0 {
                return FiberStep::Send;
            }
        } else if !self.inbox.is_empty() {
            self.appoint();
        }
        if self.draining && self.active == 0 {
            self.finish();
            return FiberStep::Stop;
        }
        if self.active == 0 && std::mem::take(&mut self.collect) {
            return FiberStep::Collect;
        }
        let leads = match self.leader {
            Some(leader) => leader == me,
            // Another thread has a request, and may be back soon.
            None => !self.place.is_standby(me),
        };
        if leads {
            self.lead(me);
        }
        FiberStep::Wait { leads }
    }

    /// Takes the next request up that has not been returned, for a fiber of thread `me`.
    #[inline]
    pub(crate) fn fiber_take(&mut self, me: usize, now_us: u64) -> Option<(Job, Help)> {
        while let Some(job) = self.inbox.pop_front() {
            if !self.links[job.link as usize].take_up() {
                job.discard();
                continue;
            }
            self.active += 1;
            self.place.watchdog.begun();
            let help = self.step_down(me, now_us);
            return Some((job, help));
        }
        None
    }

    /// Thread `me` enters fibers that are ready: it does not read the links meanwhile.
    pub(crate) fn fiber_works(&mut self, me: usize, now_us: u64) -> Help {
        self.place.dismiss_standby(me);
        if self.leader == Some(me) { self.step_down(me, now_us) } else { Help::None }
    }

    /// Thread `me` is about to wait, and does not read the links.
    pub(crate) fn fiber_idles(&mut self, me: usize) {
        self.idle.push(me);
    }

    /// Thread `me` has waited; `leads`: it reads the links from now on.
    pub(crate) fn fiber_awake(&mut self, me: usize, leads: bool) {
        self.idle.retain(|&idle| idle != me);
        if leads {
            self.place.dismiss_standby(me);
        }
    }

    /// A request is served by a fiber.
    pub(crate) fn fiber_begins(&mut self, task: &'static Task) {
        self.by_request.insert((task.link.get(), task.id.get()), task);
        self.scoreboard.serves(self.active as u64);
    }

    /// A fiber has served a request.
    pub(crate) fn fiber_ends(&mut self, task: &'static Task) {
        self.by_request.remove(&(task.link.get(), task.id.get()));
        self.scoreboard.serves(self.active as u64);
    }

    /// The requests of thread `me` that the front has sent something for.
    pub(crate) fn take_woken(&mut self, me: usize) -> Vec<&'static Task> {
        if self.woken.is_empty() {
            return Vec::new();
        }
        let (mine, others) =
            std::mem::take(&mut self.woken).into_iter().partition(|task| task.thread.index == me);
        self.woken = others;
        mine
    }

    /// The fibers that serve requests, with links and ids.
    pub(crate) fn fibers_serving(&self) -> impl Iterator<Item = &'static Task> + '_ {
        self.by_request.values().copied()
    }

    /// Nothing is left to do.
    fn finish(&mut self) {
        self.finished = true;
        self.tasks.iter().for_each(|task| task.thread.wake());
    }

    /// The worker of fibers beside it has finished.
    pub(crate) fn is_alone_now(&mut self) {
        self.pair = Pair::None;
        self.tasks.iter().for_each(|task| task.thread.wake());
    }

    /// The thread that reads the links has nothing else to wait for.
    pub(crate) fn only_reads(&self) -> bool {
        self.options.threads_max == 1 && !matches!(self.pair, Pair::Threads(_))
    }

    /// Records how long a request that is finished now took and had waited before and, for a sampled one, how long it was off the
    /// processor.
    #[inline]
    pub(crate) fn record(&mut self, now_us: u64, took_us: u64, queued_us: u64, off_us: Option<u64>) {
        self.recent_us = took_us.max(self.recent_us - self.recent_us / 32);
        // Other threads may have been there meanwhile, if this one has waited.
        let unseen_us = took_us.min(now_us.saturating_sub(self.looked_us));
        self.unseen_us = unseen_us.max(self.unseen_us - self.unseen_us / 32);
        self.patience_us = (queued_us / PATIENCE).clamp(BATCH_US, LONGEST_US);
        if let Some(off_us) = off_us {
            let waited = if off_us > WAITED_US { 256 } else { 0 };
            self.waits = (self.waits * 7 + waited) / 8;
        }
    }

    /// Acts on a frame other than REQUEST.
    pub(crate) fn handle(&mut self, gvl: &Gvl, link: u32, message: &Message) {
        match *message {
            Message::Drain => self.draining = true,
            Message::Collect => self.collect = true,
            Message::Promote { fd } => self.promotion.replace(fd).into_iter().for_each(os::close),
            Message::Window { id, bytes } => {
                if let Some(task) = self.serving(link, id) {
                    task.window.set(task.window.get() + i64::from(bytes));
                    self.wake(gvl, task);
                }
            }
            // The thread that offered may have stopped waiting.
            Message::Lend { id, fd } => {
                match self.serving(link, id).filter(|task| task.loan.get() == Loan::Offered) {
                    Some(task) => {
                        task.loan.set(fd.map_or(Loan::Declined, Loan::Lent));
                        self.wake(gvl, task);
                    }
                    None => fd.into_iter().for_each(os::close),
                }
            }
            Message::Abort { id } => match self.serving(link, id) {
                Some(task) => {
                    task.gone.set(true);
                    self.wake(gvl, task);
                }
                None => {
                    let waiting = self.inbox.iter_mut().find(|job| job.link == link && job.id == id);
                    waiting.into_iter().for_each(|job| job.gone = true);
                }
            },
        }
    }

    /// Has the task's thread look at what has come for it, and whoever else waits for that.
    fn wake(&mut self, gvl: &Gvl, task: &'static Task) {
        task.tell(gvl);
        if task.fiber.is_none() {
            return task.thread.wake();
        }
        self.woken.push(task);
        // The leader looks when it has read everything.
        if self.leader != Some(task.thread.index) {
            task.thread.wakeup.wake();
        }
    }

    fn serving(&self, link: u32, id: u32) -> Option<&'static Task> {
        if self.options.fibers > 0 {
            return self.by_request.get(&(link, id)).copied();
        }
        self.tasks
            .iter()
            .copied()
            .find(|task| task.active.get() && task.link.get() == link && task.id.get() == id)
    }
}
