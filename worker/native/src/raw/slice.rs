//! Time slices of a thread that runs fibers: detects that a fiber computes for too long, and brings the
//! thread to one of Ruby's safe points.
//!
//! Why: a fiber that computes would keep its thread until it is done. A quick request beside ten clients that
//! each compute for 100 ms, one thread: 43 ms with slices of 10 ms, 1,300 to 3,200 ms without (medians, three
//! interleaved runs, Debian 12, Ruby 3.1, a busy machine).
//!
//! How: the thread has a timer of its own processor time (timer_create(2)). So it gets a signal while it
//! computes, and never while it waits in a system call or for the GVL. The handler checks whether the loop
//! has entered a fiber since the last signals. If not, it requests a postponed job, which Ruby runs on this
//! thread where it would also switch threads. The job that the caller has given does the rest.
//!
//! Relies on Linux's timers of a thread with SIGEV_THREAD_ID, a real-time signal without a handler, and
//! Ruby's postponed jobs ([`super::postponed`]). Checked with Ruby 3.1
//! (`script/test-in` runs the same test with another release's Ruby). Without one of these there are no
//! slices: the log says so once, and a fiber that computes keeps its thread. Off by `rack.fiber_slice =
//! "off"`. Test: `worker/native/tests/preempt_test.rb`.
//!
//! Contract:
//! 1. The handler uses atomics of its own thread, and calls one function of Ruby that is made for signal handlers.
//! 2. Before Ruby 3.3 a job must not be requested while another thread may run jobs. So none is requested
//!    while this thread is without the GVL.
//! 3. Jobs of other threads, and jobs that come too late, have no effect: [`Slices::is_over`].
//! 4. A forked child has no timers, so it gets no signals.

use super::gvl::{Gvl, enter};
use super::postponed::PostponedJob;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

pub(crate) use timer::Timer;
pub(super) use timer::take_signal;

/// Signals per slice: a fiber that gets this many in a row has used up its slice.
const SIGNALS: u32 = 2;

pub(crate) struct Slices {
    /// How often the loop has entered a fiber.
    turns: AtomicU64,
    /// The value of `turns` at the last signal, and the number of signals with that value.
    seen: AtomicU64,
    signals: AtomicU32,
    over: AtomicBool,
}

thread_local! {
    // It has no destructor and is first used before there are signals, so the handler may read it.
    static OWN: Cell<Option<&'static Slices>> = const { Cell::new(None) };
}

/// The job; set once. None can be requested while this is empty or `None`.
static POSTPONED: OnceLock<Option<PostponedJob>> = OnceLock::new();

/// The function that the job calls; [`prepare`] sets it once.
static JOB: OnceLock<fn(&mut Gvl)> = OnceLock::new();

/// The number of the signal; set once.
static SIGNAL: OnceLock<Option<c_int>> = OnceLock::new();

/// Registers `job` with Ruby, once: both slices and [`ask_from_elsewhere`] request it.
pub(crate) fn prepare(job: fn(&mut Gvl)) {
    JOB.get_or_init(|| job);
    postponed();
}

/// Requests the job on the thread that runs Ruby or did so last, without a signal and from any thread. Only
/// since Ruby 3.3.
pub(crate) fn ask_from_elsewhere() {
    if let Some(Some(postponed)) = POSTPONED.get() {
        postponed.request();
    }
}

fn postponed() -> Option<PostponedJob> {
    *POSTPONED.get_or_init(|| PostponedJob::new(job))
}

extern "C" fn handler(_signal: c_int) {
    let Some(slices) = OWN.get() else { return };
    let turns = slices.turns.load(Relaxed);
    if slices.seen.swap(turns, Relaxed) != turns {
        slices.signals.store(0, Relaxed);
        return;
    }
    if slices.signals.fetch_add(1, Relaxed) + 1 < SIGNALS {
        return;
    }
    let Some(Some(postponed)) = POSTPONED.get() else { return };
    slices.over.store(true, Relaxed);
    postponed.request_here();
}

unsafe extern "C" fn job(_data: *mut c_void) {
    if let Some(job) = JOB.get() {
        // SAFETY: Ruby runs jobs with the GVL, at a point where it could run other threads.
        unsafe { enter(job) };
    }
}

impl Slices {
    /// Returns the slices of the calling thread. They start with [`Slices::begin`].
    pub(crate) fn here() -> &'static Slices {
        OWN.get().unwrap_or_else(|| {
            let made = Box::leak(Box::new(Slices {
                turns: AtomicU64::new(0),
                seen: AtomicU64::new(0),
                signals: AtomicU32::new(0),
                over: AtomicBool::new(false),
            }));
            OWN.set(Some(made));
            made
        })
    }

    /// Starts slices, after [`prepare`]: one is over when a fiber has computed for `us` of processor time, or
    /// at most half as long again.
    ///
    /// # Errors
    /// As timer_create(2); `Unsupported`: this Ruby or system cannot do it.
    pub(crate) fn begin(&self, us: u64) -> io::Result<Timer> {
        let signal = *SIGNAL.get_or_init(|| postponed().and_then(|_| timer::take_signal(handler)));
        let Some(signal) = signal else { return Err(io::ErrorKind::Unsupported.into()) };
        Timer::start(signal, us / u64::from(SIGNALS))
    }

    /// Begins a slice, because the calling thread enters a fiber or begins another request.
    #[inline]
    pub(crate) fn turn_here() {
        if let Some(own) = OWN.get() {
            own.turns.fetch_add(1, Relaxed);
        }
    }

    /// Returns whether the slice of the running fiber is over. Called in a job; resets the answer.
    pub(crate) fn is_over(&self) -> bool {
        self.over.swap(false, Relaxed) && self.seen.load(Relaxed) == self.turns.load(Relaxed)
    }
}

