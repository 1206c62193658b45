//! The places of a process, one for each of its workers, and the state that a worker's threads share without the GVL.
//!
//! A forked worker is at the [`MAIN`] place. The servers that a Ruby process has started for its own apps
//! (`Firebrick::Server`) are attached workers, each at a place of its own. A thread belongs to one place for
//! life.
//!
//! Contract: a place lives as long as the process, and is reused when its worker has been released. In a
//! forked child, places that were in use at the fork are not reused: threads that the child does not have may
//! hold their locks.

use super::Worker;
use crate::raw::gvl::{Guarded, Gvl};
use crate::raw::os::Timer;
use crate::raw::ruby::{NIL, Value};
use crate::raw::slots::RootSlot;
use crate::watchdog::Watchdog;
use std::cell::Cell;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// The time after which the standby takes over reading from a leader that serves a request.
pub(crate) const STANDBY_AFTER: Duration = Duration::from_millis(1);

pub(crate) struct Place {
    pub(crate) worker: Guarded<Option<Worker>>,
    /// It must not be reused.
    burnt: AtomicBool,
    /// No thread reads the links: all threads that are awake serve requests.
    leaderless: AtomicBool,
    /// When the last leader took up a request, in microseconds.
    leaderless_since: AtomicU64,
    armed: AtomicBool,
    /// The standby's index plus one; 0 when there is none.
    standby: AtomicUsize,
    timer: OnceLock<Timer>,
    pub(crate) watchdog: Watchdog,
    app: OnceLock<&'static RootSlot>,
    base: OnceLock<&'static RootSlot>,
}

/// The place of the template, its forked workers, and threads that belong to no worker.
pub(crate) static MAIN: Place = Place::new();

static OTHERS: Guarded<Vec<&'static Place>> = Guarded::new(Vec::new());

thread_local! {
    static HERE: Cell<&'static Place> = const { Cell::new(&MAIN) };
}

/// Returns the calling thread's place.
#[inline]
pub(crate) fn place() -> &'static Place {
    HERE.get()
}

pub(crate) fn all(gvl: &Gvl) -> Vec<&'static Place> {
    OTHERS.with(gvl, |others| std::iter::once(&MAIN).chain(others.iter().copied()).collect())
}

/// Returns a place without a worker, other than the main one.
pub(crate) fn free(gvl: &Gvl) -> &'static Place {
    OTHERS.with(gvl, |others| {
        let is_free = |place: &&&'static Place| {
            !place.burnt.load(Relaxed) && place.worker.with(gvl, |worker| worker.is_none())
        };
        others.iter().find(is_free).copied().unwrap_or_else(|| {
            let made: &'static Place = Box::leak(Box::new(Place::new()));
            others.push(made);
            made
        })
    })
}

/// Assigns the calling thread to this place.
pub(crate) fn settle(place: &'static Place) {
    HERE.set(place);
}

/// Calls `f` as a thread of this place. `f` must not raise.
pub(crate) fn within<R>(place: &'static Place, f: impl FnOnce() -> R) -> R {
    let before = HERE.replace(place);
    let result = f();
    HERE.set(before);
    result
}

impl Place {
    const fn new() -> Place {
        Place {
            worker: Guarded::new(None),
            burnt: AtomicBool::new(false),
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
        self.app.get_or_init(|| RootSlot::leak(gvl, app)).set(app);
        self.base.get_or_init(|| RootSlot::leak(gvl, base)).set(base);
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

    /// Bars the place from reuse, in a child that was forked while a worker was here.
    pub(crate) fn burn(&self) {
        self.burnt.store(true, Relaxed);
    }

    /// Resets everything but the app, as if the place had never been used. No other thread may hold one of its locks.
    pub(crate) fn reset(&self) {
        self.burnt.store(false, Relaxed);
        self.watchdog.reset();
        self.leaderless.store(false, Relaxed);
        self.armed.store(false, Relaxed);
        self.standby.store(0, Relaxed);
    }

    /// Closes the descriptors, in a child that the app has forked.
    pub(crate) fn close(&self) {
        self.timer.get().into_iter().for_each(Timer::close);
        self.watchdog.close();
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

    /// Decides, when the timer has expired, whether the standby takes over. Sets the timer again if it may
    /// have to later. Needs no GVL.
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
