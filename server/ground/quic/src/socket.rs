//! A thread's UDP socket: hands packets of other threads over to them, and receives its own packets from them.

use crate::steering::{Datagram, PacketMailbox};
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A socket that shares its port with those of other threads.
#[derive(Debug)]
pub(crate) struct SteeredSocket {
    inner: Arc<dyn AsyncUdpSocket>,
    mailbox: PacketMailbox,
}

impl SteeredSocket {
    pub(crate) fn new(inner: Arc<dyn AsyncUdpSocket>, mailbox: PacketMailbox) -> SteeredSocket {
        SteeredSocket { inner, mailbox }
    }

    /// Copies packets received from other threads into buffers. Returns their number.
    fn take_over(&self, cx: &mut Context<'_>, bufs: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) -> usize {
        let mut count = 0;
        while count < bufs.len().min(meta.len()) {
            let Poll::Ready(Datagram { bytes, from, to, ecn }) = self.mailbox.poll_received(cx) else {
                break;
            };
            let len = bytes.len();
            // Buffers hold the largest datagram that the endpoint announces. A longer one cannot be for it.
            let Some(room) = bufs[count].get_mut(..len) else { continue };
            room.copy_from_slice(&bytes);
            meta[count] = RecvMeta { addr: from, len, stride: len, ecn, dst_ip: to };
            count += 1;
        }
        count
    }

    /// Hands over packets of other threads. Moves the rest of the `count` buffers to the front and returns
    /// their number.
    fn sort(&self, count: usize, bufs: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) -> usize {
        let mut kept = 0;
        for at in 0..count {
            let RecvMeta { addr, len, stride, ecn, dst_ip } = meta[at];
            let segments = || bufs[at][..len].chunks(stride.max(1));
            if !segments().all(|datagram| self.mailbox.is_own(datagram)) {
                // One buffer may hold packets of several connections from the same address. Each is handed
                // over separately.
                for bytes in segments() {
                    self.mailbox.hand_over(Datagram { bytes: bytes.into(), from: addr, to: dst_ip, ecn });
                }
                continue;
            }
            bufs.swap(kept, at);
            meta.swap(kept, at);
            kept += 1;
        }
        kept
    }
}

impl AsyncUdpSocket for SteeredSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.inner.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.inner.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            let taken = self.take_over(cx, bufs, meta);
            if taken > 0 {
                return Poll::Ready(Ok(taken));
            }
            match self.inner.poll_recv(cx, bufs, meta) {
                Poll::Ready(Ok(count)) => {
                    let kept = self.sort(count, bufs, meta);
                    if kept > 0 {
                        return Poll::Ready(Ok(kept));
                    }
                }
                other => return other,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}
