//! A native thread that works without the GVL: it sends responses and returns requests while the serving
//! threads are busy.
//!
//! Why: a serving thread sends finished responses in batches, and receives requests in advance. When its next
//! request turns out to be slow, both would wait for it, and no Ruby thread can help while an extension holds
//! the GVL.
//!
//! Contract:
//! 1. A finished response waits at most about [`TICK`] behind a running request. The same holds for the
//!    gathered chunks of an unfinished response.
//! 2. When no request has been taken up for [`RETURN_US`] ([`RETURN_FROM_FIBERS_US`]) while some wait, the
//!    waiting ones are returned to the front (docs/internals/wire.md, "Returning requests"). Requests that
//!    arrive later are returned only after the serving threads have had their turns with the GVL
//!    ([`TURN_US`]): the thread that would take them up may be waiting for its turn.
//! 3. The thread sleeps while no request is being served, and checks less and less often while one takes long.
//! 4. It can be stopped, so that a fork leaves the child no lock held by a thread that the child does not have.
//! 5. With fibers it detects loops that have been blocked for long, and wakes the thread that takes their
//!    backtraces ([`crate::fibers::blocking`]).
//! 6. It looks for threads that keep the GVL while no request is taken up ([`crate::raw::hold`]).
//! 7. It allocates nothing: a second arena of malloc would cost each worker memory.

use crate::intake::Intake;
use crate::outbox::Outbox;
use crate::raw::hold::Hold;
use crate::raw::os::{self, Wait, Wakeup, Work};
use crate::raw::slice;
use crate::stretch::Stretch;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use wire::FrameKind;

/// Time between checks while requests are taken up.
const TICK: Duration = Duration::from_millis(3);
/// Longest time between checks while a request takes long.
const LONGEST: Duration = Duration::from_millis(250);
/// Responses younger than this are left to the thread that made them, in microseconds.
const FRESH_US: u64 = 1_000;
/// Time without progress after which a computing thread may keep the GVL, in microseconds.
const STILL_US: u64 = 5_000;
/// Time without progress after which waiting requests are returned, microseconds.
const RETURN_US: u64 = 10_000;
/// The same with fibers. There only a computing request makes others wait, and a collection that scans
/// thousands of stacks takes a while.
const RETURN_FROM_FIBERS_US: u64 = 200_000;
/// The time for which Ruby leaves the GVL to a computing thread while others wait for it, in microseconds.
const TURN_US: u64 = 100_000;

/// The part of a link that the watchdog uses.
pub(crate) struct Port {
    pub(crate) fd: RawFd,
    pub(crate) outbox: Outbox,
    pub(crate) intake: Intake,
    /// Whether the link had unread bytes at the last check.
    unread: AtomicBool,
}

impl Port {
    pub(crate) fn new(fd: RawFd) -> Port {
        Port { fd, outbox: Outbox::new(fd), intake: Intake::new(), unread: AtomicBool::new(false) }
    }
}

pub(crate) struct Watchdog {
    active: AtomicUsize,
    /// The thread sleeps for longer than a tick, and must be woken when a request is taken up.
    dozing: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
    /// The ports of this process. A forked child replaces those of its parent.
    ports: Mutex<&'static [Port]>,
    running: AtomicBool,
    stop: AtomicBool,
    /// Requests are served by fibers.
    fibers: AtomicBool,
    /// The stretches of the threads whose loops are watched.
    stretches: Mutex<Vec<&'static Stretch>>,
    /// The threads that are watched for keeping the GVL.
    holds: Mutex<Vec<&'static Hold>>,
    /// Half of the time that a loop may be blocked, in microseconds; 0 while none is watched.
    half_us: AtomicU64,
    /// Wakes the thread that takes the backtrace of a loop that has been blocked for that long.
    sampler: OnceLock<Wakeup>,
}

impl Watchdog {
    pub(crate) const fn new() -> Watchdog {
        Watchdog {
            active: AtomicUsize::new(0),
            dozing: AtomicBool::new(false),
            lock: Mutex::new(()),
            wake: Condvar::new(),
            ports: Mutex::new(&[]),
            running: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            fibers: AtomicBool::new(false),
            stretches: Mutex::new(Vec::new()),
            holds: Mutex::new(Vec::new()),
            half_us: AtomicU64::new(0),
            sampler: OnceLock::new(),
        }
    }

