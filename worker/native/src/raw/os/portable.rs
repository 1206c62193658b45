//! The implementation for other systems.
#![cfg_attr(all(target_os = "linux", not(firebrick_portable)), allow(dead_code))] // Linux falls back on some of it.

use super::{Own, check, now_us};
use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Ruby handles SIGPIPE.
pub(super) const SEND: libc::c_int = libc::MSG_DONTWAIT;
pub(super) const RECEIVE: libc::c_int = 0;
/// The unit of `ru_maxrss`: macOS counts bytes.
pub(super) const PEAK_UNIT: u64 = if cfg!(target_os = "macos") { 1024 } else { 1 };

/// Marks the descriptor. A process that another thread starts before this inherits it; no flag closes that gap.
pub(super) fn close_on_exec(fd: RawFd) -> RawFd {
    // SAFETY: no pointers. A descriptor that is open takes the flag.
    unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    fd
}

/// A pipe.
pub(crate) struct Wakeup {
    read: Own,
    write: Own,
}

impl Wakeup {
    pub(crate) fn new() -> io::Result<Wakeup> {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors, which are new and ours.
        let (read, write) = unsafe {
            check(libc::pipe(ends.as_mut_ptr()))?;
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        for end in ends {
            // SAFETY: no pointers.
            unsafe {
                check(libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC))?;
                check(libc::fcntl(end, libc::F_SETFL, libc::O_NONBLOCK))?;
            }
        }
        Ok(Wakeup { read: Own::new(read), write: Own::new(write) })
    }

    /// # Errors
    /// As pipe(2) and dup2(2).
    pub(crate) fn renew(&self) -> io::Result<()> {
        let new = Wakeup::new()?;
        for (own, new) in [(&self.write, &new.write), (&self.read, &new.read)] {
            own.replace(new.take())?;
        }
        Ok(())
    }

    pub(crate) fn close(&self) {
        self.read.close();
        self.write.close();
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.read.fd()
    }

    pub(crate) fn wake(&self) {
        super::ring(self.write.fd());
    }

    /// Clears pending wake-ups.
    pub(crate) fn clear(&self) {
        let mut bytes = [0u8; 64];
        // SAFETY: writable bytes. Nothing to read is fine.
        unsafe { libc::read(self.fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
    }
}

/// A time, and a pipe that is ready as soon as the time is set. The woken thread waits for the time in
/// [`Timer::clear`].
pub(crate) struct Timer {
    set: Wakeup,
    /// In the unit of [`now_us`].
    until_us: AtomicU64,
}

impl Timer {
    pub(crate) fn new() -> io::Result<Timer> {
        Ok(Timer { set: Wakeup::new()?, until_us: AtomicU64::new(0) })
    }

    /// # Errors
    /// As pipe(2) and dup2(2).
    pub(crate) fn renew(&self) -> io::Result<()> {
        self.set.renew()
    }

    pub(crate) fn close(&self) {
        self.set.close();
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.set.fd()
    }

    pub(crate) fn set(&self, after: Duration) {
        self.until_us.store(now_us() + after.as_micros() as u64, Ordering::Relaxed);
        self.set.wake();
    }

    /// Waits for the time. Returns as soon as the other descriptor that the thread waits for is ready.
    pub(crate) fn clear(&self, other: RawFd) {
        self.set.clear();
        let left_us = self.until_us.load(Ordering::Relaxed).saturating_sub(now_us());
        let mut entry = libc::pollfd { fd: other, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which is writable. Milliseconds are rounded up: waking early would only mean
        // waiting again.
        unsafe { libc::poll(&raw mut entry, 1, left_us.div_ceil(1_000) as libc::c_int) };
    }
}

pub(super) fn thread_clock() -> Option<libc::clockid_t> {
    None
}

/// Changes with every call, because the value is unknown: a thread counts as waiting whenever it was off the processor.
pub(crate) fn thread_waits() -> u64 {
    now_us()
}

/// # Errors
/// As open(2).
pub(crate) fn memory_file() -> io::Result<File> {
    unnamed_file(&std::env::temp_dir())
}

/// # Errors
/// As open(2).
pub(crate) fn unnamed_file(dir: &Path) -> io::Result<File> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // The name differs from those of the front's files, because the numbers of both begin at 0.
    let path = dir.join(format!(".firebrick-worker-{}-{number}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path).map(|()| file)
}

pub(crate) fn parent_death_signal(_signal: i32) {}

pub(crate) fn shed_descriptors(_keep: RawFd) {}

pub(crate) fn resident_kib() -> u64 {
    0
}
