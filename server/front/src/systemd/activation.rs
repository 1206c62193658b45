//! Sockets opened by systemd (`sd_listen_fds(3)`): `LISTEN_FDS`, `LISTEN_PID`, `LISTEN_FDNAMES`.
//!
//! Why they are matched by address: names and order in a socket unit say nothing about TLS, the PROXY
//! protocol or other options of an address; those are in the settings. A socket is used where the settings
//! name its address. A socket that the settings do not name is an error, because no thread would
//! accept its connections.
//!
//! `bind = "systemd"` stands for the addresses of all sockets that no other bind names ([`super::passed`]).
//!
//! Contract:
//! 1. Unix paths match if they lead to the same file.
//! 2. `0.0.0.0` matches a socket of `[::]` that accepts IPv4 as well, which is what `ListenStream=80` creates.
//! 3. systemd keeps owning the socket: its file is not removed and its mode not changed.

use listenfd::ListenFd;
use socket2::Socket;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Sockets that no address has claimed yet.
#[derive(Debug, Default)]
pub(crate) struct Activated {
    sockets: Vec<Passed>,
}

#[derive(Debug)]
struct Passed {
    socket: Socket,
    place: SocketAddress,
    /// `FileDescriptorName=`.
    name: String,
    claimed: bool,
}

/// The address of a systemd socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SocketAddress {
    Tcp {
        address: SocketAddr,
        /// Whether the socket accepts IPv4 as well.
        both: bool,
    },
    Unix(PathBuf),
}

impl fmt::Display for SocketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocketAddress::Tcp { address, .. } => write!(f, "tcp://{address}"),
            SocketAddress::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// The socket of an address.
#[derive(Debug)]
pub(crate) enum Claim {
    Take(Socket),
    /// A socket claimed by another address of the settings serves this one as well.
    Covered,
    Nothing,
}

impl Activated {
    /// Takes the sockets that were passed to this process. Must be called before any thread starts: it
    /// removes the variables.
    ///
    /// # Errors
    /// A descriptor cannot be used. The text names it.
    pub(crate) fn receive() -> Result<Activated, String> {
        let ours =
            std::env::var("LISTEN_PID").ok().and_then(|pid| pid.parse().ok()) == Some(std::process::id());
        if !ours {
            return Ok(Activated::default());
        }
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut passed = ListenFd::from_env();
        let mut sockets = Vec::new();
        for index in 0..passed.len() {
            let name = names.next().filter(|name| !name.is_empty()).unwrap_or("unknown");
            let unusable =
                |why: String| format!("systemd passed descriptor {} ({name}), which {why}", index + 3);
            let socket: Socket = match passed.take_tcp_listener(index) {
                Ok(Some(listener)) => listener.into(),
                _ => match passed.take_unix_listener(index) {
                    Ok(Some(listener)) => listener.into(),
                    _ => {
                        return Err(unusable(
                            "is no stream socket; the socket unit needs ListenStream=".to_owned(),
                        ));
                    }
                },
            };
            sockets.push(Passed::new(socket, name).map_err(unusable)?);
        }
        Ok(Activated { sockets })
    }

    /// Claims the socket for a TCP address.
    pub(crate) fn tcp(&mut self, wanted: SocketAddr) -> Claim {
        self.claim(|place| match place {
            SocketAddress::Tcp { .. } => place.serves(wanted),
            SocketAddress::Unix(_) => false,
        })
    }

    /// Whether there is a socket for `one` and none for `other`.
    pub(crate) fn has_only(&self, one: SocketAddr, other: SocketAddr) -> bool {
        let has = |wanted| self.sockets.iter().any(|passed| passed.place.serves(wanted));
        has(one) && !has(other)
    }

    /// Returns the addresses of the sockets with their names in the socket units.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&SocketAddress, &str)> {
        self.sockets.iter().map(|passed| (&passed.place, passed.name.as_str()))
    }

    /// Takes the socket of a place that is not for requests.
    pub(crate) fn take(&mut self, place: &SocketAddress) -> Option<Socket> {
        let found = self.sockets.iter().position(|passed| passed.place == *place)?;
        Some(self.sockets.remove(found).socket)
    }

    /// Claims the socket for a path.
    pub(crate) fn unix(&mut self, wanted: &Path) -> Claim {
        self.claim(|place| place.is_file(wanted))
    }

    fn claim(&mut self, fits: impl Fn(&SocketAddress) -> bool) -> Claim {
        let Some(found) = self.sockets.iter_mut().find(|passed| fits(&passed.place)) else {
            return Claim::Nothing;
        };
        if std::mem::replace(&mut found.claimed, true) {
            return Claim::Covered;
        }
        found.socket.try_clone().map_or(Claim::Nothing, Claim::Take)
    }

    /// Must be called when all addresses of the settings have claimed their sockets.
    ///
    /// # Errors
    /// A socket is left over.
    pub(crate) fn finish(self) -> Result<(), String> {
        match self.sockets.iter().find(|passed| !passed.claimed) {
            None => Ok(()),
            Some(Passed { place, .. }) => Err(format!(
                "systemd passed a socket for {place}, but the settings do not listen there; add `-b {place}` (or bind in \
                 firebrick.toml), `-b systemd` for all sockets that it passes, or remove it from the socket unit"
            )),
        }
    }
}

