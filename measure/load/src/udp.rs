//! The UDP socket of a QUIC connection.
//!
//! Why not quinn's: here a closed port is an error, which ends the wait for a handshake, and bytes are counted.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use quic::quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use quic::quinn::{AsyncUdpSocket, UdpPoller};
use socket2::{Domain, Protocol, Type};
use tokio::io::Interest;
use tokio::sync::Notify;

/// Bytes that the kernel may hold, so that datagrams of a burst are not lost while this thread is busy.
const BUFFER: usize = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct SocketEvents {
    /// Bytes since the last query.
    pub sent: AtomicU64,
    pub received: AtomicU64,
    refused: AtomicBool,
    refusal: Notify,
}

impl SocketEvents {
    fn refuse(&self) {
        self.refused.store(true, Relaxed);
        self.refusal.notify_one();
    }

    /// Returns whether the other machine has reported that nothing listens on the port.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.load(Relaxed)
    }

    /// Waits for that report.
    pub(crate) async fn refused(&self) {
        self.refusal.notified().await;
    }
}

#[derive(Debug)]
pub(crate) struct Socket {
    io: tokio::net::UdpSocket,
    state: UdpSocketState,
    seen: Arc<SocketEvents>,
}

impl Socket {
    /// Opens a socket that sends to `remote` alone.
    ///
    /// # Errors
    /// The same as of socket(2) and connect(2).
    pub(crate) fn connect(remote: SocketAddr, seen: Arc<SocketEvents>) -> io::Result<Socket> {
        let socket = socket2::Socket::new(Domain::for_address(remote), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        // The system may grant less, which is fine.
        let _ = socket.set_recv_buffer_size(BUFFER);
        let _ = socket.set_send_buffer_size(BUFFER);
        // Only connected sockets get the report that nothing listens.
        socket.connect(&remote.into())?;
        let io = tokio::net::UdpSocket::from_std(socket.into())?;
        let state = UdpSocketState::new((&io).into())?;
        Ok(Socket { io, state, seen })
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable(self))
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        match self.io.try_io(Interest::WRITABLE, || self.state.try_send((&self.io).into(), transmit)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => self.seen.refuse(),
            // Treated like a loss in the network.
            Err(_) => {}
            Ok(()) => {
                self.seen.sent.fetch_add(transmit.contents.len() as u64, Relaxed);
            }
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.io.poll_recv_ready(cx))?;
            let read =
                self.io.try_io(Interest::READABLE, || self.state.recv((&self.io).into(), buffers, meta));
            match read {
                Ok(count) => {
                    let bytes: usize = meta[..count].iter().map(|one| one.len).sum();
                    self.seen.received.fetch_add(bytes as u64, Relaxed);
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    if error.kind() == io::ErrorKind::ConnectionRefused {
                        self.seen.refuse();
                    }
                    return Poll::Ready(Err(error));
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

/// Waits until the socket is writable, for its connection's task.
#[derive(Debug)]
struct Writable(Arc<Socket>);

impl UdpPoller for Writable {
    fn poll_writable(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.io.poll_send_ready(cx)
    }
}
