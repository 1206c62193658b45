//! Notices that a thread computes with the GVL for long without a safe point: a function in C that does not release it.
//!
//! How: the watchdog, which needs no GVL, sees that no request has been taken up for a while and that a serving thread has computed meanwhile. It
//! fires a timer of that thread's processor time (timer_create(2)), so the thread gets a signal where it computes, and none while it waits in a system
//! call. The handler looks whether the thread has the GVL. If so, it notes the time and requests a postponed job. Code in Ruby runs the job at once;
//! the end of a function in C runs it while its frame still exists.
//!
//! Relies on what [`super::slice`] relies on, so it needs Linux. Elsewhere, and with RUBY_MN_THREADS=1, nothing is noticed.
//!
//! Contract:
//! 1. A request costs nothing. There are signals only while no request is taken up and a thread computes, one at a time for each.
//! 2. The handler uses atomics of its own thread, reads clocks, and calls one function of Ruby that is made for signal handlers.

use super::gvl::{Gvl, enter};
use super::os;
use super::postponed::PostponedJob;
use super::slice::{Timer, take_signal};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The state of a serving thread.
pub(crate) struct Hold {
    timer: Mutex<Option<Timer>>,
    clock: AtomicI32,
    /// When the watchdog last looked, and the processor time of the thread then, in microseconds.
    looked_us: AtomicU64,
    used_us: AtomicU64,
    /// When the handler has requested the job, and the processor time of the thread then; 0: it has not.
    asked_us: AtomicU64,
    asked_used_us: AtomicU64,
}

thread_local! {
    // It has no destructor and is first used before there are signals, so the handler may read it.
    static OWN: Cell<Option<&'static Hold>> = const { Cell::new(None) };
}

static JOB: OnceLock<fn(&mut Gvl)> = OnceLock::new();
static POSTPONED: OnceLock<Option<PostponedJob>> = OnceLock::new();
static SIGNAL: OnceLock<Option<c_int>> = OnceLock::new();

extern "C" fn handler(_signal: c_int) {
    let (Some(own), Some(Some(postponed))) = (OWN.get(), POSTPONED.get()) else { return };
    postponed.request_with_gvl(|| {
        own.asked_used_us.store(os::thread_us(), Relaxed);
        own.asked_us.store(os::now_us(), Relaxed);
    });
}

unsafe extern "C" fn run(_data: *mut c_void) {
    if let Some(job) = JOB.get() {
        // SAFETY: Ruby runs jobs with the GVL, at a point where it could run other threads.
        unsafe { enter(job) };
    }
}

impl Hold {
    pub(crate) const fn new() -> Hold {
        Hold {
            timer: Mutex::new(None),
            clock: AtomicI32::new(0),
            looked_us: AtomicU64::new(0),
            used_us: AtomicU64::new(0),
            asked_us: AtomicU64::new(0),
            asked_used_us: AtomicU64::new(0),
        }
    }

    fn timer(&self) -> MutexGuard<'_, Option<Timer>> {
        self.timer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the calling thread known. `job` is what Ruby calls; the same for all threads. Returns whether this Ruby and system can do it.
    pub(crate) fn attach(&'static self, _gvl: &Gvl, job: fn(&mut Gvl)) -> bool {
        JOB.get_or_init(|| job);
        let moves = std::env::var_os("RUBY_MN_THREADS").is_some_and(|on| on == "1");
        let postponed = POSTPONED.get_or_init(|| PostponedJob::new(run));
        let signal = *SIGNAL.get_or_init(|| postponed.filter(|_| !moves).and_then(|_| take_signal(handler)));
        let (Some(signal), Some((_, clock))) = (signal, os::this_thread()) else { return false };
        let Ok(timer) = Timer::idle(signal) else { return false };
        self.clock.store(clock, Relaxed);
        self.asked_us.store(0, Relaxed);
        OWN.set(Some(self));
        *self.timer() = Some(timer);
        true
    }

    /// Reverses [`Hold::attach`].
    pub(crate) fn detach(&self) {
        OWN.set(None);
        self.timer().take().into_iter().for_each(Timer::end);
    }

    /// Forgets the timer, which a forked child does not have.
    pub(crate) fn forget(&self) {
        self.timer().take();
    }

    /// Looks at the thread. `still`: no request has been taken up for a while. The watchdog calls it repeatedly.
    pub(crate) fn look(&self, still: bool, now_us: u64) {
        let used_us = os::clock_us(self.clock.load(Relaxed));
        let passed_us = now_us.saturating_sub(self.looked_us.swap(now_us, Relaxed));
        let computed_us = used_us.saturating_sub(self.used_us.swap(used_us, Relaxed));
        if !still {
            // Ruby has run since, and with it the job: where another thread ran it, this one's question has no answer.
            self.asked_us.store(0, Relaxed);
        } else if computed_us * 2 > passed_us && self.asked_us.load(Relaxed) == 0 {
            self.timer().iter().for_each(Timer::fire);
        }
    }

    /// Returns for how long the calling thread has computed since the handler has requested the job, in microseconds; `None`: it has not. Called in
    /// the job.
    pub(crate) fn held_us() -> Option<u64> {
        let own = OWN.get()?;
        let asked_us = own.asked_us.swap(0, Relaxed);
        let computed_us = os::thread_us().saturating_sub(own.asked_used_us.load(Relaxed));
        (asked_us != 0).then(|| os::now_us().saturating_sub(asked_us).min(computed_us))
    }
}
