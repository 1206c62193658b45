//! The deadlines of all connections of a thread, checked a few times a second.
//!
//! Why: a timer per request would cost more than parsing the request, and nothing here needs milliseconds.
//! Setting a deadline is a store into a slab. A sweep over 10,000 deadlines reads a few hundred kilobytes in
//! order.
//!
//! Contract:
//! 1. A deadline never fires early, and at most about two [`TICK`]s late while [`Timers::run`] is polled.
//!    This also holds after the thread was idle or did not run for a long time: deadlines without a clock
//!    reading count from the next sweep.
//! 2. Firing wakes the connection's task once. The connection asks [`Timer::expired`] for each lane.
//! 3. Without connections there are no sweeps.

use slab::Slab;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Notify;

/// The interval between two sweeps.
const TICK: Duration = Duration::from_millis(100);
const NEVER: u64 = u64::MAX;
/// Marks a deadline that counts from the next sweep. The other bits are its milliseconds.
const FROM_SWEEP: u64 = 1 << 63;
/// The longest duration in milliseconds. Longer ones are treated alike: no clock runs for so long.
const LONGEST: u64 = 1 << 62;

/// The purpose of a deadline. A connection can wait for bytes to read and for room to write at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    Read = 0,
    Write = 1,
}

#[derive(Debug, Default)]
struct Slot {
    deadlines: [Cell<u64>; 2],
    expired: [Cell<bool>; 2],
    waker: RefCell<Option<Waker>>,
}

/// The deadlines of one thread's connections, and its clocks.
#[derive(Debug)]
pub struct Timers {
    base: Instant,
    /// The last clock reading.
    recent: Cell<Instant>,
    wall: Cell<SystemTime>,
    /// The last result of [`Timers::wall`], shared by requests that arrive together.
    shown: Cell<(Instant, SystemTime)>,
    slots: RefCell<Slab<Slot>>,
    populated: Notify,
}

impl Timers {
    /// Creates the timers of this thread. [`Timers::run`] must be polled on the same thread.
    pub fn new() -> Rc<Timers> {
        let (base, wall) = (Instant::now(), SystemTime::now());
        Rc::new(Timers {
            base,
            recent: Cell::new(base),
            wall: Cell::new(wall),
            shown: Cell::new((base, wall)),
            slots: RefCell::default(),
            populated: Notify::new(),
        })
    }

    /// Sweeps for as long as it is polled. Never returns.
    pub async fn run(&self) {
        loop {
            while self.slots.borrow().is_empty() {
                self.populated.notified().await;
            }
            tokio::time::sleep(TICK).await;
            self.sweep(self.now());
        }
    }

    /// Fires the deadlines that are due at `now`, and follows changes of the wall clock.
    fn sweep(&self, now: Instant) {
        if let Some(wall) = SystemTime::now().checked_sub(now.duration_since(self.base)) {
            self.wall.set(wall);
            self.shown.set((self.base, wall));
        }
        let now = self.millis(now);
        for (_, slot) in self.slots.borrow().iter() {
            let mut due = false;
            for (deadline, expired) in slot.deadlines.iter().zip(&slot.expired) {
                let at = deadline.get();
                if at <= now {
                    deadline.set(NEVER);
                    expired.set(true);
                    due = true;
                } else if at >= FROM_SWEEP && at != NEVER {
                    deadline.set(now + (at & !FROM_SWEEP));
                }
            }
            if due && let Some(waker) = &*slot.waker.borrow() {
                waker.wake_by_ref();
            }
        }
    }

    pub fn wake_all(&self) {
        for (_, slot) in self.slots.borrow().iter() {
            if let Some(waker) = &*slot.waker.borrow() {
                waker.wake_by_ref();
            }
        }
    }

