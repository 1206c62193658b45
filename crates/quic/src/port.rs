//! The UDP sockets of a port, one for each thread, or one where only Linux's kernel keeps the packets of a client together.

use crate::endpoint::Keys;
use crate::steering::{Mailbox, Steering};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};

/// Bytes that the kernel may hold for each socket: datagrams come in bursts, and who does not read for a moment must not lose them.
const BUFFER: usize = 1 << 20;

/// Linux's kernel hands all packets of a client to the same one of a port's sockets, so a handshake is read by one thread.
const MOST_SOCKETS: usize =
    if cfg!(all(target_os = "linux", not(firebrick_portable))) { u16::MAX as usize } else { 1 };

/// A bound port.
#[derive(Debug)]
pub struct Port {
    sockets: Vec<PortSocket>,
}

/// One thread's part of a port.
#[derive(Debug)]
pub struct PortSocket {
    /// The socket, which does not block.
    pub socket: UdpSocket,
    /// What other threads have received for this one.
    pub mailbox: Mailbox,
    /// The port's keys.
    pub keys: Keys,
}

impl Port {
    /// Binds the port for that many threads, 255 at most, or for the first of them. With `both`, `[::]` takes IPv4, too.
    ///
    /// # Errors
    /// As bind(2), or there are too many threads.
    pub fn bind(address: SocketAddr, both: bool, threads: usize) -> io::Result<Port> {
        let threads = threads.min(MOST_SOCKETS);
        if threads > 1 {
            // With SO_REUSEPORT another server on the same port would go unnoticed.
            drop(socket(address, both, false)?);
        }
        let sockets = (0..threads).map(|_| Ok(socket(address, both, threads > 1)?.into()));
        Port::of(sockets.collect::<io::Result<_>>()?)
    }

    /// Goes on with sockets of the port that another program has used, for that many threads, 255 at most: what is missing is bound, and what
    /// is too much is closed.
    ///
    /// # Errors
    /// As bind(2), or there are too many threads.
    pub fn with(address: SocketAddr, mut sockets: Vec<UdpSocket>, threads: usize) -> io::Result<Port> {
        let threads = threads.min(MOST_SOCKETS);
        sockets.truncate(threads);
        let both = address.is_ipv6()
            && sockets.first().is_some_and(|one| !SockRef::from(one).only_v6().unwrap_or(true));
        for _ in sockets.len()..threads {
            // One that was alone was not meant to be shared.
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

    /// The sockets, in the order of threads, for a look.
    pub fn sockets(&self) -> impl Iterator<Item = &PortSocket> {
        self.sockets.iter()
    }

    /// The sockets, in the order of threads.
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
    // As far as the system allows: it is a wish.
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
