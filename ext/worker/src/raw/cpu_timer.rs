//! Signals for a thread while it computes: a timer of its own processor time (timer_create(2)). Only Linux has them.

#[cfg(target_os = "linux")]
pub(crate) use linux::Timer;
#[cfg(target_os = "linux")]
pub(super) use linux::{take_signal, thread_clock};
#[cfg(not(target_os = "linux"))]
pub(crate) use none::Timer;
#[cfg(not(target_os = "linux"))]
pub(super) use none::{take_signal, thread_clock};

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::c_int;
    use std::io;

    /// The shortest time between signals, microseconds. The system looks at such timers once per tick of its clock.
    const SHORTEST_US: u64 = 1000;

    /// Takes a real-time signal that nobody uses, for `handler`. Neither an app's `trap` nor a profiler asks for these.
    pub(in crate::raw) fn take_signal(handler: extern "C" fn(c_int)) -> Option<c_int> {
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
                // System calls that it meets go on. It needs no room on a fiber's stack where Ruby has given the thread another one.
                new.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
                libc::sigaction(signal, &raw const new, std::ptr::null_mut()) == 0
            }
        })
    }

    /// The clock of the calling thread's processor time, which other threads may read.
    pub(in crate::raw) fn thread_clock() -> Option<libc::clockid_t> {
        let mut clock = 0;
        // SAFETY: the calling thread exists, and `clock` is writable.
        let error = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        (error == 0).then_some(clock)
    }

    /// A timer of one thread.
    pub(crate) struct Timer(libc::timer_t);

    impl Timer {
        /// From now on `signal` comes to the calling thread for each `us` of processor time that it uses.
        ///
        /// # Errors
        /// As timer_create(2).
        pub(in crate::raw) fn start(signal: c_int, us: u64) -> io::Result<Timer> {
            // SAFETY: all zero is a valid sigevent; the pointers are to it, to a writable timer_t and to a valid itimerspec.
            unsafe {
                let mut event: libc::sigevent = std::mem::zeroed();
                event.sigev_notify = libc::SIGEV_THREAD_ID;
                event.sigev_signo = signal;
                event.sigev_notify_thread_id = libc::gettid();
                let mut timer = std::mem::zeroed();
                if libc::timer_create(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut event, &raw mut timer) != 0 {
                    return Err(io::Error::last_os_error());
                }
                let timer = Timer(timer);
                let us = us.max(SHORTEST_US);
                let every =
                    libc::timespec { tv_sec: (us / 1_000_000) as _, tv_nsec: (us % 1_000_000 * 1000) as _ };
                let times = libc::itimerspec { it_interval: every, it_value: every };
                if libc::timer_settime(timer.0, 0, &raw const times, std::ptr::null_mut()) != 0 {
                    let error = io::Error::last_os_error();
                    timer.end();
                    return Err(error);
                }
                Ok(timer)
            }
        }

        /// Ends the signals. Not for a forked child, which has no timers: there the number may be that of another one.
        pub(crate) fn end(self) {
            // SAFETY: it exists, for it is deleted once.
            unsafe { libc::timer_delete(self.0) };
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod none {
    use std::ffi::c_int;
    use std::io;

    pub(in crate::raw) fn take_signal(_handler: extern "C" fn(c_int)) -> Option<c_int> {
        None
    }

    pub(in crate::raw) fn thread_clock() -> Option<libc::clockid_t> {
        None
    }

    pub(crate) struct Timer(());

    impl Timer {
        pub(in crate::raw) fn start(_signal: c_int, _us: u64) -> io::Result<Timer> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(crate) fn end(self) {}
    }
}
