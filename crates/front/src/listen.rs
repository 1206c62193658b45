//! Addresses to sockets: bound early, so that mistakes show at once; listening late, when the app can respond.
//!
//! Every front thread has a TCP socket of its own (`SO_REUSEPORT`), so that the kernel spreads connections and wakes
//! only one thread for each; Unix sockets cannot do that and are shared.

use crate::systemd::activation::{Activated, Claim};
use rustix::fs::Mode;
use settings::Bind;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// All sockets of one address.
#[derive(Debug)]
pub(crate) struct Bound {
    address: Address,
    /// How it was configured.
    bind: Arc<Bind>,
    backlog: i32,
    sockets: Vec<Socket>,
    /// The same port of UDP, for HTTP/3.
    udp: Option<::quic::Port>,
    /// It was opened by systemd, which keeps it.
    activated: bool,
}

/// Where a server can be reached.
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

/// One front thread's socket of one address, listening.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) address: Address,
    /// How it was configured.
    pub(crate) bind: Arc<Bind>,
    pub(crate) socket: Socket,
    /// The same port of UDP, for HTTP/3.
    pub(crate) udp: Option<::quic::PortSocket>,
}

/// Binds every address for `threads` front threads, but for those that systemd has opened.
///
/// # Errors
/// The text names the address and what can be done.
pub(crate) fn bind_all(
    binds: &[Bind],
    threads: usize,
    activated: &mut Activated,
) -> Result<Vec<Bound>, String> {
    let mut bound = Vec::new();
    for bind in binds {
        match bind {
            Bind::Tcp { host, port, backlog, .. } => {
                let name = bind.to_string();
                let addresses = resolve(host, *port).map_err(|e| format!("cannot listen on {name}: {e}"))?;
                for address in addresses {
                    let (backlog, bind) = (backlog_of(*backlog), Arc::new(bind.clone()));
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
                    bound.push(bind_tcp(address, bind, backlog, threads).map_err(|e| explain(&name, &e))?);
                }
            }
            Bind::Unix { path, umask, mode, backlog } => {
                let (address, backlog) = (Address::Unix(path.clone()), backlog_of(*backlog));
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
                bound.push(Bound { address, bind, backlog, sockets, udp: None, activated: false });
            }
        }
    }
    Ok(bound)
}

fn backlog_of(backlog: u32) -> i32 {
    backlog.try_into().unwrap_or(i32::MAX)
}

fn explain(name: &str, error: &io::Error) -> String {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another server is there: stop it, or choose another address with -p or -b"
        }
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 and foreign folders need more rights: choose another address"
        }
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
        _ => "",
    };
    format!("cannot listen on {name}: {error}{hint}")
}

fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let mut addresses: Vec<SocketAddr> = (bare, port).to_socket_addrs()?.collect();
    addresses.dedup();
    // With port 0 two families would get two ports; one address is enough.
    if port == 0 {
        addresses.truncate(1);
    }
    if addresses.is_empty() { Err(io::Error::other("the name has no address")) } else { Ok(addresses) }
}

fn bind_tcp(address: SocketAddr, bind: Arc<Bind>, backlog: i32, threads: usize) -> io::Result<Bound> {
    let shared = threads > 1;
    if shared && address.port() != 0 {
        // With SO_REUSEPORT a second server on the same port would go unnoticed and get half of the requests.
        drop(tcp_socket(address, false)?);
    }
    let first = tcp_socket(address, shared)?;
    let address = first.local_addr()?.as_socket().unwrap_or(address);
    let mut sockets = vec![first];
    for _ in 1..threads {
        sockets.push(tcp_socket(address, shared)?);
    }
    let address = tcp_address(address, &bind);
    Ok(Bound { address, bind, backlog, sockets, udp: None, activated: false })
}

fn tcp_address(address: SocketAddr, bind: &Bind) -> Address {
    if bind.tls().is_some() { Address::Tls(address) } else { Address::Tcp(address) }
}

