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
use crate::raw::gvl::{Guarded, Gvl};
use crate::raw::os::{self, Timer};
use crate::scoreboard::Scoreboard;
use crate::task::{Loan, Task};
use crate::watchdog::{self, Port};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// A finished response waits at most this long to be sent with others, in microseconds.
const BATCH_US: u64 = 250;
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
    /// Largest response head, in bytes.
    pub(crate) max_head: usize,
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
    begun: u32,
    /// Share of the sampled requests that waited, in 1/256; recent ones count most.
    waits: u32,
    pub(crate) draining: bool,
    pub(crate) finished: bool,
}

// Set after the fork.
static WORKER: Guarded<Option<Worker>> = Guarded::new(None);

/// No thread reads the links: all that are awake serve requests.
static LEADERLESS: AtomicBool = AtomicBool::new(false);
/// When the last leader took up a request, microseconds.
static LEADERLESS_SINCE: AtomicU64 = AtomicU64::new(0);
/// The timer of the standby is set.
static ARMED: AtomicBool = AtomicBool::new(false);
/// The standby's index plus one; 0 when there is none.
static STANDBY: AtomicUsize = AtomicUsize::new(0);
static ABANDONED: AtomicBool = AtomicBool::new(false);
static TIMER: OnceLock<Timer> = OnceLock::new();

/// Borrows the worker.
#[inline]
pub(crate) fn worker<R>(gvl: &Gvl, f: impl FnOnce(&mut Worker) -> R) -> R {
    WORKER.with(gvl, |worker| f(worker.as_mut().expect("the worker has been set up")))
}

/// Whether this is a child that the app has forked from a worker.
#[inline]
pub(crate) fn is_abandoned() -> bool {
    ABANDONED.load(Relaxed)
}

/// Whether this process serves requests: it is neither the template nor a child that the app has forked.
pub(crate) fn is_set_up(gvl: &Gvl) -> bool {
    WORKER.with(gvl, |worker| worker.is_some())
}

/// What a thread does next.
pub(crate) enum Step {
    Run(Job, Help),
    Read,
    Sleep,
    Stop,
}

