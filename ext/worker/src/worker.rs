//! The state that the threads of a worker share: links, the inbox, and the threads' roles.
//!
//! Roles, when there is more than one thread (they are not part of docs/internals/wire.md):
//! 1. At most one thread is the *leader*: only it waits for the links and reads them.
//! 2. A leader that takes up a request gives up leadership. If recent requests were slow, or most of them waited off the
//!    processor (for a database, say: another thread can run meanwhile), it makes an idle thread the leader at once. Otherwise
//!    it serves the requests of the batch alone, because waking another thread costs more than a fast request. One idle
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

/// The longest time that a finished response waits to be sent with others, in microseconds. The limit rises to a [`PATIENCE`]th of
/// the time that requests wait before they are served, if that is longer.
const BATCH_US: u64 = 250;
/// See [`BATCH_US`]. When requests queue anyway, larger batches add little to their latency.
const PATIENCE: u64 = 8;
/// The upper limit of the time in [`BATCH_US`], in microseconds. Beyond it the watchdog sends the response.
const LONGEST_US: u64 = 1000;
/// With more unsent bytes than this, responses are sent without waiting for others.
const BATCH_BYTES: usize = 64 << 10;
/// Requests that take longer than this are slow, in microseconds.
pub(crate) const SLOW_US: u64 = 1000;
/// One request in this many is sampled to measure its time off the processor.
const SAMPLE_EVERY: u32 = 8;
/// A sampled request that is off the processor for longer than this counts as waiting, in microseconds.
const WAITED_US: u64 = 20;
/// The time after which the standby takes over reading from a leader that serves a request.
pub(crate) const STANDBY_AFTER: Duration = Duration::from_millis(1);

#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) threads_min: usize,
    pub(crate) threads_max: usize,
    /// Fibers per thread; 0: the threads serve without fibers.
    pub(crate) fibers: usize,
    /// The fibers have their own thread and their own links; the other threads serve without fibers.
    pub(crate) fibers_apart: bool,
    /// Processor time that a fiber may use while others are ready, in microseconds; 0: no limit.
    pub(crate) slice_us: u64,
    /// The time that a call may block a loop of fibers before it is logged, in microseconds; 0: never logged.
    pub(crate) blocking_us: u64,
    /// Largest response head, in bytes.
    pub(crate) max_head: usize,
    pub(crate) early_hints: bool,
    /// Whether the app's Rack is 3 or later.
    pub(crate) rack3: bool,
    /// Bytes of a response that may be buffered in memory for a slow client.
    pub(crate) response_memory: u64,
    /// Bytes of a response that may be buffered in a file for a slow client.
    pub(crate) response_spool: u64,
    /// The directory of these files.
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
    /// Decaying maximum of the durations of recent requests, in microseconds.
    recent_us: u64,
    /// The time of the last check for unsent responses, in microseconds.
    looked_us: u64,
    /// Decaying maximum of the time between two such checks, in microseconds.
    unseen_us: u64,
    /// The time that a finished response may currently wait for others, in microseconds.
    patience_us: u64,
    begun: u32,
    /// Share of the sampled requests that waited, in 1/256, weighted towards recent requests.
    waits: u32,
    /// With fibers: the requests being served, by link and id.
    by_request: HashMap<(u32, u32), &'static Task, fibers::Fast>,
    /// With fibers: the requests for which a message from the front has arrived.
    woken: Vec<&'static Task>,
    pub(crate) draining: bool,
    pub(crate) finished: bool,
    /// A full collection is to run when no request is being served.
    collect: bool,
    /// The socket of the template that this worker leaves behind when it has finished.
    pub(crate) promotion: Option<RawFd>,
    ports: &'static [Port],
    place: &'static Place,
    /// The state of an attached worker; `None` for a forked one.
    pub(crate) attached: Option<Attached>,
    /// Its partner in this process, if there is one; the front sees both as one worker.
    pub(crate) pair: Pair,
    /// The front is gone; nothing more can be sent.
    pub(crate) lost: bool,
}

/// With fibers for some paths only, a process has two workers at two places with separate links: one whose threads serve without fibers, and
/// one with a single thread that serves with fibers. They share the scoreboard's slot, and end together.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Pair {
    /// There is no partner.
    #[default]
    None,
    /// This worker serves without fibers, and its partner at this place has not finished.
    Threads(usize),
    /// This worker serves with fibers, as the partner of the worker at this place.
    Fibers(usize),
}

/// The extra state of an attached worker. Its process belongs to the app, so the worker never ends the process.
pub(crate) struct Attached {
    /// Distinguishes it from earlier workers at the same place.
    serial: u64,
    /// A pipe that is written to when there is work for [`Worker::release`] or [`Worker::take_killed`].
    bell: RawFd,
    /// The number of its running threads.
    threads: usize,
    /// The threads that the app has killed.
    killed: Vec<usize>,
}

