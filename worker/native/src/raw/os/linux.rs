//! The Linux implementation.

use super::{Own, check, portable};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

pub(super) const SEND: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
pub(super) const RECEIVE: libc::c_int = libc::MSG_CMSG_CLOEXEC;
/// The unit of `ru_maxrss`, in KiB.
pub(super) const PEAK_UNIT: u64 = 1;

/// Returns `fd`, which `RECEIVE` has already marked.
#[inline]
pub(super) fn close_on_exec(fd: RawFd) -> RawFd {
    fd
}

/// An eventfd.
pub(crate) struct Wakeup(Own);

impl Wakeup {
    pub(crate) fn new() -> io::Result<Wakeup> {
        // SAFETY: no pointers; the descriptor is new and ours.
        let fd =
            unsafe { OwnedFd::from_raw_fd(check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?) };
        Ok(Wakeup(Own::new(fd)))
    }

    /// # Errors
    /// As eventfd(2) and dup2(2).
    pub(crate) fn renew(&self) -> io::Result<()> {
        let new = Wakeup::new()?;
        self.0.replace(new.0.take())
    }

    pub(crate) fn close(&self) {
        self.0.close();
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.fd()
    }

    pub(crate) fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes. If it is full, a wake-up is pending already.
        unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Clears pending wake-ups.
    pub(crate) fn clear(&self) {
        take_number(self.fd());
    }
}

/// A timerfd.
pub(crate) struct Timer(Own);

impl Timer {
    pub(crate) fn new() -> io::Result<Timer> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: no pointers; the descriptor is new and ours.
        let fd = unsafe { OwnedFd::from_raw_fd(check(libc::timerfd_create(libc::CLOCK_MONOTONIC, flags))?) };
        Ok(Timer(Own::new(fd)))
    }

    /// # Errors
    /// As timerfd_create(2) and dup2(2).
    pub(crate) fn renew(&self) -> io::Result<()> {
        let new = Timer::new()?;
        self.0.replace(new.0.take())
    }

    pub(crate) fn close(&self) {
        self.0.close();
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.fd()
    }

    pub(crate) fn set(&self, after: Duration) {
        let time = libc::timespec { tv_sec: after.as_secs() as _, tv_nsec: after.subsec_nanos().max(1) as _ };
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let timer = libc::itimerspec { it_interval: zero, it_value: time };
        // SAFETY: `timer` is readable; the old value is not wanted.
        unsafe { libc::timerfd_settime(self.fd(), 0, &raw const timer, std::ptr::null_mut()) };
    }

    /// Resets the timer after it has expired. Only other systems need the other descriptor.
    pub(crate) fn clear(&self, _other: RawFd) {
        take_number(self.fd());
    }
}

fn take_number(fd: RawFd) {
    let mut bytes = [0u8; 8];
    // SAFETY: writable bytes. Nothing to read is fine.
    unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), bytes.len()) };
}

/// Returns the clock of the calling thread's processor time. Other threads may read it.
pub(super) fn thread_clock() -> Option<libc::clockid_t> {
    let mut clock = 0;
    // SAFETY: the calling thread exists, and `clock` is writable.
    let error = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
    (error == 0).then_some(clock)
}

/// Returns how often the thread has given up its processor voluntarily.
pub(crate) fn thread_waits() -> u64 {
    // SAFETY: all zero is a valid rusage, which is writable.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nvcsw as u64
    }
}

/// # Errors
/// As memfd_create(2).
pub(crate) fn memory_file() -> io::Result<File> {
    // SAFETY: a C string; the descriptor is new and ours.
    unsafe {
        let fd = check(libc::memfd_create(c"firebrick-body".as_ptr(), libc::MFD_CLOEXEC))?;
        Ok(File::from_raw_fd(fd))
    }
}

/// # Errors
/// As open(2).
pub(crate) fn unnamed_file(dir: &Path) -> io::Result<File> {
    let opened = File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(dir);
    match opened.as_ref().err().and_then(io::Error::raw_os_error) {
        // The file system does not support O_TMPFILE.
        Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL) => portable::unnamed_file(dir),
        _ => opened,
    }
}

pub(crate) fn parent_death_signal(signal: i32) {
    // SAFETY: no pointers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, signal);
    }
}

pub(crate) fn shed_descriptors(keep: RawFd) {
    let Ok(listed) = std::fs::read_dir("/proc/self/fd") else { return };
    let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") else { return };
    let sheds = |fd: RawFd| {
        let target = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
        let target = target.as_os_str().as_encoded_bytes();
        target.starts_with(b"socket:") || target.starts_with(b"/")
    };
    let open = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    let shed: Vec<RawFd> =
        open.filter(|&fd| ![keep, 2, null.as_raw_fd()].contains(&fd) && sheds(fd)).collect();
    for fd in shed {
        // SAFETY: replaces a descriptor; `null` is open. The folder's descriptor has been closed meanwhile and
        // becomes another one of `null`.
        unsafe { libc::dup3(null.as_raw_fd(), fd, libc::O_CLOEXEC) };
    }
}

/// Allocates nothing.
pub(crate) fn resident_kib() -> u64 {
    // SAFETY: a C string; the buffer is writable; the descriptor is ours.
    unsafe {
        let fd = libc::open(c"/proc/self/statm".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return 0;
        }
        let mut text = [0u8; 128];
        let read = libc::read(fd, text.as_mut_ptr().cast(), text.len());
        libc::close(fd);
        let text = text.get(..usize::try_from(read).unwrap_or(0)).unwrap_or_default();
        // The second number is that of resident pages.
        let pages = text
            .split(|&byte| byte == b' ')
            .nth(1)
            .and_then(|word| str::from_utf8(word).ok()?.parse::<u64>().ok());
        pages.unwrap_or(0) * (libc::sysconf(libc::_SC_PAGESIZE) as u64 / 1024)
    }
}
