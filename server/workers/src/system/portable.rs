//! The implementation for other systems.

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, Signal, test_kill_process};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

pub(crate) const SEND: SendFlags = SendFlags::DONTWAIT;
pub(crate) const RECEIVE: RecvFlags = RecvFlags::DONTWAIT;

/// The same signal as in Ruby. Not every system has SIGPWR.
#[cfg(target_os = "linux")]
pub(crate) const DUMP: (&str, Signal) = ("PWR", Signal::POWER);
#[cfg(not(target_os = "linux"))]
pub(crate) const DUMP: (&str, Signal) = ("INFO", Signal::INFO);

pub(crate) fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    Ok((ours, theirs))
}

/// Sets the flag after the fact: a process that another thread starts before this call inherits the
/// descriptor, because there is no flag that closes the gap.
pub(crate) fn close_on_exec(arrived: OwnedFd) -> OwnedFd {
    // Cannot fail for an open descriptor.
    let _ = rustix::io::fcntl_setfd(&arrived, rustix::io::FdFlags::CLOEXEC);
    arrived
}

pub(crate) fn memory_file() -> io::Result<File> {
    http::body::unnamed_file(&std::env::temp_dir())
}

/// Asks ps(1), which takes milliseconds. Returns `R` if ps cannot be run.
pub(crate) fn state(pid: u32) -> Option<u8> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    if test_kill_process(pid) == Err(Errno::SRCH) {
        return None;
    }
    let number = pid.as_raw_nonzero().to_string();
    let told = Command::new("ps").args(["-o", "stat=", "-p", &number]).stderr(Stdio::null()).output();
    // The output is empty if the process has ended in the meantime.
    told.map_or(Some(b'R'), |told| told.stdout.trim_ascii_start().first().copied())
}

/// SIGINFO is ignored by default, SIGPWR is not.
pub(crate) fn catches_dump(_: u32) -> bool {
    cfg!(not(target_os = "linux"))
}

pub(crate) fn adopt_orphans() {}

pub(crate) fn children() -> Vec<u32> {
    Vec::new()
}

/// Has no values, because there is no handle that stays valid after the process has been reaped.
#[derive(Debug)]
pub(crate) enum Exact {}

impl Exact {
    pub(crate) fn open(_: Pid) -> Result<Exact, Errno> {
        Err(Errno::NOSYS)
    }

    pub(crate) async fn ended(&self) {
        match *self {}
    }

    pub(crate) fn signal(&self, _: Signal) {
        match *self {}
    }

    pub(crate) fn reap(&self) -> Option<Result<i32, i32>> {
        match *self {}
    }
}
