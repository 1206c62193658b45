//! On Linux.

use rustix::process::{Pid, Signal};
use socket2::Socket;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const SPREADS: bool = true;
pub(crate) const BY_DESCRIPTOR: bool = true;
pub(crate) const DESCRIPTORS: &str = "/proc/self/fd";

/// How long a client that says nothing is not accepted. The kernel counts in retransmissions, the first of which comes after a second.
const SILENT: Duration = Duration::from_secs(1);

/// BBR sends more than 64 KiB by a timer, piece by piece: a fifth of the CPU time of a busy server, and within a machine nothing is
/// gained by it. Accepted sockets inherit this. Reno is there on every system; where it is not, the socket stays as it is.
pub(crate) fn do_not_pace(socket: &Socket) {
    if socket.tcp_congestion().is_ok_and(|name| name.starts_with(b"bbr")) {
        let _ = socket.set_tcp_congestion(b"reno");
    }
}

/// Accepting, reading and responding take one turn then. Where it is refused, connections are accepted at once.
pub(crate) fn defer_accept(socket: &Socket) {
    let _ = sockopt::defer_accept(socket, SILENT);
}

pub(crate) fn listens(socket: &Socket) -> bool {
    socket.is_listener().unwrap_or(true)
}

pub(crate) fn program() -> io::Result<PathBuf> {
    Ok("/proc/self/exe".into())
}

pub(crate) fn die_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Orphans are given to the first thread of their new parent.
pub(crate) fn children() -> Vec<Pid> {
    let children = format!("/proc/self/task/{}/children", std::process::id());
    let text = std::fs::read_to_string(children).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

pub(crate) fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}
