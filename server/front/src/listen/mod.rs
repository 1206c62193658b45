//! Binds sockets early, so that configuration errors show at once, and listens late, when the app can respond.
//!
//! Each front thread has its own TCP socket (`SO_REUSEPORT`): the kernel spreads the connections and wakes
//! one thread for each. The threads share Unix sockets, which do not support this, and TCP sockets on systems
//! other than Linux.
//!
//! During an upgrade, all sockets of the old program whose addresses are still configured stay in use,
//! because each may have connections in its backlog. A thread may have several of them. If there are more
//! threads than sockets, the others get new sockets on the same port.
//!
//! `::` is one socket for IPv6 and IPv4 ([`families`]).

mod families;
pub(crate) mod passed;

use crate::handover::{Handed, ReceivedSockets, SocketKind, takes_both};
use crate::log_file;
use crate::systemd::activation::{Activated, Claim};
use rustix::fs::{Mode, RawMode};
use settings::Bind;
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use sys::socket::{self, SPREADS};

use families::{Wanted, without_ipv6};

/// How long the kernel holds back a client that sends nothing.
const SILENT: Duration = Duration::from_secs(1);
/// How long a client may take to close its side of a connection that the server has closed.
const END: Duration = Duration::from_secs(15);
/// How many more ports are tried with port 0, until one is free for UDP too.
const OTHER_PORTS: u32 = 16;

/// All sockets of one address.
#[derive(Debug)]
pub(crate) struct Bound {
    address: Address,
    /// The setting that the address comes from.
    bind: Arc<Bind>,
    backlog: i32,
    /// One per thread, or more if the old program had more threads.
    sockets: Vec<Socket>,
    /// The UDP port of the same number, for HTTP/3.
    udp: Option<Udp>,
    /// Whether systemd opened the socket. systemd keeps it open.
    activated: bool,
    /// Whether the socket came from an old program. That program owns it until the handover.
    taken: bool,
    /// Whether the system chose the port (port 0 in the settings).
    chosen: bool,
}

/// The UDP sockets of a port.
#[derive(Debug)]
enum Udp {
    Own(::quic::Port),
    /// The sockets of the old program, which receives on them until it exits.
    Theirs(Vec<Socket>),
}

/// Duplicates of a [`SocketKind`]'s sockets, for a handover.
pub(crate) type Copies = (SocketKind, Vec<OwnedFd>);

/// UDP sockets that the old program still uses.
#[derive(Debug)]
pub(crate) struct LaterUdp {
    pub(crate) address: SocketAddr,
    pub(crate) bind: Arc<Bind>,
    pub(crate) sockets: Vec<Socket>,
}

/// The address of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    Tls(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "http://{address}"),
            Address::Tls(address) => write!(f, "https://{address}"),
            Address::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// The socket of one address for one front thread.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) address: Address,
    /// The setting that the address comes from.
    pub(crate) bind: Arc<Bind>,
    pub(crate) socket: Listening,
}

/// The socket of a [`Listener`].
#[derive(Debug)]
pub(crate) enum Listening {
    Stream(Socket),
    /// The UDP port of the same number, for HTTP/3.
    Datagrams(::quic::PortSocket),
}

