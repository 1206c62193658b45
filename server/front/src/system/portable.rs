//! Systems other than Linux.

use rustix::process::Pid;
use socket2::Socket;
use std::io;
use std::os::unix::net::SocketAddr;
use std::path::PathBuf;

pub(crate) const SPREADS: bool = false;
pub(crate) const BY_DESCRIPTOR: bool = false;
pub(crate) const DESCRIPTORS: &str = "/dev/fd";

pub(crate) fn do_not_pace(_socket: &Socket) {}

pub(crate) fn defer_accept(_socket: &Socket) {}

pub(crate) fn bound_unsent(_socket: &Socket) {}

pub(crate) fn listens(_socket: &Socket) -> bool {
    true
}

pub(crate) fn program() -> io::Result<PathBuf> {
    std::env::current_exe()
}

pub(crate) fn die_with_parent() {}

pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(())
}

pub(crate) fn children() -> Vec<Pid> {
    Vec::new()
}

pub(crate) fn abstract_address(_name: &[u8]) -> io::Result<SocketAddr> {
    Err(io::Error::other("this system knows no abstract sockets"))
}

pub(crate) fn listener_of(_port: u16) -> Option<String> {
    None
}
