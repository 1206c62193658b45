//! The UDP sockets of a port: one for each thread, or a single one on systems other than Linux, whose kernels
//! do not keep the packets of a client together.

use crate::endpoint::Keys;
use crate::steering::{PacketMailbox, Steering};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};

/// The size of a socket's buffers in the kernel, in bytes. Datagrams arrive in bursts, and a reader that
/// pauses must not lose them.
const BUFFER: usize = 1 << 20;

/// Linux passes all packets of a client to the same socket of a port, so that one thread reads the whole handshake.
const MOST_SOCKETS: usize =
    if cfg!(all(target_os = "linux", not(firebrick_portable))) { u16::MAX as usize } else { 1 };

#[derive(Debug)]
pub struct Port {
    sockets: Vec<PortSocket>,
}

/// One thread's part of a port.
#[derive(Debug)]
pub struct PortSocket {
    /// The non-blocking socket.
    pub socket: UdpSocket,
    /// Receives this thread's packets from other threads.
    pub mailbox: PacketMailbox,
    pub keys: Keys,
}

impl Port {
    /// Binds the port for that many threads (at most 255), or for the first of them only. `both`: `[::]`
    /// accepts IPv4 as well.
    ///
    /// # Errors
    /// As bind(2), or too many threads.
    pub fn bind(address: SocketAddr, both: bool, threads: usize) -> io::Result<Port> {
        let threads = threads.min(MOST_SOCKETS);
        if threads > 1 {
            // With `SO_REUSEPORT` alone, a second server on the same port would start unnoticed.
            drop(socket(address, both, false)?);
        }
        let sockets = (0..threads).map(|_| Ok(socket(address, both, threads > 1)?.into()));
        Port::of(sockets.collect::<io::Result<_>>()?)
    }

    /// Continues with the sockets of another program, for that many threads (at most 255). Missing sockets
    /// are bound, surplus ones closed.
    ///
    /// # Errors
    /// As bind(2), or too many threads.
    pub fn with(address: SocketAddr, mut sockets: Vec<UdpSocket>, threads: usize) -> io::Result<Port> {
        let threads = threads.min(MOST_SOCKETS);
        sockets.truncate(threads);
        let both = address.is_ipv6()
            && sockets.first().is_some_and(|one| !SockRef::from(one).only_v6().unwrap_or(true));
        for _ in sockets.len()..threads {
            // A single socket was bound without `SO_REUSEPORT`.
            sockets.iter().try_for_each(|one| SockRef::from(one).set_reuse_port(true))?;
            sockets.push(socket(address, both, true)?.into());
        }
        Port::of(sockets)
    }

    fn of(sockets: Vec<UdpSocket>) -> io::Result<Port> {
        let count = u8::try_from(sockets.len()).map_err(|_| io::Error::other("more than 255 threads"))?;
        let keys = Keys::random()?;
        let of_thread = |(mailbox, socket)| PortSocket { socket, mailbox, keys: keys.clone() };
        Ok(Port { sockets: Steering::mailboxes(count).into_iter().zip(sockets).map(of_thread).collect() })
    }

    /// Borrows the sockets, in the order of threads.
    pub fn sockets(&self) -> impl Iterator<Item = &PortSocket> {
        self.sockets.iter()
    }

    /// Returns the sockets, in the order of threads.
    pub fn into_sockets(self) -> Vec<PortSocket> {
        self.sockets
    }
}

fn socket(address: SocketAddr, both: bool, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(!both)?;
    }
    socket.set_reuse_port(shared)?;
    socket.bind(&address.into())?;
    // Only a hint: the system may allow less.
    let _ = socket.set_recv_buffer_size(BUFFER);
    let _ = socket.set_send_buffer_size(BUFFER);
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_another_program_are_used() {
        for (before, after) in [(1, 3), (3, 1), (2, 2)] {
            let old = Port::bind("127.0.0.1:0".parse().unwrap(), false, 1).unwrap();
            let address = old.sockets[0].socket.local_addr().unwrap();
            drop(old);
            let old = Port::bind(address, false, before).unwrap();
            let copies = old.sockets().map(|one| one.socket.try_clone().unwrap()).collect();
            drop(old);
            let new = Port::with(address, copies, after).unwrap();
            assert_eq!(new.sockets().count(), after.min(MOST_SOCKETS));
            assert!(new.sockets().all(|one| one.socket.local_addr().unwrap() == address));
        }
    }

    #[test]
    fn a_port_that_is_taken_is_refused() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        for threads in [1, 2] {
            assert_eq!(Port::bind(address, false, threads).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        }
        drop(taken);
        let port = Port::bind(address, false, 2).unwrap();
        assert_eq!(port.sockets.len(), MOST_SOCKETS.min(2));
        assert!(Port::bind(address, false, 2).is_err(), "another server");
    }
}