/// Binds all addresses for `threads` front threads. Sockets from systemd or from an old program are used
/// instead of new ones.
///
/// # Errors
/// The text names the address and a remedy.
pub(crate) fn bind_all(
    binds: &[Bind],
    threads: usize,
    activated: &mut Activated,
    handed: &mut Handed,
) -> Result<Vec<Bound>, String> {
    let mut bound = Vec::new();
    for bind in binds {
        match bind {
            Bind::Tcp { host, port, backlog, .. } => {
                let name = bind.to_string();
                let addresses = resolve(host, *port).map_err(|e| explain_name(&name, &e))?;
                for wanted in families::of(addresses, bind, binds, handed, activated) {
                    let (backlog, bind) = (backlog_of(*backlog), Arc::new(bind.clone()));
                    let address = wanted.address;
                    if let Some((address, taken)) = handed.tcp(address) {
                        let chosen = *port == 0;
                        let taken = Bound::handed_tcp(address, bind, backlog, taken, threads, chosen);
                        bound.push(taken.map_err(|e| explain(&name, &e))?);
                        continue;
                    }
                    if handed.covers(address) {
                        continue;
                    }
                    match activated.tcp(address) {
                        Claim::Take(socket) => {
                            let taken =
                                Bound::taken(tcp_address(address, &bind), bind, backlog, socket, threads);
                            bound.push(taken.map_err(|e| explain(&name, &e))?);
                            continue;
                        }
                        Claim::Covered => continue,
                        Claim::Nothing => {}
                    }
                    bound.push(
                        bind_tcp(wanted, bind, backlog, threads)
                            .map_err(|e| explain_port(&name, address, &e))?,
                    );
                }
            }
            Bind::Unix { path, umask, mode, backlog } => {
                let (address, backlog) = (Address::Unix(path.clone()), backlog_of(*backlog));
                if let Some(taken) = handed.unix(path) {
                    let taken = Bound::handed_unix(address, Arc::new(bind.clone()), backlog, taken, threads);
                    bound.push(taken.map_err(|e| explain(&bind.to_string(), &e))?);
                    continue;
                }
                match activated.unix(path) {
                    Claim::Take(socket) => {
                        let taken = Bound::taken(address, Arc::new(bind.clone()), backlog, socket, threads);
                        bound.push(taken.map_err(|e| explain(&bind.to_string(), &e))?);
                        continue;
                    }
                    Claim::Covered => continue,
                    Claim::Nothing => {}
                }
                let sockets = bind_unix(path, *umask, *mode, threads);
                let sockets = sockets.map_err(|e| explain(&bind.to_string(), &e))?;
                let bind = Arc::new(bind.clone());
                bound.push(Bound::new(address, bind, backlog, sockets));
            }
            // These were replaced by the addresses of their sockets.
            Bind::Systemd { .. } => {}
        }
    }
    Ok(bound)
}

/// Tries the addresses without listening: whether this machine has them, and whether this user may bind them.
/// Returns a line for each port that is in use, which may be by the server that is to be replaced.
///
/// # Errors
/// As [`bind_all`].
pub(crate) fn try_all(binds: &[Bind]) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    for bind in binds {
        if let AddressTrial::InUse(holder) = try_address(bind, binds)? {
            let holder = holder.map(|holder| format!(" by {holder}"));
            lines.push(format!("{bind} is in use{}.", holder.unwrap_or_default()));
        }
    }
    Ok(lines)
}

/// The result of trying an address that this machine has and this user may bind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressTrial {
    Free,
    /// Another process, if it can be named, listens there.
    InUse(Option<String>),
}

/// Tries one of the addresses of `binds` without listening.
///
/// # Errors
/// As [`bind_all`].
pub fn try_address(bind: &Bind, binds: &[Bind]) -> Result<AddressTrial, String> {
    let (name, nothing) = (bind.to_string(), (Handed::default(), Activated::default()));
    let mut found = AddressTrial::Free;
    match bind {
        Bind::Tcp { host, port, .. } => {
            let addresses = resolve(host, *port).map_err(|e| explain_name(&name, &e))?;
            for wanted in families::of(addresses, bind, binds, &nothing.0, &nothing.1) {
                match bind_tcp(wanted, Arc::new(bind.clone()), 0, 1) {
                    Err(e) if is_taken(&e, wanted.address) => {
                        found = AddressTrial::InUse(socket::listener_of(*port));
                    }
                    done => drop(done.map_err(|e| explain_port(&name, wanted.address, &e))?),
                }
            }
        }
        Bind::Unix { path, .. } => {
            let free = only_a_socket(path).and_then(|_| log_file::writable_folder(path.parent()));
            free.map_err(|e| explain(&name, &e))?;
        }
        Bind::Systemd { .. } => {}
    }
    Ok(found)
}

/// Returns whether a server already has the port. That includes a socket that systemd holds for this server,
/// which cannot bind the port itself.
fn is_taken(error: &io::Error, address: SocketAddr) -> bool {
    match error.kind() {
        io::ErrorKind::AddrInUse => true,
        io::ErrorKind::PermissionDenied => TcpStream::connect_timeout(&address, SILENT).is_ok(),
        _ => false,
    }
}

fn backlog_of(backlog: u32) -> i32 {
    backlog.try_into().unwrap_or(i32::MAX)
}

