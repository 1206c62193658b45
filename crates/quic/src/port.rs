//! The UDP sockets of a port, one for each thread.

use crate::endpoint::Keys;
use crate::steering::{Mailbox, Steering};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};

/// Bytes that the kernel may hold for each socket: datagrams come in bursts, and who does not read for a moment must not lose them.
const BUFFER: usize = 1 << 20;

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
    /// Binds the port for that many threads, 255 at most.
    ///
    /// # Errors
    /// As bind(2), or there are too many threads.
    pub fn bind(address: SocketAddr, threads: usize) -> io::Result<Port> {
        let count = u8::try_from(threads).map_err(|_| io::Error::other("more than 255 threads"))?;
        if threads > 1 {
            // With SO_REUSEPORT another server on the same port would go unnoticed.
            drop(socket(address, false)?);
        }
        let keys = Keys::random()?;
        let sockets = Steering::mailboxes(count).into_iter().map(|mailbox| {
            Ok(PortSocket { socket: socket(address, threads > 1)?.into(), mailbox, keys: keys.clone() })
        });
        Ok(Port { sockets: sockets.collect::<io::Result<_>>()? })
    }

    /// The sockets, in the order of threads.
    pub fn into_sockets(self) -> Vec<PortSocket> {
        self.sockets
    }
}

fn socket(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let kind = Type::DGRAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
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
    fn a_port_that_is_taken_is_refused() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        for threads in [1, 2] {
            assert_eq!(Port::bind(address, threads).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        }
        drop(taken);
        let port = Port::bind(address, 2).unwrap();
        assert_eq!(port.sockets.len(), 2);
        assert!(Port::bind(address, 2).is_err(), "another server");
    }
}
