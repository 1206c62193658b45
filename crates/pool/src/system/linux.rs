//! On Linux.

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::process::Signal;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

pub(crate) const SEND: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);
pub(crate) const RECEIVE: RecvFlags = RecvFlags::DONTWAIT.union(RecvFlags::CMSG_CLOEXEC);

pub(crate) const DUMP: (&str, Signal) = ("PWR", Signal::POWER);

pub(crate) fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok((ours.into(), theirs.into()))
}

/// `RECEIVE` has done it.
#[inline]
pub(crate) fn close_on_exec(arrived: OwnedFd) -> OwnedFd {
    arrived
}

pub(crate) fn memory_file() -> io::Result<File> {
    Ok(memfd_create("firebrick-scoreboard", MemfdFlags::CLOEXEC)?.into())
}

/// As in proc(5).
pub(crate) fn state(pid: u32) -> Option<u8> {
    // The state follows the name, which may itself contain parentheses.
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    stat.get(name_end + 2).copied()
}

pub(crate) fn adopt_orphans() {
    // An old kernel does not know it; the system adopts them then.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Orphans are given to the first thread of their new parent.
pub(crate) fn children() -> Vec<u32> {
    let own = std::process::id();
    let children = std::fs::read_to_string(format!("/proc/self/task/{own}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