/// Explains why a TCP port cannot be bound: which process uses it, or how to get the permission.
fn explain_port(name: &str, address: SocketAddr, error: &io::Error) -> String {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => {
            let (holder, look) = match socket::listener_of(address.port()) {
                Some(holder) => (format!(" by {holder}"), ""),
                None => (String::new(), "; `ss -ltnp` as root shows the process"),
            };
            format!(
                "the port is in use{holder}: stop that server, or choose another address with -p or -b{look}"
            )
        }
        io::ErrorKind::PermissionDenied => {
            let program =
                std::env::current_exe().map_or("firebrick".to_owned(), |path| path.display().to_string());
            format!(
                "ports below 1024 need a right: sudo setcap cap_net_bind_service=+ep {program}, or \
                 AmbientCapabilities=CAP_NET_BIND_SERVICE in a systemd unit; or choose another port with -p"
            )
        }
        _ => return explain(name, error),
    };
    format!("cannot listen on {name}: {error}; {hint}")
}

fn explain_name(name: &str, error: &io::Error) -> String {
    format!("cannot listen on {name}: {error}; give an address of this machine, or [::] for all of them")
}

fn explain(name: &str, error: &io::Error) -> String {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another server uses it: stop that server, or choose another address with -p or -b"
        }
        io::ErrorKind::PermissionDenied => {
            "; this user may not write there: choose another folder, or give it the right"
        }
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
        io::ErrorKind::NotFound => "; create the folder, or choose another path",
        io::ErrorKind::AlreadyExists => "; remove it, or choose another path",
        _ => "",
    };
    format!("cannot listen on {name}: {error}{hint}")
}

/// Resolves a host and a port.
pub(crate) fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let mut addresses: Vec<SocketAddr> = (bare, port).to_socket_addrs()?.collect();
    addresses.dedup();
    // With port 0, two addresses would get two different ports.
    if port == 0 {
        addresses.truncate(1);
    }
    if addresses.is_empty() { Err(io::Error::other("the name has no address")) } else { Ok(addresses) }
}

fn bind_tcp(wanted: Wanted, bind: Arc<Bind>, backlog: i32, threads: usize) -> io::Result<Bound> {
    match bind_as(wanted, bind.clone(), backlog, threads) {
        Err(e) if wanted.both && without_ipv6(&e) => {
            bind_as(Wanted::ipv4(wanted.address.port()), bind, backlog, threads)
        }
        done => done,
    }
}

fn bind_as(wanted: Wanted, bind: Arc<Bind>, backlog: i32, threads: usize) -> io::Result<Bound> {
    let Wanted { address, both } = wanted;
    let (shared, chosen) = (SPREADS && threads > 1, address.port() == 0);
    if shared && address.port() != 0 {
        // With `SO_REUSEPORT` alone, a second server on the same port would start unnoticed and get half of
        // the connections.
        drop(tcp_socket(address, both, false)?);
    }
    let first = tcp_socket(address, both, shared)?;
    let address = first.local_addr()?.as_socket().unwrap_or(address);
    let mut sockets = vec![first];
    while shared && sockets.len() < threads {
        sockets.push(tcp_socket(address, both, shared)?);
    }
    let sockets = for_threads(sockets, threads)?;
    Ok(Bound { chosen, ..Bound::new(tcp_address(address, &bind), bind, backlog, sockets) })
}

fn local(socket: &Socket) -> Option<SocketAddr> {
    socket.local_addr().ok()?.as_socket()
}

fn tcp_address(address: SocketAddr, bind: &Bind) -> Address {
    if bind.tls().is_some() { Address::Tls(address) } else { Address::Tcp(address) }
}

/// Binds a TCP socket. `both`: `[::]` accepts IPv4 as well.
fn tcp_socket(address: SocketAddr, both: bool, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(!both)?;
    }
    socket.set_reuse_address(true)?;
    // Responses are written whole, so Nagle's algorithm would only delay them. Accepted sockets inherit this.
    socket.set_tcp_nodelay(true)?;
    socket.set_reuse_port(shared)?;
    // The kernel counts in retransmissions, the first of which comes after a second.
    socket::defer_accept(&socket, SILENT);
    if address.ip().is_loopback() {
        socket::do_not_pace(&socket);
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Fills up the sockets with duplicates, in turn, until there is one for each thread.
fn for_threads(mut sockets: Vec<Socket>, threads: usize) -> io::Result<Vec<Socket>> {
    let own = sockets.len();
    for number in own..threads {
        sockets.push(sockets[number % own].try_clone()?);
    }
    Ok(sockets)
}

fn bind_unix(path: &Path, umask: Option<u32>, mode: Option<u32>, threads: usize) -> io::Result<Vec<Socket>> {
    clear_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    // The setting or the directory of the socket decides which processes may connect, not the umask of the
    // server's shell.
    let mode = mode.or_else(|| umask.is_none().then_some(0o777));
    let old = umask.map(|umask| rustix::process::umask(Mode::from_raw_mode(umask as RawMode)));
    let done = socket.bind(&SockAddr::unix(path)?);
    if let Some(old) = old {
        rustix::process::umask(old);
    }
    done?;
    if let Some(mode) = mode {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    for_threads(vec![socket], threads)
}

/// Returns whether there is a socket file of this name, and fails for every other file.
fn only_a_socket(path: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "there is a file of that name that is not a socket",
        )),
        found => Ok(found.is_ok()),
    }
}