/// What must be done, besides serving the request, so that the links are still read.
#[derive(PartialEq, Eq)]
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
            recent_us: 0, begun: 0, waits: 0, draining: false, finished: false,
        };
        WORKER.with(gvl, |slot| *slot = Some(worker));
    }

    /// Closes the links in a child that the app has forked; they belong to the parent.
    pub(crate) fn abandon(gvl: &Gvl) {
        WORKER.with(gvl, |slot| {
            for worker in slot.iter() {
                worker.links.iter().for_each(|link| os::close(link.fd));
                worker.tasks.iter().for_each(|task| task.return_loan());
            }
            *slot = None;
        });
        ABANDONED.store(true, Relaxed);
    }

    /// Whether finished responses must be sent before the next request is taken up.
    #[inline]
    pub(crate) fn must_send(&self, now_us: u64) -> bool {
        self.links.iter().any(|link| {
            let unsent = link.outbox().unsent();
            unsent > 0
                && (self.inbox.is_empty()
                    || unsent > BATCH_BYTES
                    || self.recent_us > SLOW_US
                    || link.outbox().age_us(now_us) > BATCH_US)
        })
    }

    /// Decides what thread `me` does next.
    #[inline]
    pub(crate) fn step(&mut self, me: usize, now_us: u64) -> Step {
        if self.finished {
            return Step::Stop;
        }
        while let Some(job) = self.inbox.pop_front() {
            if !self.links[job.link as usize].take_up() {
                job.discard();
                continue;
            }
            self.active += 1;
            watchdog::begun();
            let help = self.step_down(me, now_us);
            return Step::Run(job, help);
        }
        if self.draining && self.active == 0 {
            self.finished = true;
            self.tasks.iter().for_each(|task| task.wake());
            return Step::Stop;
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
        LEADERLESS.store(false, Relaxed);
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
        LEADERLESS.store(true, Relaxed);
        LEADERLESS_SINCE.store(now_us, Relaxed);
        if STANDBY.load(Relaxed) == 0 {
            let Some(&chosen) = self.idle.last() else { return self.more() };
            STANDBY.store(chosen + 1, Relaxed);
            self.tasks[chosen].wakeup.wake();
        }
        if ARMED.swap(true, Relaxed) { Help::None } else { Help::SetTimer }
    }

    /// Makes an idle thread the leader, if there is one.
    pub(crate) fn appoint(&mut self) -> bool {
        let Some(chosen) = self.idle.pop() else { return false };
        if STANDBY.load(Relaxed) == chosen + 1 {
            STANDBY.store(0, Relaxed);
        }
        self.lead(chosen);
        self.tasks[chosen].wake();
        true
    }

    fn more(&mut self) -> Help {
        if self.tasks.len() < self.options.threads_max { Help::Spawn(self.tasks.len()) } else { Help::None }
    }

    /// Thread `me` is awake again.
    pub(crate) fn awake(&mut self, me: usize) {
        self.idle.retain(|&idle| idle != me);
        if STANDBY.load(Relaxed) == me + 1 {
            STANDBY.store(0, Relaxed);
        }
    }

    /// Whether the request that begins is sampled; never with a single thread, where nothing depends on it.
    #[inline]
    pub(crate) fn samples(&mut self) -> bool {
        self.begun = self.begun.wrapping_add(1);
        self.options.threads_max > 1 && self.begun.is_multiple_of(SAMPLE_EVERY)
    }

    /// Records how long a request took and, for a sampled one, how long it was off the processor.
    #[inline]
    pub(crate) fn record(&mut self, took_us: u64, off_us: Option<u64>) {
        self.recent_us = took_us.max(self.recent_us - self.recent_us / 32);
        if let Some(off_us) = off_us {
            let waited = if off_us > WAITED_US { 256 } else { 0 };
            self.waits = (self.waits * 7 + waited) / 8;
        }
    }

    /// Acts on a frame other than REQUEST.
    pub(crate) fn handle(&mut self, link: u32, message: &Message) {
        match *message {
            Message::Drain => self.draining = true,
            Message::Window { id, bytes } => {
                if let Some(task) = self.serving(link, id) {
                    task.window.set(task.window.get() + i64::from(bytes));
                    task.wake();
                }
            }
            // The thread that offered may have stopped waiting.
            Message::Lend { id, fd } => {
                match self.serving(link, id).filter(|task| task.loan.get() == Loan::Offered) {
                    Some(task) => {
                        task.loan.set(fd.map_or(Loan::Declined, Loan::Lent));
                        task.wake();
                    }
                    None => fd.into_iter().for_each(os::close),
                }
            }
            Message::Abort { id } => match self.serving(link, id) {
                Some(task) => {
                    task.gone.set(true);
                    task.wake();
                }
                None => {
                    let waiting = self.inbox.iter_mut().find(|job| job.link == link && job.id == id);
                    waiting.into_iter().for_each(|job| job.gone = true);
                }
            },
        }
    }

    fn serving(&self, link: u32, id: u32) -> Option<&'static Task> {
        self.tasks
            .iter()
            .copied()
            .find(|task| task.active.get() && task.link.get() == link && task.id.get() == id)
    }
}

/// The timer of the standby.
pub(crate) fn timer() -> &'static Timer {
    TIMER.get_or_init(|| Timer::new().expect("a timer descriptor"))
}

/// Whether thread `me` is the standby. Needs no GVL.
pub(crate) fn is_standby(me: usize) -> bool {
    STANDBY.load(Relaxed) == me + 1
}

/// The timer has expired: whether the standby takes over. Sets the timer again while it may still have to. Needs no GVL.
pub(crate) fn must_take_over(now_us: u64) -> bool {
    ARMED.store(false, Relaxed);
    if !LEADERLESS.load(Relaxed) {
        return false;
    }
    let leaderless_us = now_us.saturating_sub(LEADERLESS_SINCE.load(Relaxed));
    if leaderless_us >= STANDBY_AFTER.as_micros() as u64 {
        return true;
    }
    if !ARMED.swap(true, Relaxed) {
        timer().set(STANDBY_AFTER - Duration::from_micros(leaderless_us));
    }
    false
}
