//! Signals a thread while it computes, by a timer of its own processor time (timer_create(2)). Linux only.

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

    /// The shortest time between signals, in microseconds. The system checks such timers once per tick of its clock.
    const SHORTEST_US: u64 = 1000;

    /// Installs `handler` for a real-time signal that is not in use. Neither an app's `trap` nor profilers use these.
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
                // Interrupted system calls are restarted. Where Ruby has set an alternate stack, the handler needs no room on a fiber's stack.
                new.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
                libc::sigaction(signal, &raw const new, std::ptr::null_mut()) == 0
            }
        })
    }

    /// Returns the clock of the calling thread's processor time. Other threads may read it.
    pub(in crate::raw) fn thread_clock() -> Option<libc::clockid_t> {
        let mut clock = 0;
        // SAFETY: the calling thread exists, and `clock` is writable.
        let error = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        (error == 0).then_some(clock)
    }

    pub(crate) struct Timer(libc::timer_t);

    impl Timer {
        /// Starts sending `signal` to the calling thread for each `us` of processor time that it uses.
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

        /// Stops the signals. Must not be called in a forked child: it has no timers, so the number may be another timer's.
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
