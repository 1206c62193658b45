//! What the threads of a worker share: links, the inbox, and who does what.
//!
//! Roles, when there is more than one thread (docs/wire.md knows nothing of them):
//! 1. At most one thread is the *leader*: it alone waits for the links and reads them.
//! 2. A leader that takes a request gives leadership up. If the app has been slow of late, or waits for something else
//!    in most requests (a database: meanwhile another thread could run), it appoints an idle thread at once. If not, it
//!    serves alone what has come, for waking another thread costs more than a fast request; but one idle thread, the
//!    *standby*, looks after [`PATIENCE`] whether it got stuck, and takes over.
//! 3. All other idle threads sleep until they are called. An idle worker makes no wake-ups.

use crate::link::{Job, Link, Word};
use crate::raw::gvl::Guarded;
use crate::raw::os::{self, Alarm};
use crate::scoreboard::Scoreboard;
use crate::task::{Loan, Task};
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// An answer may wait this long for company, in microseconds.
const COMPANY_US: u64 = 250;
/// This many bytes are sent at once.
const ENOUGH: usize = 64 << 10;
/// Requests that take longer than this are slow, in microseconds.
pub(crate) const SLOW_US: u64 = 1000;
/// One request of so many is looked at for how much of its time it waited.
const SAMPLE: u32 = 8;
/// A request that is off the processor for longer than this has waited for something, in microseconds.
const WAITED_US: u64 = 20;
/// How long a thread may be at a request before another takes over reading.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1);

/// How the worker was told to run.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) threads_min: usize,
    pub(crate) threads_max: usize,
    /// Bytes that a response head may have.
    pub(crate) max_head: usize,
    /// Whether the app's Rack is 3 or later.
    pub(crate) rack3: bool,
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
    /// Decaying maximum of what requests took of late, microseconds.
    recent_us: u64,
    begun: u32,
    /// Share of the sampled requests that waited, in 1/256; the latest count most.
    waits: u32,
    pub(crate) draining: bool,
    pub(crate) finished: bool,
}

// The worker is made after the fork; before it there are no threads to share it with.
static WORKER: Guarded<Option<Worker>> = Guarded::new(None);

/// Nobody reads the links: all awake threads are at requests.
static LEADERLESS: AtomicBool = AtomicBool::new(false);
/// When the last thread that could have led went to a request, microseconds.
static ALONE_SINCE: AtomicU64 = AtomicU64::new(0);
/// The alarm is set.
static ARMED: AtomicBool = AtomicBool::new(false);
/// The standby's index plus one; 0 when there is none.
static STANDBY: AtomicUsize = AtomicUsize::new(0);
static ABANDONED: AtomicBool = AtomicBool::new(false);
static ALARM: OnceLock<Alarm> = OnceLock::new();

/// Borrows the worker. The closure does not call Ruby.
#[inline]
pub(crate) fn worker<R>(f: impl FnOnce(&mut Worker) -> R) -> R {
    WORKER.with(|worker| f(worker.as_mut().expect("the worker has been set up")))
}

/// Whether this is a child that the app has forked from a worker.
#[inline]
pub(crate) fn is_abandoned() -> bool {
    ABANDONED.load(Relaxed)
}

/// Whether this process serves (and is not a template or a child that the app has forked).
pub(crate) fn is_set_up() -> bool {
    WORKER.with(|worker| worker.is_some())
}

/// What a thread does next.
pub(crate) enum Step {
    Run(Job, Help),
    Read,
    Sleep,
    Stop,
}

/// What has to be done, beside the work, so that the links stay watched.
#[derive(PartialEq, Eq)]
pub(crate) enum Help {
    None,
    /// Start one more thread: the one with this index.
    Spawn(usize),
    /// Set the alarm.
    Watch,
}

impl Worker {
    pub(crate) fn install(
        options: Options,
        fds: &[RawFd],
        scoreboard: Scoreboard,
        tasks: Vec<&'static Task>,
    ) {
        let links = (0u32..).zip(fds).map(|(number, &fd)| Link::new(number, fd)).collect();
        #[rustfmt::skip]
        let worker = Worker {
            options, links, inbox: VecDeque::new(), tasks, scoreboard, leader: None, idle: Vec::new(), active: 0,
            recent_us: 0, begun: 0, waits: 0, draining: false, finished: false,
        };
        WORKER.with(|slot| *slot = Some(worker));
    }

