//! The places of a process, one for each of its workers, and the state that a worker's threads share without the GVL.
//!
//! A forked worker is at place 0; if it has fibers beside its threads, the fibers' worker is at another place. The servers that a Ruby process has
//! started for its own apps (`Firebrick::Server`) are attached workers, one at each of the other places. A thread belongs to one place for life.
//!
//! Contract: a place is reused when its worker has been released. In a forked child, places that were in use at the fork are not reused: threads that
//! the child does not have may hold their locks.

use crate::env;
use crate::raw::gvl::{Guarded, Gvl};
use crate::raw::os::Timer;
use crate::raw::ruby::{NIL, Value};
use crate::raw::slots::Slot;
use crate::watchdog::Watchdog;
use crate::worker::STANDBY_AFTER;
use std::cell::Cell;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// The number of places.
pub(crate) const PLACES: usize = 64;

pub(crate) struct Place {
    /// No thread reads the links: all threads that are awake serve requests.
    leaderless: AtomicBool,
    /// When the last leader took up a request, in microseconds.
    leaderless_since: AtomicU64,
    armed: AtomicBool,
    /// The standby's index plus one; 0 when there is none.
    standby: AtomicUsize,
    timer: OnceLock<Timer>,
    pub(crate) watchdog: Watchdog,
    app: OnceLock<&'static Slot>,
    base: OnceLock<&'static Slot>,
}

static ALL: [Place; PLACES] = [const { Place::new() }; PLACES];

/// Places that must not be reused, one bit each.
static BURNT: Guarded<u64> = Guarded::new(0);

const _: () = assert!(PLACES <= u64::BITS as usize);

thread_local! {
    static HERE: Cell<usize> = const { Cell::new(0) };
}

/// Returns the number of the calling thread's place.
#[inline]
pub(crate) fn here() -> usize {
    HERE.get()
}

/// Returns the calling thread's place.
#[inline]
pub(crate) fn place() -> &'static Place {
    &ALL[here()]
}

pub(crate) fn at(number: usize) -> &'static Place {
    &ALL[number]
}

/// Assigns the calling thread to this place.
pub(crate) fn settle(number: usize) {
    HERE.set(number);
}

/// Calls `f` as a thread of the place with this number. `f` must not raise.
pub(crate) fn within<R>(number: usize, f: impl FnOnce() -> R) -> R {
    let before = HERE.replace(number);
    let result = f();
    HERE.set(before);
    result
}

/// Bars a place from reuse, in a child that was forked while a worker was there.
pub(crate) fn burn(gvl: &Gvl, number: usize) {
    BURNT.with(gvl, |burnt| *burnt |= 1 << number);
}

/// Reverses [`burn`]: no thread held a lock of the place when the process was forked.
pub(crate) fn mend(gvl: &Gvl, number: usize) {
    BURNT.with(gvl, |burnt| *burnt &= !(1 << number));
}

pub(crate) fn is_burnt(gvl: &Gvl, number: usize) -> bool {
    BURNT.with(gvl, |burnt| *burnt & (1 << number) != 0)
}

impl Place {
    const fn new() -> Place {
        Place {
            leaderless: AtomicBool::new(false),
            leaderless_since: AtomicU64::new(0),
            armed: AtomicBool::new(false),
            standby: AtomicUsize::new(0),
            timer: OnceLock::new(),
            watchdog: Watchdog::new(),
            app: OnceLock::new(),
            base: OnceLock::new(),
        }
    }

    /// Sets the app for all requests and the env that all templates start from; nil for none.
    pub(crate) fn set_app(&self, gvl: &mut Gvl, app: Value, base: Value) {
        self.app.get_or_init(|| Slot::leak(gvl, app)).set(app);
        self.base.get_or_init(|| Slot::leak(gvl, base)).set(base);
    }

    pub(crate) fn app(&self) -> Value {
        self.app.get().expect("the app has been set").get()
    }

    pub(crate) fn base(&self) -> Value {
        self.base.get().expect("the base env has been set").get()
    }

    /// Clears the place after its worker has been released.
    pub(crate) fn vacate(&self, gvl: &mut Gvl) {
        self.reset();
        self.set_app(gvl, NIL, NIL);
    }

    /// Resets everything but the app, as if the place had never been used.
    pub(crate) fn reset(&self) {
        self.watchdog.reset();
        self.leaderless.store(false, Relaxed);
        self.armed.store(false, Relaxed);
        self.standby.store(0, Relaxed);
    }

    // The standby.

    pub(crate) fn timer(&self) -> &Timer {
        self.timer.get_or_init(|| Timer::new().expect("a timer descriptor"))
    }

    /// Gives this process its own timer: an inherited timer is shared with other processes.
    ///
    /// # Errors
    /// As timerfd_create(2).
    pub(crate) fn own_timer(&self) -> io::Result<()> {
        match self.timer.get() {
            Some(timer) => timer.renew(),
            None => Timer::new().map(|timer| drop(self.timer.set(timer))),
        }
    }

    /// Records that a thread is the leader.
    #[inline]
    pub(crate) fn is_led(&self) {
        self.leaderless.store(false, Relaxed);
    }

    /// Records that the leader has taken up a request, and no other thread reads the links.
    #[inline]
    pub(crate) fn is_leaderless(&self, now_us: u64) {
        self.leaderless.store(true, Relaxed);
        self.leaderless_since.store(now_us, Relaxed);
    }

    #[inline]
    pub(crate) fn has_standby(&self) -> bool {
        self.standby.load(Relaxed) != 0
    }

    /// Returns whether thread `me` is the standby. Needs no GVL.
    pub(crate) fn is_standby(&self, me: usize) -> bool {
        self.standby.load(Relaxed) == me + 1
    }

    pub(crate) fn choose_standby(&self, thread: usize) {
        self.standby.store(thread + 1, Relaxed);
    }

    pub(crate) fn dismiss_standby(&self, thread: usize) {
        if self.is_standby(thread) {
            self.standby.store(0, Relaxed);
        }
    }

    /// Records that the timer is set. Returns whether it was not set before.
    #[inline]
    pub(crate) fn arm(&self) -> bool {
        !self.armed.swap(true, Relaxed)
    }

    /// Decides, when the timer has expired, whether the standby takes over. Sets the timer again if it may have to later. Needs no GVL.
    pub(crate) fn must_take_over(&self, now_us: u64) -> bool {
        self.armed.store(false, Relaxed);
        if !self.leaderless.load(Relaxed) {
            return false;
        }
        let leaderless_us = now_us.saturating_sub(self.leaderless_since.load(Relaxed));
        if leaderless_us >= STANDBY_AFTER.as_micros() as u64 {
            return true;
        }
        if self.arm() {
            self.timer().set(STANDBY_AFTER - Duration::from_micros(leaderless_us));
        }
        false
    }
}

/// Makes an env template for a thread of the calling thread's place.
pub(crate) fn env_template(gvl: &mut Gvl) -> Value {
    env::template(gvl, place().base())
}