/// State that a forked child inherited from a worker and does not use.
struct Retired {
    place: usize,
    scoreboard: Scoreboard,
    ports: &'static [Port],
    tasks: Vec<&'static Task>,
}

// Place 0 is the forked worker's.
static WORKERS: Guarded<[Option<Worker>; PLACES]> = Guarded::new([const { None }; PLACES]);

static SERIAL: Guarded<u64> = Guarded::new(0);

static RETIRED: Guarded<Vec<Retired>> = Guarded::new(Vec::new());

static ABANDONED: AtomicBool = AtomicBool::new(false);

/// Borrows the worker of the calling thread.
#[inline]
pub(crate) fn worker<R>(gvl: &Gvl, f: impl FnOnce(&mut Worker) -> R) -> R {
    WORKERS.with(gvl, |workers| f(workers[place::here()].as_mut().expect("the worker has been set up")))
}

/// Borrows the worker at a place. `None` when there is none.
#[inline]
pub(crate) fn worker_at<R>(gvl: &Gvl, at: usize, f: impl FnOnce(&mut Worker) -> R) -> Option<R> {
    WORKERS.with(gvl, |workers| workers[at].as_mut().map(f))
}

/// Returns whether the app has forked this process from the worker's process.
#[inline]
pub(crate) fn is_abandoned(gvl: &Gvl) -> bool {
    ABANDONED.load(Relaxed) && !is_set_up(gvl)
}

/// Returns whether the calling thread has a worker. The template, and a child that the app has forked, have none.
pub(crate) fn is_set_up(gvl: &Gvl) -> bool {
    WORKERS.with(gvl, |workers| workers[place::here()].is_some())
}

/// Finds a free place for an attached worker; `None` when all are taken.
pub(crate) fn free_place(gvl: &Gvl) -> Option<usize> {
    (1..PLACES).find(|&at| !place::is_burnt(gvl, at) && WORKERS.with(gvl, |workers| workers[at].is_none()))
}

/// Finds the place of the attached worker with this serial number. `None` when it has been released.
pub(crate) fn find(gvl: &Gvl, serial: u64) -> Option<usize> {
    let is_it = |w: &Worker| w.attached.as_ref().is_some_and(|attached| attached.serial == serial);
    WORKERS.with(gvl, |workers| workers.iter().position(|worker| worker.as_ref().is_some_and(is_it)))
}

/// Stops the watchdogs of the forked workers of this process; attached workers are not included.
pub(crate) fn stop_watchdogs(gvl: &Gvl) {
    let is_own = |at: &usize| {
        WORKERS.with(gvl, |workers| workers[*at].as_ref().is_some_and(|worker| worker.attached.is_none()))
    };
    (0..PLACES).filter(is_own).for_each(|at| place::at(at).watchdog.stop());
}

/// Releases everything that a thread and its last request hold.
fn retire_thread(gvl: &Gvl, task: &'static Task) {
    task.retire(gvl);
    task.thread.retire();
}

pub(crate) enum Step {
    Run(Job, Help),
    /// Requests were discarded and the front must be told, though there is nothing else to do.
    Send,
    Read,
    Collect,
    Sleep,
    Stop,
}

/// The next action of the loop of a thread with fibers.
pub(crate) enum FiberStep {
    /// Give the job to an idle fiber.
    Run(Job, Help),
    /// As [`Step::Send`].
    Send,
    Collect,
    /// Wait, if no fiber is ready.
    Wait {
        /// Wait for the links as well, and read them.
        leads: bool,
    },
    Stop,
}