/// Removes the socket file of a server that has exited. Leaves other files and the sockets of running servers alone.
fn clear_stale(path: &Path) -> io::Result<()> {
    if !only_a_socket(path)? {
        return Ok(());
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    std::fs::remove_file(path)
}

impl Bound {
    fn new(address: Address, bind: Arc<Bind>, backlog: i32, sockets: Vec<Socket>) -> Bound {
        let (activated, taken, chosen) = (false, false, false);
        Bound { address, bind, backlog, sockets, udp: None, activated, taken, chosen }
    }

    /// Builds the entry from the sockets of an old program.
    fn handed_tcp(
        address: SocketAddr,
        bind: Arc<Bind>,
        backlog: i32,
        taken: ReceivedSockets,
        threads: usize,
        chosen: bool,
    ) -> io::Result<Bound> {
        let ReceivedSockets { mut sockets, activated } = taken;
        // A socket of systemd is shared by all threads.
        while SPREADS && !activated && sockets.len() < threads {
            let Ok(socket) = beside(address, &sockets) else { break };
            sockets.push(socket);
        }
        let sockets = for_threads(sockets, threads)?;
        let bound = Bound::new(tcp_address(address, &bind), bind, backlog, sockets);
        Ok(Bound { activated, chosen, taken: true, ..bound })
    }

    fn handed_unix(
        address: Address,
        bind: Arc<Bind>,
        backlog: i32,
        taken: ReceivedSockets,
        threads: usize,
    ) -> io::Result<Bound> {
        let ReceivedSockets { sockets, activated } = taken;
        let sockets = for_threads(sockets, threads)?;
        Ok(Bound { activated, taken: true, ..Bound::new(address, bind, backlog, sockets) })
    }

    /// Builds the entry from a socket that already listens. All threads share it: the kernel cannot spread
    /// its connections over several sockets.
    fn taken(
        address: Address,
        bind: Arc<Bind>,
        backlog: i32,
        socket: Socket,
        threads: usize,
    ) -> io::Result<Bound> {
        let sockets = for_threads(vec![socket], threads)?;
        Ok(Bound { activated: true, ..Bound::new(address, bind, backlog, sockets) })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the file to remove at exit.
    pub(crate) fn file(&self) -> Option<&Path> {
        match &self.address {
            Address::Unix(path) => (!self.activated).then_some(path.as_path()),
            Address::Tcp(_) | Address::Tls(_) => None,
        }
    }

    /// Whether the sockets came from an old program.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken
    }

    /// Returns duplicates of the sockets for a handover, with their places.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn copies(&self) -> io::Result<Vec<Copies>> {
        let place = match &self.address {
            Address::Tcp(address) | Address::Tls(address) => SocketKind::Tcp {
                // The socket of systemd can be at `[::]` and serve `0.0.0.0`.
                address: self.sockets.first().and_then(local).unwrap_or(*address),
                chosen: self.chosen,
                activated: self.activated,
                encrypted: self.activated && matches!(self.address, Address::Tls(_)),
            },
            Address::Unix(path) => SocketKind::Unix { path: path.clone(), activated: self.activated },
        };
        let mut all = vec![(place, distinct(self.sockets.iter())?)];
        let udp = match &self.udp {
            Some(Udp::Own(port)) => distinct(port.sockets().map(|one| &one.socket))?,
            Some(Udp::Theirs(sockets)) => distinct(sockets.iter())?,
            None => Vec::new(),
        };
        if let (Address::Tls(address), false) = (&self.address, udp.is_empty()) {
            all.push((SocketKind::Udp { address: *address }, udp));
        }
        Ok(all)
    }

    /// Binds the UDP port of the same number for HTTP/3 if the address uses TLS. Not behind proxies that send
    /// the PROXY protocol: datagrams have no PROXY header. With port 0, this chooses another port for both if
    /// the first is in use.
    ///
    /// # Errors
    /// The port is in use, or binding it is not allowed. The text names it.
    pub(crate) fn bind_udp(&mut self, threads: usize, handed: &mut Handed) -> Result<(), String> {
        let Address::Tls(mut address) = self.address else { return Ok(()) };
        if matches!(*self.bind, Bind::Tcp { proxy_protocol: Some(_), .. }) {
            return Ok(());
        }
        if let Some(sockets) = handed.udp(address) {
            self.udp = Some(Udp::Theirs(sockets));
            return Ok(());
        }
        let both = address.is_ipv6() && self.sockets.first().is_some_and(takes_both);
        let mut bound = ::quic::Port::bind(address, both, threads);
        // A port that the system chose is free for TCP, but a client may have it for UDP.
        let mut attempts = if self.chosen && !self.taken { OTHER_PORTS } else { 0 };
        while attempts > 0 && bound.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::AddrInUse) {
            attempts -= 1;
            let wanted = Wanted { address: SocketAddr::new(address.ip(), 0), both };
            let Ok(other) = bind_as(wanted, self.bind.clone(), self.backlog, threads) else { break };
            let Address::Tls(chosen) = other.address else { break };
            bound = ::quic::Port::bind(chosen, both, threads);
            // Only now is the previous port free again, so that the system cannot choose it twice in a row.
            (self.address, self.sockets, address) = (other.address, other.sockets, chosen);
        }
        let bound = bound.map_err(|e| {
            format!("HTTP/3 is off: cannot bind UDP {address}: {e}; --no-http3 ends this line")
        })?;
        self.udp = Some(Udp::Own(bound));
        Ok(())
    }

    /// Sets options that accepted sockets inherit, which saves a system call per connection: the limit of
    /// unsent data, and TCP keep-alive after `keepalive` of silence.
    pub(crate) fn prepare(&self, keepalive: Option<Duration>) {
        if matches!(self.address, Address::Unix(_)) {
            return;
        }
        for socket in &self.sockets {
            socket::bound_unsent(socket, net::UNSENT);
            socket::wait_for_end(socket, END);
            // If the system refuses, its default stays in force.
            let _ = match keepalive.filter(|time| !time.is_zero()) {
                Some(time) => socket.set_tcp_keepalive(&asking(time)),
                None => socket.set_keepalive(false),
            };
        }
    }

    /// Starts listening. Returns the listeners for the threads in turn, and the UDP sockets that an old
    /// program still uses.
    pub(crate) fn listen(self) -> io::Result<(Vec<Listener>, Option<LaterUdp>)> {
        let Bound { address, bind, backlog, sockets, udp, .. } = self;
        let listener = |socket| Listener { address: address.clone(), bind: bind.clone(), socket };
        let mut later = None;
        let mut listeners = match udp {
            Some(Udp::Own(port)) => datagrams(port, listener),
            Some(Udp::Theirs(sockets)) => {
                if let Address::Tls(address) = address {
                    later = Some(LaterUdp { address, bind: bind.clone(), sockets });
                }
                Vec::new()
            }
            None => Vec::new(),
        };
        // A thread must serve HTTP/3 before it announces it, so these listeners come first.
        for socket in sockets {
            socket.listen(backlog)?;
            listeners.push(listener(Listening::Stream(socket)));
        }
        Ok((listeners, later))
    }
}