    /// Wakes the connection with this [`Timer::key`].
    pub fn wake(&self, key: usize) {
        if let Some(slot) = self.slots.borrow().get(key)
            && let Some(waker) = &*slot.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    #[inline]
    pub fn now(&self) -> Instant {
        let now = Instant::now();
        self.recent.set(now);
        now
    }

    /// Returns the last clock reading, which is at most about 100 ms old while there are connections and the
    /// thread runs. For uses that tolerate an older time: reading the clock costs as much as parsing a header
    /// field.
    #[inline]
    pub fn recent(&self) -> Instant {
        self.recent.get()
    }

    /// Returns the wall-clock time at `now`, without reading a second clock.
    #[inline]
    pub fn wall(&self, now: Instant) -> SystemTime {
        let (at, wall) = self.shown.get();
        if at == now {
            return wall;
        }
        let wall = self.wall.get() + now.duration_since(self.base);
        self.shown.set((now, wall));
        wall
    }

    fn millis(&self, at: Instant) -> u64 {
        at.duration_since(self.base).as_millis() as u64
    }

    /// Adds the deadlines of a connection.
    pub fn register(self: &Rc<Timers>) -> Timer {
        let slot = Slot { deadlines: [Cell::new(NEVER), Cell::new(NEVER)], ..Slot::default() };
        let mut slots = self.slots.borrow_mut();
        if slots.is_empty() {
            // No code has read the clock since the last connection ended.
            self.now();
            self.populated.notify_one();
        }
        Timer { key: slots.insert(slot), timers: self.clone() }
    }
}

#[derive(Debug)]
pub struct Timer {
    timers: Rc<Timers>,
    key: usize,
}

impl Timer {
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&Slot) -> R) -> R {
        f(&self.timers.slots.borrow()[self.key])
    }

    /// Returns the number among the thread's timers. It is small, and reused after a drop.
    pub fn key(&self) -> usize {
        self.key
    }

    /// Sets the task to wake.
    pub fn wakes(&self, waker: &Waker) {
        self.with(|slot| {
            let mut current = slot.waker.borrow_mut();
            if current.as_ref().is_none_or(|w| !w.will_wake(waker)) {
                *current = Some(waker.clone());
            }
        });
    }

    /// Sets a deadline after `time`, without reading the clock: the time counts from the next sweep.
    #[inline]
    pub fn arm_in(&self, lane: Lane, time: Duration) {
        let millis = (time.as_millis() as u64).saturating_add(1).min(LONGEST);
        self.set(lane, FROM_SWEEP | millis);
    }

    /// Sets a deadline, and replaces the lane's last one.
    #[inline]
    pub fn arm(&self, lane: Lane, at: Instant) {
        // Rounded up, so that it never fires early.
        self.set(lane, self.timers.millis(at) + 1);
    }

    pub fn disarm(&self, lane: Lane) {
        self.set(lane, NEVER);
    }

    #[inline]
    fn set(&self, lane: Lane, deadline: u64) {
        self.with(|slot| {
            slot.deadlines[lane as usize].set(deadline);
            slot.expired[lane as usize].set(false);
        });
    }

    /// Whether the lane's last deadline has passed.
    #[inline]
    pub fn expired(&self, lane: Lane) -> bool {
        self.with(|slot| slot.expired[lane as usize].get())
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.timers.slots.borrow_mut().remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_fires_once_and_not_early() {
        let timers = Timers::new();
        let timer = timers.register();
        let at = timers.base + Duration::from_secs(5);
        timer.arm(Lane::Read, at);
        timers.sweep(at);
        assert!(!timer.expired(Lane::Read), "a deadline is rounded up");
        timers.sweep(at + Duration::from_millis(1));
        assert!(timer.expired(Lane::Read) && !timer.expired(Lane::Write));
        timer.arm(Lane::Read, at + Duration::from_secs(9));
        timers.sweep(at + Duration::from_secs(1));
        assert!(!timer.expired(Lane::Read));
        timer.disarm(Lane::Read);
        timers.sweep(at + Duration::from_secs(99));
        assert!(!timer.expired(Lane::Read));
    }

    #[test]
    fn a_time_from_now_is_not_counted_from_a_clock_that_was_not_read() {
        let timers = Timers::new();
        let timer = timers.register();
        let (second, woken) = (Duration::from_secs(1), timers.base + Duration::from_secs(60));
        timer.arm_in(Lane::Read, second);
        timers.sweep(woken);
        assert!(
            !timer.expired(Lane::Read),
            "the thread did not run for a minute, the deadline is as new as this sweep"
        );
        timers.sweep(woken + second);
        assert!(!timer.expired(Lane::Read));
        timers.sweep(woken + second + Duration::from_millis(1));
        assert!(timer.expired(Lane::Read));
        timer.arm_in(Lane::Read, Duration::MAX);
        timers.sweep(woken + second * 2);
        timers.sweep(woken + Duration::from_secs(1 << 40));
        assert!(!timer.expired(Lane::Read));
    }

    #[test]
    fn the_first_connection_after_a_pause_reads_the_clock() {
        let timers = Timers::new();
        let before = timers.recent();
        std::thread::sleep(Duration::from_millis(2));
        let _timer = timers.register();
        assert!(timers.recent() > before);
    }

    #[test]
    fn dropping_a_timer_frees_its_slot() {
        let timers = Timers::new();
        let timer = timers.register();
        assert_eq!(timers.slots.borrow().len(), 1);
        drop(timer);
        assert!(timers.slots.borrow().is_empty());
    }
}
