//! Signals to a worker that request backtraces.
//!
//! Why not `trap`: its block runs on the main thread, which serves requests, and Ruby wakes that thread for
//! it. A timed wait of a request there (`ConditionVariable#wait`, `Queue#pop`, `Mutex#sleep`) would end too
//! early. This handler does not involve Ruby. A Ruby thread that waits in [`asked`] carries out the request.
//!
//! Contract: the handler only uses atomics and writes to a descriptor. Interrupted system calls are restarted.

use super::gvl::{self, Gvl};
use super::os::{Wait, Wakeup};
use super::ruby;
use std::ffi::c_int;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Wakes the Ruby thread.
static BELL: OnceLock<Wakeup> = OnceLock::new();

/// The signals that have come since the thread last checked, as bits.
static CAME: AtomicU64 = AtomicU64::new(0);

#[cfg(target_os = "linux")]
use libc::__errno_location as errno;
#[cfg(not(target_os = "linux"))]
use libc::__error as errno;

extern "C" fn handler(signal: c_int) {
    CAME.fetch_or(1 << (signal & 63), SeqCst);
    // SAFETY: the thread's own errno, which the interrupted code may be about to read.
    unsafe {
        let own = errno();
        let error = *own;
        BELL.get().into_iter().for_each(Wakeup::wake);
        *own = error;
    }
}

/// Handles these signals from now on, for [`asked`].
///
/// # Errors
/// As eventfd(2) and sigaction(2).
pub(crate) fn take(signals: &[c_int]) -> io::Result<()> {
    match BELL.get() {
        // An inherited wakeup would wake the parent's thread as well.
        Some(bell) => bell.renew()?,
        None => drop(BELL.set(Wakeup::new()?)),
    }
    CAME.store(0, SeqCst);
    for &signal in signals {
        // SAFETY: all zero is a valid sigaction; the handler has the type that is called without SA_SIGINFO.
        let failed = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut()) != 0
        };
        if failed {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The work that waits for the thread of [`asked`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum PendingWork {
    /// A heap dump has been ordered.
    HeapDump = 0,
    /// A sample of a profile is due.
    Sample = 32,
}

/// The bits of [`asked`] that the server or the worker itself cause as a matter of routine: those of [`PendingWork`], and the signal for
/// backtraces of requests.
pub(crate) const ROUTINE: u64 =
    1 << PendingWork::HeapDump as u32 | 1 << PendingWork::Sample as u32 | 1 << libc::SIGURG;

/// Makes [`asked`] return, with the bit of the work set. No signal has such a bit: 0 is none, and C
/// libraries keep 32 for themselves. Does nothing before [`take`].
pub(crate) fn ask(work: PendingWork) {
    CAME.fetch_or(1 << work as u32, SeqCst);
    BELL.get().into_iter().for_each(Wakeup::wake);
}

/// Closes the wakeup, in a child that the app has forked.
pub(crate) fn close() {
    BELL.get().into_iter().for_each(Wakeup::close);
}

/// Waits until some of the signals have arrived, or [`ask`] was called. Bit n is signal n. May raise.
///
/// # Panics
/// When [`take`] has not been called.
pub(crate) fn asked(gvl: &mut Gvl) -> u64 {
    let bell = BELL.get().expect("signals have been taken");
    loop {
        let came = CAME.swap(0, SeqCst);
        if came != 0 {
            return came;
        }
        let mut wait = Wait::readable([bell.fd()].into_iter());
        gvl::release(gvl, || wait.wait());
        drop(wait);
        bell.clear();
        ruby::check_interrupts(gvl);
    }
}