    /// Leaves the links to the parent process. In a child that the app has forked.
    pub(crate) fn abandon() {
        WORKER.with(|slot| {
            for worker in slot.iter() {
                worker.links.iter().for_each(|link| os::close(link.fd));
                worker.tasks.iter().for_each(|task| task.return_loan());
            }
            *slot = None;
        });
        ABANDONED.store(true, Relaxed);
    }

    /// Whether answers should be sent before anything else is done.
    #[inline]
    pub(crate) fn must_send(&self, now_us: u64) -> bool {
        self.links.iter().any(|link| {
            let waiting = link.waiting();
            waiting > 0
                && (self.inbox.is_empty()
                    || waiting > ENOUGH
                    || self.recent_us > SLOW_US
                    || now_us.saturating_sub(link.oldest_us) > COMPANY_US)
        })
    }

    /// Decides what thread `me` does next.
    #[inline]
    pub(crate) fn step(&mut self, me: usize, now_us: u64) -> Step {
        if self.finished {
            return Step::Stop;
        }
        if let Some(job) = self.inbox.pop_front() {
            self.active += 1;
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

    /// Gives leadership up, if thread `me` has it, because it goes on to run the app.
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
        ALONE_SINCE.store(now_us, Relaxed);
        if STANDBY.load(Relaxed) == 0 {
            let Some(&chosen) = self.idle.last() else { return self.more() };
            STANDBY.store(chosen + 1, Relaxed);
            self.tasks[chosen].bell.ring();
        }
        if ARMED.swap(true, Relaxed) { Help::None } else { Help::Watch }
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

    /// Whether the request that begins is one to look at; never with a single thread, where it changes nothing.
    #[inline]
    pub(crate) fn samples(&mut self) -> bool {
        self.begun = self.begun.wrapping_add(1);
        self.options.threads_max > 1 && self.begun.is_multiple_of(SAMPLE)
    }

    /// Notes how long a request took and, of a sampled one, how much of that it was off the processor.
    #[inline]
    pub(crate) fn note(&mut self, took_us: u64, off_us: Option<u64>) {
        self.recent_us = took_us.max(self.recent_us - self.recent_us / 32);
        if let Some(off_us) = off_us {
            let waited = if off_us > WAITED_US { 256 } else { 0 };
            self.waits = (self.waits * 7 + waited) / 8;
        }
    }

    /// Acts on what the front said beside requests.
    pub(crate) fn hear(&mut self, link: u32, word: &Word) {
        match *word {
            Word::Drain => self.draining = true,
            Word::Window { id, bytes } => {
                if let Some(task) = self.serving(link, id) {
                    task.window.set(task.window.get() + i64::from(bytes));
                    task.wake();
                }
            }
            // Who asked for it may have gone on without it.
            Word::Lend { id, fd } => {
                match self.serving(link, id).filter(|task| task.loan.get() == Loan::Asked) {
                    Some(task) => {
                        task.loan.set(fd.map_or(Loan::Declined, Loan::Lent));
                        task.wake();
                    }
                    None => fd.into_iter().for_each(os::close),
                }
            }
            Word::Abort { id } => match self.serving(link, id) {
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

/// The alarm by which the standby watches.
pub(crate) fn alarm() -> &'static Alarm {
    ALARM.get_or_init(|| Alarm::new().expect("a timer descriptor"))
}

/// Whether thread `me` is the standby. Needs no GVL.
pub(crate) fn is_standby(me: usize) -> bool {
    STANDBY.load(Relaxed) == me + 1
}

/// The alarm rang: whether the standby should take over. Sets the alarm again while it may still have to. Needs no GVL.
pub(crate) fn must_take_over(now_us: u64) -> bool {
    ARMED.store(false, Relaxed);
    if !LEADERLESS.load(Relaxed) {
        return false;
    }
    let alone = now_us.saturating_sub(ALONE_SINCE.load(Relaxed));
    if alone >= PATIENCE.as_micros() as u64 {
        return true;
    }
    if !ARMED.swap(true, Relaxed) {
        alarm().set(PATIENCE - Duration::from_micros(alone));
    }
    false
}