impl LaterUdp {
    /// Returns listeners for the threads once the old program has exited, and duplicates of the sockets for a
    /// later handover.
    ///
    /// # Errors
    /// The text names the port.
    pub(crate) fn listen(self, threads: usize) -> Result<(Vec<Listener>, Copies), String> {
        let LaterUdp { address, bind, sockets } = self;
        let unusable = |e: io::Error| format!("HTTP/3 is off: UDP {address} cannot be used: {e}");
        let port = ::quic::Port::with(address, sockets.into_iter().map(Into::into).collect(), threads);
        let port = port.map_err(unusable)?;
        let copies = distinct(port.sockets().map(|one| &one.socket)).map_err(unusable)?;
        let listener = |socket| Listener { address: Address::Tls(address), bind: bind.clone(), socket };
        Ok((datagrams(port, listener), (SocketKind::Udp { address }, copies)))
    }
}

fn datagrams(port: ::quic::Port, listener: impl Fn(Listening) -> Listener) -> Vec<Listener> {
    port.into_sockets().into_iter().map(|socket| listener(Listening::Datagrams(socket))).collect()
}

/// TCP keep-alive: the first probe after `time` of silence, then three more before the connection is closed.
fn asking(time: Duration) -> TcpKeepalive {
    let second = Duration::from_secs(1);
    TcpKeepalive::new().with_time(time.max(second)).with_interval((time / 6).max(second)).with_retries(3)
}