impl SocketAddress {
    /// Whether a TCP socket here serves an address.
    pub(crate) fn serves(&self, wanted: SocketAddr) -> bool {
        let SocketAddress::Tcp { address, both } = self else { return false };
        let covered = *both
            && wanted.ip() == IpAddr::from([0, 0, 0, 0])
            && address.ip().is_unspecified()
            && address.port() == wanted.port();
        wanted.port() != 0 && (*address == wanted || covered)
    }

    /// Whether a Unix socket here is the one of a path.
    pub(crate) fn is_file(&self, wanted: &Path) -> bool {
        matches!(self, SocketAddress::Unix(path) if resolved(path) == resolved(wanted))
    }
}

impl Passed {
    fn new(socket: Socket, name: &str) -> Result<Passed, String> {
        if !sys::socket::is_listener(&socket) {
            return Err("does not listen; the socket unit needs Accept=no".to_owned());
        }
        let address = socket.local_addr().map_err(|e| format!("has no address: {e}"))?;
        let place = match (address.as_socket(), address.as_pathname()) {
            (Some(address), _) => {
                SocketAddress::Tcp { address, both: address.is_ipv6() && !socket.only_v6().unwrap_or(true) }
            }
            (None, Some(path)) => SocketAddress::Unix(path.to_owned()),
            (None, None) => return Err("is an abstract socket; give it a path".to_owned()),
        };
        let prepared = socket.set_nonblocking(true).and_then(|()| match &place {
            // As for the server's own sockets; accepted sockets inherit it.
            SocketAddress::Tcp { .. } => socket.set_tcp_nodelay(true),
            SocketAddress::Unix(_) => Ok(()),
        });
        prepared.map_err(|e| format!("cannot be used: {e}"))?;
        Ok(Passed { socket, place, name: name.to_owned(), claimed: false })
    }
}

/// Resolves symbolic links; returns the path as it is if that fails.
fn resolved(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    fn passed(sockets: Vec<Socket>) -> Activated {
        Activated {
            sockets: sockets.into_iter().map(|socket| Passed::new(socket, "unknown").unwrap()).collect(),
        }
    }

    #[test]
    fn sockets_are_found_by_their_address() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut activated = passed(vec![listener.into()]);
        let other = SocketAddr::new(address.ip(), address.port().wrapping_add(1));
        assert!(matches!(activated.tcp(other), Claim::Nothing));
        let left = format!("systemd passed a socket for tcp://{address}, but");
        assert!(
            matches!(activated.tcp(SocketAddr::new(address.ip(), 0)), Claim::Nothing),
            "a port of its own"
        );
        let Claim::Take(socket) = activated.tcp(address) else { panic!("the socket") };
        assert_eq!(socket.local_addr().unwrap().as_socket(), Some(address));
        assert!(matches!(activated.tcp(address), Claim::Covered));
        assert_eq!(activated.finish(), Ok(()));
        let again = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let error = passed(vec![again.into()]).finish().unwrap_err();
        assert!(error.starts_with(&left[..33]), "{error}");
    }

    #[test]
    fn paths_may_be_spelled_in_several_ways() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("run")).unwrap();
        std::os::unix::fs::symlink("run", dir.path().join("link")).unwrap();
        let listener = UnixListener::bind(dir.path().join("run/app.sock")).unwrap();
        let mut activated = passed(vec![listener.into()]);
        assert!(matches!(activated.unix(&dir.path().join("run/other.sock")), Claim::Nothing));
        assert!(matches!(activated.unix(&dir.path().join("link/app.sock")), Claim::Take(_)));
    }

    #[test]
    #[cfg(all(target_os = "linux", not(firebrick_portable)))]
    fn a_socket_that_does_not_listen_says_what_to_do() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(Passed::new(one.into(), "unknown").unwrap_err().contains("Accept=no"));
    }
}