#[cfg(target_os = "linux")]
mod timer {
    use std::ffi::c_int;
    use std::io;

    /// The shortest time between signals, in microseconds. The system checks such timers once per tick of its clock.
    const SHORTEST_US: u64 = 1000;

    /// Installs `handler` for a real-time signal that is not in use. Neither an app's `trap` nor profilers use these.
    pub(in super::super) fn take_signal(handler: extern "C" fn(c_int)) -> Option<c_int> {
        (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev().find(|&signal| {
            // SAFETY: all zero is a valid sigaction; the handler has the type that is called without SA_SIGINFO.
            unsafe {
                let mut old: libc::sigaction = std::mem::zeroed();
                if libc::sigaction(signal, std::ptr::null(), &raw mut old) != 0
                    || old.sa_sigaction != libc::SIG_DFL
                {
                    return false;
                }
                let mut new: libc::sigaction = std::mem::zeroed();
                new.sa_sigaction = handler as *const () as usize;
                // Interrupted system calls are restarted. Where Ruby has set an alternate stack, the handler
                // needs no room on a fiber's stack.
                new.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
                libc::sigaction(signal, &raw const new, std::ptr::null_mut()) == 0
            }
        })
    }

    pub(crate) struct Timer(libc::timer_t);

    // SAFETY: the number of a timer of this process, which any of its threads may use.
    unsafe impl Send for Timer {}

    impl Timer {
        /// Starts sending `signal` to the calling thread for each `us` of processor time that it uses.
        ///
        /// # Errors
        /// As timer_create(2).
        pub(super) fn start(signal: c_int, us: u64) -> io::Result<Timer> {
            let timer = Timer::idle(signal)?;
            let us = us.max(SHORTEST_US);
            if let Err(error) = timer.set(us, us) {
                timer.end();
                return Err(error);
            }
            Ok(timer)
        }

        /// Makes a timer of the calling thread's processor time that sends `signal` to it only after [`Timer::fire`].
        ///
        /// # Errors
        /// As timer_create(2).
        pub(in super::super) fn idle(signal: c_int) -> io::Result<Timer> {
            // SAFETY: all zero is a valid sigevent; the pointers are to it and to a writable timer_t.
            unsafe {
                let mut event: libc::sigevent = std::mem::zeroed();
                event.sigev_notify = libc::SIGEV_THREAD_ID;
                event.sigev_signo = signal;
                event.sigev_notify_thread_id = libc::gettid();
                let mut timer = std::mem::zeroed();
                match libc::timer_create(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut event, &raw mut timer) {
                    0 => Ok(Timer(timer)),
                    _ => Err(io::Error::last_os_error()),
                }
            }
        }

        /// Sends the signal once, when the thread has computed a little more. From any thread.
        pub(in super::super) fn fire(&self) {
            // Without a signal nothing is noticed.
            let _ = self.set(1, 0);
        }

        /// Sets the time to the first signal, and that between signals; 0: there is only one.
        fn set(&self, first_us: u64, every_us: u64) -> io::Result<()> {
            let time = |us: u64| libc::timespec {
                tv_sec: (us / 1_000_000) as _,
                tv_nsec: (us % 1_000_000 * 1000) as _,
            };
            let times = libc::itimerspec { it_interval: time(every_us), it_value: time(first_us) };
            // SAFETY: the timer exists; the pointer is to a valid itimerspec.
            match unsafe { libc::timer_settime(self.0, 0, &raw const times, std::ptr::null_mut()) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        }

        /// Stops the signals. Must not be called in a forked child: it has no timers, so the number may be
        /// another timer's.
        pub(crate) fn end(self) {
            // SAFETY: it exists, for it is deleted once.
            unsafe { libc::timer_delete(self.0) };
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod timer {
    use std::ffi::c_int;
    use std::io;

    pub(in super::super) fn take_signal(_handler: extern "C" fn(c_int)) -> Option<c_int> {
        None
    }

    pub(crate) struct Timer(());

    impl Timer {
        pub(super) fn start(_signal: c_int, _us: u64) -> io::Result<Timer> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(in super::super) fn idle(_signal: c_int) -> io::Result<Timer> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(in super::super) fn fire(&self) {}

        pub(crate) fn end(self) {}
    }
}