/// Opens one more socket on a port that has listening sockets.
fn beside(address: SocketAddr, others: &[Socket]) -> io::Result<Socket> {
    // A program with one front thread opened its socket without `SO_REUSEPORT`.
    others.iter().try_for_each(|socket| socket.set_reuse_port(true))?;
    let both = address.is_ipv6() && others.first().is_some_and(takes_both);
    tcp_socket(address, both, true)
}

/// Duplicates descriptors, one for each distinct socket.
fn distinct<'a, S: AsFd + 'a>(sockets: impl Iterator<Item = &'a S>) -> io::Result<Vec<OwnedFd>> {
    let mut seen = Vec::new();
    let mut copies = Vec::new();
    for socket in sockets {
        let inode = rustix::fs::fstat(socket)?.st_ino;
        if !seen.contains(&inode) {
            seen.push(inode);
            copies.push(socket.as_fd().try_clone_to_owned()?);
        }
    }
    Ok(copies)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(port: u16) -> Vec<Bind> {
        vec![Bind::tcp("127.0.0.1", port)]
    }

    #[test]
    fn all_threads_listen_on_the_port_that_was_given() {
        let bound = bind_all(&tcp(0), 3, &mut Activated::default(), &mut Handed::default()).unwrap();
        let Address::Tcp(address) = bound[0].address().clone() else { panic!("a TCP address") };
        assert_ne!(address.port(), 0);
        let listeners: Vec<Listener> =
            bound.into_iter().flat_map(|bound| bound.listen().unwrap().0).collect();
        assert_eq!(listeners.len(), 3);
        let again =
            bind_all(&tcp(address.port()), 2, &mut Activated::default(), &mut Handed::default()).unwrap_err();
        let own = format!("in use by process {} ", std::process::id());
        assert!(again.contains(&own) || !cfg!(target_os = "linux") || cfg!(firebrick_portable), "{again}");
        assert!(again.contains("the port is in use"), "{again}");
    }

    #[test]
    fn errors_of_a_port_name_the_remedy() {
        let address = "127.0.0.1:80".parse().unwrap();
        let said = |kind: io::ErrorKind| explain_port("tcp://127.0.0.1:80", address, &kind.into());
        let refused = said(io::ErrorKind::PermissionDenied);
        let program = std::env::current_exe().unwrap();
        let wanted = format!("sudo setcap cap_net_bind_service=+ep {}", program.display());
        assert!(refused.contains(&wanted) && refused.contains("AmbientCapabilities="), "{refused}");
        let unix = explain("unix:///a", &io::ErrorKind::PermissionDenied.into());
        assert!(unix.contains("may not write there") && !unix.contains("setcap"), "{unix}");
    }

    #[test]
    fn a_port_that_the_system_chose_is_free_for_udp_too() {
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let taken = client.local_addr().unwrap();
        for (threads, chosen) in [(1, true), (3, true), (2, false)] {
            let bind: Bind = format!("ssl://{taken}?cert=a&key=b").parse().unwrap();
            let bound = bind_as(Wanted { address: taken, both: false }, Arc::new(bind), 16, threads);
            let mut bound = Bound { chosen, ..bound.unwrap() };
            let done = bound.bind_udp(threads, &mut Handed::default());
            let Address::Tls(address) = *bound.address() else { panic!("an address with TLS") };
            assert_eq!((done.is_ok(), address != taken), (chosen, chosen), "{done:?}");
            assert!(bound.sockets.iter().all(|socket| local(socket) == Some(address)));
            if let Some(Udp::Own(port)) = &bound.udp {
                assert!(port.sockets().all(|one| one.socket.local_addr().unwrap() == address));
            }
        }
    }

    fn ipv6() -> bool {
        std::net::TcpListener::bind("[::1]:0").is_ok()
    }

    fn reaches(address: &str, port: u16) -> bool {
        std::net::TcpStream::connect((address, port)).is_ok()
    }

    #[test]
    fn an_old_program_with_one_family_keeps_it_and_the_other_gets_its_own() {
        if !ipv6() {
            return;
        }
        for before in ["tcp://0.0.0.0:0", "tcp://[::]:0?ipv6only=true", "tcp://[::]:0"] {
            let binds: Vec<Bind> = vec![before.parse().unwrap()];
            let old = bind_all(&binds, 2, &mut Activated::default(), &mut Handed::default()).unwrap();
            let Address::Tcp(address) = *old[0].address() else { panic!("a TCP address") };
            let port = address.port();
            let wanted: Vec<Bind> = vec![format!("tcp://[::]:{port}").parse().unwrap()];
            let new = bind_all(&wanted, 2, &mut Activated::default(), &mut handed(&old)).unwrap();
            assert_eq!(new.len(), if before == "tcp://[::]:0" { 1 } else { 2 }, "{before}");
            drop(old);
            let listening: Vec<_> = new.into_iter().map(|bound| bound.listen().unwrap()).collect();
            assert!(reaches("127.0.0.1", port) && reaches("::1", port), "{before}");
            drop(listening);
        }
    }

    /// Returns the sockets as a new program receives them.
    fn handed(bound: &[Bound]) -> Handed {
        let mut handed = Handed::default();
        for (place, sockets) in bound.iter().flat_map(|bound| bound.copies().unwrap()) {
            handed.add(place, sockets).unwrap();
        }
        handed
    }

    fn bind_again(binds: &[Bind], threads: usize, old: &[Bound]) -> Bound {
        bind_all(binds, threads, &mut Activated::default(), &mut handed(old)).unwrap().remove(0)
    }

    fn inodes(bound: &Bound) -> Vec<u64> {
        bound.sockets.iter().map(|socket| rustix::fs::fstat(socket).unwrap().st_ino).collect()
    }

    #[test]
    fn all_sockets_of_an_old_program_are_used_with_more_and_with_fewer_threads() {
        for (before, after, sockets) in [(3, 1, 3), (2, 2, 2), (1, 3, 3), (2, 4, 4)] {
            let old = bind_all(&tcp(0), before, &mut Activated::default(), &mut Handed::default()).unwrap();
            let new = bind_again(&tcp(0), after, &old);
            assert_eq!((new.address(), new.is_taken()), (old[0].address(), true));
            let (theirs, ours) = (inodes(&old[0]), inodes(&new));
            assert!(theirs.iter().all(|inode| ours.contains(inode)), "{before} to {after}");
            let distinct: std::collections::HashSet<&u64> = ours.iter().collect();
            let wanted = if SPREADS { (sockets, sockets) } else { (after, 1) };
            assert_eq!((ours.len(), distinct.len()), wanted, "{before} to {after}");
            assert_eq!(new.listen().unwrap().0.len(), wanted.0);
        }
    }

    #[test]
    fn a_unix_socket_of_an_old_program_is_handed_over_once() {
        let dir = tempfile::tempdir().unwrap();
        let binds = [Bind::unix(dir.path().join("app.sock"))];
        let old = bind_all(&binds, 3, &mut Activated::default(), &mut Handed::default()).unwrap();
        assert_eq!(old[0].copies().unwrap()[0].1.len(), 1, "three copies of one socket");
        let new = bind_again(&binds, 2, &old);
        assert_eq!(inodes(&new), inodes(&old[0])[..2]);
        assert_eq!(new.file(), old[0].file());
    }

    #[test]
    fn a_stale_socket_file_is_replaced_and_a_living_one_is_not() {
        let dir = std::env::temp_dir().join(format!("firebrick-listen-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("app.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let listeners = bind_all(&[Bind::unix(&path)], 1, &mut Activated::default(), &mut Handed::default())
            .unwrap()
            .remove(0)
            .listen()
            .unwrap();
        let living =
            bind_all(&[Bind::unix(&path)], 1, &mut Activated::default(), &mut Handed::default()).unwrap_err();
        assert!(living.contains("another server"), "{living}");
        drop(listeners);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "text").unwrap();
        let file =
            bind_all(&[Bind::unix(&path)], 1, &mut Activated::default(), &mut Handed::default()).unwrap_err();
        assert!(file.contains("not a socket"), "{file}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