/// The action that keeps the links being read while the thread serves a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Help {
    None,
    /// Start one more thread, with this index.
    Spawn(usize),
    /// Set the standby's timer.
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

    /// Marks the installed worker as attached. Returns its serial number.
    pub(crate) fn attach(gvl: &Gvl, bell: RawFd) -> u64 {
        let serial = SERIAL.with(gvl, |last| {
            *last += 1;
            *last
        });
        let attached = Attached { serial, bell, threads: 0, killed: Vec::new() };
        worker(gvl, |w| w.attached = Some(attached));
        serial
    }

    /// Reverses [`Worker::install`]. No thread may have been started.
    pub(crate) fn uninstall(gvl: &mut Gvl) {
        let Some(worker) = WORKERS.with(gvl, |workers| workers[place::here()].take()) else { return };
        worker.place.watchdog.stop();
        worker.scoreboard.unmap();
        worker.place.vacate(gvl);
    }

    /// Counts a thread that is about to start.
    pub(crate) fn thread_starts(&mut self) {
        self.attached.iter_mut().for_each(|attached| attached.threads += 1);
    }

    /// Records that a thread has ended. Returns whether the caller must start another in its place. For an attached worker this is
    /// left to [`Worker::take_killed`], because Ruby may be killing all threads in order to end the process.
    pub(crate) fn thread_ends(&mut self, me: usize) -> bool {
        self.awake(me);
        if self.leader == Some(me) {
            self.leader = None;
        }
        match &mut self.attached {
            // The first thread is the process's main thread.
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

    /// Takes the list of an attached worker's threads that must be started again.
    pub(crate) fn take_killed(&mut self) -> Vec<usize> {
        let Some(attached) = self.attached.as_mut().filter(|_| !self.finished) else { return Vec::new() };
        std::mem::take(&mut attached.killed)
    }

    /// Finishes the worker because its front is gone: no requests will come, and no response can be sent.
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
        // All threads may have ended already.
        self.attached.iter().for_each(|attached| os::ring(attached.bell));
    }

    /// Releases everything an attached worker holds, once it has finished and its last thread has ended. Returns whether it did.
    pub(crate) fn release(gvl: &mut Gvl, at: usize) -> bool {
        let over =
            |w: &Worker| w.finished && w.attached.as_ref().is_some_and(|attached| attached.threads == 0);
        let taken = WORKERS.with(gvl, |workers| workers[at].take_if(|w| over(w)));
        let Some(worker) = taken else { return false };
        worker.place.watchdog.stop();
        worker.links.iter().for_each(|link| os::close(link.fd));
        // The ports, a few hundred bytes, are leaked: the links borrow them for 'static.
        worker.ports.iter().for_each(|port| port.outbox.clear());
        worker.promotion.into_iter().for_each(os::close);
        worker.scoreboard.unmap();
        worker.tasks.iter().for_each(|task| retire_thread(gvl, task));
        ServingThread::keep(gvl, at, worker.tasks);
        worker.place.vacate(gvl);
        true
    }

    /// Closes the links in a child that the app has forked. The links belong to the parent.
    pub(crate) fn abandon(gvl: &Gvl) {
        for at in 0..PLACES {
            let Some(worker) = WORKERS.with(gvl, |workers| workers[at].take()) else { continue };
            worker.links.iter().for_each(|link| os::close(link.fd));
            worker.tasks.iter().chain(worker.by_request.values()).for_each(|task| task.return_loan());
            worker.promotion.into_iter().for_each(os::close);
            ABANDONED.store(true, Relaxed);
            fibers::abandon(gvl);
            guest::abandon(gvl);
            // Threads that this child does not have may hold the locks of another place. At place 0 nothing starts again.
            if at > 0 {
                place::burn(gvl, at);
            }
            if worker.attached.is_none() {
                let Worker { scoreboard, ports, tasks, .. } = worker;
                RETIRED.with(gvl, |all| all.push(Retired { place: at, scoreboard, ports, tasks }));
            }
        }
    }

    /// Turns the child of a finished worker into a template, whose children can become workers. Only the worker's tasks are kept, for
    /// those children to use.
    ///
    /// The watchdog must have been stopped before the fork.
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

    /// Returns whether finished responses must be sent before the next request is taken up.
    #[inline]
    pub(crate) fn must_send(&mut self, now_us: u64) -> bool {
        self.looked_us = now_us;
        !self.lost
            && self.links.iter().any(|link| {
                let unsent = link.outbox().unsent();
                unsent > 0
                    && (self.inbox.is_empty()
                        || unsent > BATCH_BYTES
                        // No other thread might flush it while it waits.
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

    /// Makes thread `me` give up leadership, if it has it, before the app runs.
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

    /// Makes an idle thread the leader. Returns whether there was one.
    pub(crate) fn appoint(&mut self) -> bool {
        let Some(chosen) = self.idle.pop() else { return false };
        self.place.dismiss_standby(chosen);
        self.lead(chosen);
        self.tasks[chosen].thread.wake();
        true
    }

    /// Registers a thread that serves nothing and waits for the front, as `guest`. Returns whether it has to read the links meanwhile.
    pub(crate) fn guest_leads(&mut self, guest: usize) -> bool {
        let leads = self.leader.is_none() && !self.appoint();
        if leads {
            self.lead(guest);
        }
        leads
    }

    /// Ends the guest's wait, and its leadership if it had it.
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

    /// Records that thread `me` is awake again.
    pub(crate) fn awake(&mut self, me: usize) {
        self.idle.retain(|&idle| idle != me);
        self.place.dismiss_standby(me);
    }

    /// Decides whether the request that begins is sampled. Never with a single thread, where the result is not used.
    #[inline]
    pub(crate) fn samples(&mut self) -> bool {
        self.begun = self.begun.wrapping_add(1);
        self.options.threads_max > 1 && self.options.fibers == 0 && self.begun.is_multiple_of(SAMPLE_EVERY)
    }

    // Threads that serve with fibers. They take several requests at a time, so leadership is decided when a thread starts and stops
    // waiting.

    /// Decides what the loop of thread `me` does next. `can_take`: the loop has an idle fiber.
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
            // The standby is serving a request, and may be back soon.
            None => !self.place.is_standby(me),
        };
        if leads {
            self.lead(me);
        }
        FiberStep::Wait { leads }
    }

    /// Takes up the next request that has not been returned, for a fiber of thread `me`.
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

    /// Records that thread `me` enters ready fibers and does not read the links meanwhile.
    pub(crate) fn fiber_works(&mut self, me: usize, now_us: u64) -> Help {
        self.place.dismiss_standby(me);
        if self.leader == Some(me) { self.step_down(me, now_us) } else { Help::None }
    }

    /// Records that thread `me` is about to wait and does not read the links.
    pub(crate) fn fiber_idles(&mut self, me: usize) {
        self.idle.push(me);
    }

    /// Records that thread `me` has stopped waiting. `leads`: it reads the links from now on.
    pub(crate) fn fiber_awake(&mut self, me: usize, leads: bool) {
        self.idle.retain(|&idle| idle != me);
        if leads {
            self.place.dismiss_standby(me);
        }
    }

    /// Records that a fiber serves the task's request.
    pub(crate) fn fiber_begins(&mut self, task: &'static Task) {
        self.by_request.insert((task.link.get(), task.id.get()), task);
        self.scoreboard.serves(self.active as u64);
    }

    /// Records that a fiber has finished the task's request.
    pub(crate) fn fiber_ends(&mut self, task: &'static Task) {
        self.by_request.remove(&(task.link.get(), task.id.get()));
        self.scoreboard.serves(self.active as u64);
    }

    /// Takes the requests of thread `me` for which a message from the front has arrived.
    pub(crate) fn take_woken(&mut self, me: usize) -> Vec<&'static Task> {
        if self.woken.is_empty() {
            return Vec::new();
        }
        let (mine, others) =
            std::mem::take(&mut self.woken).into_iter().partition(|task| task.thread.index == me);
        self.woken = others;
        mine
    }

    /// Lists the requests being served by fibers.
    pub(crate) fn fibers_serving(&self) -> impl Iterator<Item = &'static Task> + '_ {
        self.by_request.values().copied()
    }

    /// Marks the worker as finished and wakes all its threads.
    fn finish(&mut self) {
        self.finished = true;
        self.tasks.iter().for_each(|task| task.thread.wake());
    }

    /// Records that its partner, the worker of the fibers, has finished.
    pub(crate) fn is_alone_now(&mut self) {
        self.pair = Pair::None;
        self.tasks.iter().for_each(|task| task.thread.wake());
    }

    /// Returns whether the thread that reads the links has nothing else to wait for.
    pub(crate) fn only_reads(&self) -> bool {
        self.options.threads_max == 1 && !matches!(self.pair, Pair::Threads(_))
    }

    /// Records a request that has just finished: its duration, the time it was queued and, if it was sampled, its time off the
    /// processor.
    #[inline]
    pub(crate) fn record(&mut self, now_us: u64, took_us: u64, queued_us: u64, off_us: Option<u64>) {
        self.recent_us = took_us.max(self.recent_us - self.recent_us / 32);
        // If this thread waited, other threads may have checked meanwhile.
        let unseen_us = took_us.min(now_us.saturating_sub(self.looked_us));
        self.unseen_us = unseen_us.max(self.unseen_us - self.unseen_us / 32);
        self.patience_us = (queued_us / PATIENCE).clamp(BATCH_US, LONGEST_US);
        if let Some(off_us) = off_us {
            let waited = if off_us > WAITED_US { 256 } else { 0 };
            self.waits = (self.waits * 7 + waited) / 8;
        }
    }

    /// Handles a frame other than REQUEST.
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
            // The thread that made the offer may have stopped waiting.
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

    /// Wakes the task's thread, and all other threads and fibers that wait for news of its request.
    fn wake(&mut self, gvl: &Gvl, task: &'static Task) {
        task.tell(gvl);
        if task.fiber.is_none() {
            return task.thread.wake();
        }
        self.woken.push(task);
        // The leader checks when it has read everything.
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
