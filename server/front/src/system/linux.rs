//! Linux.

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

/// How long a client that sends nothing is not accepted. The kernel counts in retransmissions, the first of which comes after a second.
const SILENT: Duration = Duration::from_secs(1);

/// Replaces BBR, which sends more than 64 KiB in pieces by a timer: that takes a fifth of the CPU time of a busy server, and gains nothing
/// within a machine. Accepted sockets inherit this. Every Linux has Reno; if it is missing, the socket stays as it is.
pub(crate) fn do_not_pace(socket: &Socket) {
    if socket.tcp_congestion().is_ok_and(|name| name.starts_with(b"bbr")) {
        let _ = socket.set_tcp_congestion(b"reno");
    }
}

/// Lets the kernel wait for the first bytes, so that accepting, reading and responding take one turn. If the
/// system refuses, connections are accepted at once.
pub(crate) fn defer_accept(socket: &Socket) {
    let _ = sockopt::defer_accept(socket, SILENT);
}

/// How long a client may take to close its side of a connection that the server has closed.
const END: Duration = Duration::from_secs(15);

pub(crate) fn bound_unsent(socket: &Socket) {
    let _ = sockopt::unsent_low_water(socket, net::UNSENT);
    let _ = sockopt::wait_for_end(socket, END);
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

/// The kernel makes orphans children of the first thread of their new parent.
pub(crate) fn children() -> Vec<Pid> {
    let children = format!("/proc/self/task/{}/children", std::process::id());
    let text = std::fs::read_to_string(children).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

pub(crate) fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

pub(crate) fn listener_of(port: u16) -> Option<String> {
    let listening = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, own) = fields.get(1)?.rsplit_once(':')?;
        // 0A is LISTEN.
        let is_it = u16::from_str_radix(own, 16) == Ok(port) && fields.get(3) == Some(&"0A");
        is_it.then(|| fields.get(9).map(|inode| format!("socket:[{inode}]")))?
    };
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let sockets: Vec<String> = tables.iter().flat_map(|table| table.lines().filter_map(listening)).collect();
    if sockets.is_empty() {
        return None;
    }
    let has_one = |process: &std::path::Path| {
        let files = std::fs::read_dir(process.join("fd")).ok()?;
        let targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        targets
            .into_iter()
            .any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
            .then_some(())
    };
    std::fs::read_dir("/proc").ok()?.find_map(|process| {
        let path = process.ok()?.path();
        let pid: u32 = path.file_name()?.to_str()?.parse().ok()?;
        has_one(&path)?;
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        let name = name.trim().replace(char::is_control, "?");
        Some(format!("process {pid} ({name})"))
    })
}