fn tcp_socket(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket =
        Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    // A response is written whole; waiting for more to send only delays it. Accepted sockets inherit this.
    socket.set_tcp_nodelay(true)?;
    socket.set_reuse_port(shared)?;
    if address.ip().is_loopback() {
        do_not_pace(&socket);
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// BBR sends more than 64 KiB by a timer, piece by piece: a fifth of the CPU time of a busy server, and within a machine nothing is
/// gained by it. Accepted sockets inherit this. Reno is there on every system; where it is not, the socket stays as it is.
fn do_not_pace(socket: &Socket) {
    if socket.tcp_congestion().is_ok_and(|name| name.starts_with(b"bbr")) {
        let _ = socket.set_tcp_congestion(b"reno");
    }
}

fn bind_unix(path: &Path, umask: Option<u32>, mode: Option<u32>, threads: usize) -> io::Result<Vec<Socket>> {
    clear_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    let old = umask.map(|umask| rustix::process::umask(Mode::from_raw_mode(umask)));
    let done = socket.bind(&SockAddr::unix(path)?);
    if let Some(old) = old {
        rustix::process::umask(old);
    }
    done?;
    if let Some(mode) = mode {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    let mut sockets = Vec::new();
    for _ in 1..threads {
        sockets.push(socket.try_clone()?);
    }
    sockets.push(socket);
    Ok(sockets)
}

/// Removes the socket file of a server that has ended; that of a running server, or another file, is left alone.
fn clear_stale(path: &Path) -> io::Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "there is a file of that name that is not a socket",
        ));
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    std::fs::remove_file(path)
}

impl Bound {
    /// With a socket that listens already. All threads share it: the kernel cannot spread its connections over several.
    fn taken(
        address: Address,
        bind: Arc<Bind>,
        backlog: i32,
        socket: Socket,
        threads: usize,
    ) -> io::Result<Bound> {
        let clones = (1..threads).map(|_| socket.try_clone()).collect::<io::Result<Vec<_>>>()?;
        let sockets = std::iter::once(socket).chain(clones).collect();
        Ok(Bound { address, bind, backlog, sockets, udp: None, activated: true })
    }

    /// Where it is.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The file to remove at the end.
    pub(crate) fn file(&self) -> Option<&Path> {
        match &self.address {
            Address::Unix(path) => (!self.activated).then_some(path.as_path()),
            Address::Tcp(_) | Address::Tls(_) => None,
        }
    }

    /// Binds the same port of UDP where TLS is spoken. Datagrams have no PROXY header, so not behind proxies that send one.
    ///
    /// # Errors
    /// The port is taken, or may not be bound; the text names it.
    pub(crate) fn bind_udp(&mut self) -> Result<(), String> {
        let Address::Tls(address) = self.address else { return Ok(()) };
        if matches!(*self.bind, Bind::Tcp { proxy_protocol: Some(_), .. }) {
            return Ok(());
        }
        let bound = ::quic::Port::bind(address, self.sockets.len());
        let bound = bound.map_err(|e| {
            format!("HTTP/3 is off: cannot bind UDP {address}: {e}; --no-http3 ends this line")
        })?;
        self.udp = Some(bound);
        Ok(())
    }

    /// Opens the port: one listener for each thread.
    pub(crate) fn listen(self) -> io::Result<Vec<Listener>> {
        let Bound { address, bind, backlog, sockets, udp, activated: _ } = self;
        let mut udp = udp.map(::quic::Port::into_sockets).unwrap_or_default().into_iter();
        sockets
            .into_iter()
            .map(|socket| {
                socket.listen(backlog)?;
                Ok(Listener { address: address.clone(), bind: bind.clone(), socket, udp: udp.next() })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(port: u16) -> Vec<Bind> {
        vec![Bind::tcp("127.0.0.1", port)]
    }

    #[test]
    fn all_threads_listen_on_the_port_that_was_given() {
        let bound = bind_all(&tcp(0), 3, &mut Activated::default()).unwrap();
        let Address::Tcp(address) = bound[0].address().clone() else { panic!("a TCP address") };
        assert_ne!(address.port(), 0);
        let listeners: Vec<_> = bound.into_iter().flat_map(|bound| bound.listen().unwrap()).collect();
        assert_eq!(listeners.len(), 3);
        let again = bind_all(&tcp(address.port()), 2, &mut Activated::default()).unwrap_err();
        assert!(again.contains("another server is there"), "{again}");
    }

    #[test]
    fn a_stale_socket_file_is_replaced_and_a_living_one_is_not() {
        let dir = std::env::temp_dir().join(format!("firebrick-listen-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("app.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let listeners =
            bind_all(&[Bind::unix(&path)], 1, &mut Activated::default()).unwrap().remove(0).listen().unwrap();
        let living = bind_all(&[Bind::unix(&path)], 1, &mut Activated::default()).unwrap_err();
        assert!(living.contains("another server"), "{living}");
        drop(listeners);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "text").unwrap();
        let file = bind_all(&[Bind::unix(&path)], 1, &mut Activated::default()).unwrap_err();
        assert!(file.contains("not a socket"), "{file}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