    /// Starts the thread. Once only, until it has been stopped and reset.
    ///
    /// # Errors
    /// As pthread_create(3).
    pub(crate) fn start(&'static self, ports: &'static [Port], fibers: bool) -> io::Result<()> {
        self.fibers.store(fibers, SeqCst);
        *self.ports.lock().unwrap_or_else(PoisonError::into_inner) = ports;
        self.running.store(true, SeqCst);
        os::native_thread(self).inspect_err(|_| self.running.store(false, SeqCst))
    }

    /// Ends the thread, and returns when it holds no lock any more.
    pub(crate) fn stop(&self) {
        self.stop.store(true, SeqCst);
        self.wake();
        let mut guard = self.lock();
        while self.running.load(SeqCst) {
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Resets the state to that before the first start. Call it after [`Watchdog::stop`].
    pub(crate) fn reset(&self) {
        self.active.store(0, SeqCst);
        self.dozing.store(false, SeqCst);
        self.stop.store(false, SeqCst);
        self.stretches().clear();
        self.holds().drain(..).for_each(Hold::forget);
        self.half_us.store(0, SeqCst);
    }

    fn stretches(&self) -> MutexGuard<'_, Vec<&'static Stretch>> {
        self.stretches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn holds(&self) -> MutexGuard<'_, Vec<&'static Hold>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a thread for keeping the GVL.
    pub(crate) fn watch_hold(&self, hold: &'static Hold) {
        self.holds().push(hold);
    }

    /// Reverses [`Watchdog::watch_hold`].
    pub(crate) fn leave_hold(&self, hold: &'static Hold) {
        self.holds().retain(|one| !std::ptr::eq(*one, hold));
    }

    /// Watches a thread's loop, which may be blocked for `us`. Returns whether it is the first.
    pub(crate) fn watch_stretches(&self, stretch: &'static Stretch, us: u64) -> bool {
        let mut stretches = self.stretches();
        let first = stretches.is_empty();
        // An inherited wakeup would wake the parent's thread as well.
        if first && self.sampler.get().is_some_and(|wakeup| wakeup.renew().is_err()) {
            return false;
        }
        if self.sampler.get().is_none() {
            let Ok(wakeup) = Wakeup::new() else { return false };
            let _ = self.sampler.set(wakeup);
        }
        stretches.push(stretch);
        self.half_us.store(us / 2, SeqCst);
        first
    }

    /// Closes the sampler's wakeup, in a child that the app has forked.
    pub(crate) fn close(&self) {
        self.sampler.get().into_iter().for_each(Wakeup::close);
    }

    /// Reverses [`Watchdog::watch_stretches`].
    pub(crate) fn leave_stretches(&self, stretch: &'static Stretch) {
        let mut stretches = self.stretches();
        stretches.retain(|one| !std::ptr::eq(*one, stretch));
        if stretches.is_empty() {
            self.half_us.store(0, SeqCst);
            self.sampler.get().into_iter().for_each(Wakeup::wake);
        }
    }

    pub(crate) fn watches_stretches(&self) -> bool {
        self.half_us.load(SeqCst) != 0
    }

    /// Returns the wakeup of the thread that takes backtraces.
    ///
    /// # Panics
    /// When no loop has ever been watched.
    pub(crate) fn sampler(&self) -> &Wakeup {
        self.sampler.get().expect("a loop is watched")
    }

    /// Detects blocked loops. Returns the time until the next check; `None` when no loop is watched.
    fn check_stretches(&self, now_us: u64) -> Option<Duration> {
        let half_us = self.half_us.load(SeqCst);
        if half_us == 0 {
            return None;
        }
        if self.stretches().iter().filter(|stretch| stretch.notice(half_us, now_us)).count() > 0 {
            self.sampler.get().into_iter().for_each(Wakeup::wake);
            slice::ask_from_elsewhere();
        }
        Some(Duration::from_micros(half_us))
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request that has been taken up.
    #[inline]
    pub(crate) fn begun(&self) {
        self.active.fetch_add(1, SeqCst);
        self.look();
    }

    /// Makes the watchdog check soon, because there is a request or unsent data that may wait long for its
    /// thread.
    #[inline]
    pub(crate) fn look(&self) {
        if self.dozing.load(SeqCst) {
            self.wake();
        }
    }

    /// Counts a request that has been served.
    #[inline]
    pub(crate) fn ended(&self) {
        self.active.fetch_sub(1, SeqCst);
    }

    #[cold]
    fn wake(&self) {
        let _guard = self.lock();
        self.dozing.store(false, SeqCst);
        self.wake.notify_all();
    }

    /// Does the due work. Returns the time to sleep; `None`: until a request is taken up.
    fn check(&self, ports: &[Port], progress: &mut Progress, now_us: u64) -> Option<Duration> {
        for port in ports.iter().filter(|port| port.outbox.age_us(now_us) > FRESH_US) {
            // The thread that reads the link finds the error.
            let _ = port.outbox.send();
        }
        let passed = passed(ports);
        if passed != progress.passed {
            *progress = Progress { passed, since_us: now_us };
            ports.iter().for_each(|port| port.unread.store(false, SeqCst));
            return Some(TICK);
        }
        let active = self.active.load(SeqCst);
        if active == 0 {
            return None;
        }
        if ports.iter().any(|port| port.outbox.unsent() > 0) {
            return Some(TICK);
        }
        let still_us = now_us.saturating_sub(progress.since_us);
        self.holds().iter().for_each(|hold| hold.look(still_us >= STILL_US, now_us));
        let turns_us = TURN_US * (active as u64 + 1);
        let fibers = self.fibers.load(SeqCst);
        let due = |port: &&Port| {
            still_us
                >= match port.intake.is_fresh() {
                    _ if fibers => RETURN_FROM_FIBERS_US,
                    true => turns_us,
                    false => RETURN_US,
                }
        };
        ports.iter().filter(due).for_each(|port| return_waiting(port, now_us));
        Some(Duration::from_micros(still_us / 2).clamp(TICK, LONGEST))
    }

    fn sleep(&self, ports: &[Port], seen: u64, time: Option<Duration>) {
        let dozes = time.is_none_or(|time| time > TICK);
        let mut guard = self.lock();
        self.dozing.store(dozes, SeqCst);
        if self.stop.load(SeqCst) || (dozes && passed(ports) != seen) {
            self.dozing.store(false, SeqCst);
            return;
        }
        match time {
            None => {
                while self.dozing.load(SeqCst) {
                    guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
                }
            }
            // Waking early is harmless.
            Some(time) => drop(self.wake.wait_timeout(guard, time)),
        }
        self.dozing.store(false, SeqCst);
    }
}

impl Work for Watchdog {
    /// The loop of the thread.
    fn run(&self) {
        let ports = *self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let mut progress = Progress { passed: 0, since_us: os::now_us() };
        while !self.stop.load(SeqCst) {
            let now_us = os::now_us();
            let time = self.check(ports, &mut progress, now_us);
            let look = self.check_stretches(now_us);
            self.sleep(ports, progress.passed, time.map(|time| look.map_or(time, |look| time.min(look))));
        }
        let _guard = self.lock();
        self.running.store(false, SeqCst);
        self.wake.notify_all();
    }
}

/// The time of the last progress that the watchdog has seen, and the count of requests taken up then.
struct Progress {
    passed: u64,
    since_us: u64,
}

fn passed(ports: &[Port]) -> u64 {
    ports.iter().map(|port| port.intake.passed()).sum()
}

/// Returns the waiting requests of a link to the front. Unread bytes may be other frames that a thread is
/// about to read, so they count only at the second check.
fn return_waiting(port: &Port, now_us: u64) {
    if port.intake.is_closed() {
        return;
    }
    let unread = Wait::is_readable(port.fd);
    let still_unread = unread && port.unread.swap(unread, SeqCst);
    if !still_unread && !port.intake.is_waiting() {
        port.unread.store(unread, SeqCst);
        return;
    }
    if let Some(from) = port.intake.close() {
        let frame =
            |out: &mut Vec<u8>| wire::frame::append(out, FrameKind::Returned, 0, 0, &from.to_le_bytes());
        port.outbox.append(now_us, None, frame);
        let _ = port.outbox.send();
    }
}
