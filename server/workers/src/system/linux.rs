//! The implementation for Linux.

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use tokio::io::{Interest, unix::AsyncFd};

pub(crate) const SEND: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);
pub(crate) const RECEIVE: RecvFlags = RecvFlags::DONTWAIT.union(RecvFlags::CMSG_CLOEXEC);

pub(crate) const DUMP: (&str, Signal) = ("PWR", Signal::POWER);

pub(crate) fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok((ours.into(), theirs.into()))
}

/// Returns the descriptor unchanged, because `RECEIVE` has set the flag already.
#[inline]
pub(crate) fn close_on_exec(arrived: OwnedFd) -> OwnedFd {
    arrived
}

pub(crate) fn memory_file() -> io::Result<File> {
    Ok(memfd_create("firebrick-scoreboard", MemfdFlags::CLOEXEC)?.into())
}

/// Reads the state from `/proc/PID/stat`, see proc(5).
pub(crate) fn state(pid: u32) -> Option<u8> {
    // The state follows the name, which may itself contain parentheses.
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    stat.get(name_end + 2).copied()
}

/// Reads from `/proc/PID/status` whether the process has a handler for the signal. Without one, the signal
/// would end a process that has just been started.
pub(crate) fn catches_dump(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    caught >> (DUMP.1.as_raw() - 1) & 1 == 1
}

pub(crate) fn adopt_orphans() {
    // Fails on old kernels; then the system adopts orphans.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Returns the children of the main thread, because orphans become children of the first thread of their new
/// parent.
pub(crate) fn children() -> Vec<u32> {
    let own = std::process::id();
    let children = std::fs::read_to_string(format!("/proc/self/task/{own}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// A pidfd.
#[derive(Debug)]
pub(crate) struct Exact(AsyncFd<OwnedFd>);

impl Exact {
    #[expect(deprecated, reason = "its replacement is unsafe, and an OwnedFd has what that asks for")]
    pub(crate) fn open(pid: Pid) -> Result<Exact, Errno> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        // Without an event loop, `ended` could not wait.
        AsyncFd::with_interest(pidfd, Interest::READABLE).map(Exact).map_err(|_| Errno::NOSYS)
    }

    pub(crate) async fn ended(&self) {
        // Fails only when the event loop ends.
        let _ = self.0.readable().await;
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // Fails if the process has ended.
        let _ = pidfd_send_signal(self.0.get_ref(), signal);
    }

    pub(crate) fn reap(&self) -> Option<Result<i32, i32>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::PidFd(self.0.get_ref().as_fd()), options).ok().flatten()?;
        Some(match status.exit_status() {
            Some(code) => Ok(code),
            None => Err(status.terminating_signal().unwrap_or_default()),
        })
    }
}
