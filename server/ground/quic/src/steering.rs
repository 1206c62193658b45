//! Finds the thread that a packet belongs to.

use quinn::{ConnectionId, ConnectionIdGenerator};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

/// The length of connection ids in bytes: the number of the thread and 8 random bytes.
const ID_LEN: usize = 9;
/// The largest number of packets that wait for a thread.
const MAILBOX: usize = 1024;

/// A datagram that was received on another thread's socket.
#[derive(Debug)]
pub(crate) struct Datagram {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) from: SocketAddr,
    pub(crate) to: Option<IpAddr>,
    pub(crate) ecn: Option<quinn::udp::EcnCodepoint>,
}

/// The mailboxes of all threads of a port.
#[derive(Debug, Clone)]
pub struct Steering {
    mailboxes: Arc<[mpsc::Sender<Datagram>]>,
}

/// The receiving end of a thread.
#[derive(Debug)]
pub struct PacketMailbox {
    index: u8,
    steering: Steering,
    received: Mutex<mpsc::Receiver<Datagram>>,
}

impl Steering {
    /// Creates mailboxes for that many threads, in order.
    pub fn mailboxes(threads: u8) -> Vec<PacketMailbox> {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..threads).map(|_| mpsc::channel(MAILBOX)).unzip();
        let steering = Steering { mailboxes: senders.into() };
        let mailbox = |(index, received)| PacketMailbox {
            index,
            steering: steering.clone(),
            received: Mutex::new(received),
        };
        (0..threads).zip(receivers).map(mailbox).collect()
    }
}

/// Returns the thread that issued the connection id of a datagram; `None` if unknown.
///
/// Packets of a handshake have a long header (RFC 9000 section 17.2) and arrive where the first one did.
fn owner(datagram: &[u8], threads: usize) -> Option<usize> {
    match datagram {
        [first, index, ..] if first & 0x80 == 0 && datagram.len() > ID_LEN => {
            Some(usize::from(*index)).filter(|&index| index < threads)
        }
        _ => None,
    }
}

impl PacketMailbox {
    /// Whether a datagram is for this thread.
    pub(crate) fn is_own(&self, datagram: &[u8]) -> bool {
        owner(datagram, self.steering.mailboxes.len()).is_none_or(|index| index == usize::from(self.index))
    }

    /// Hands a datagram to its thread.
    pub(crate) fn hand_over(&self, datagram: Datagram) {
        let index = owner(&datagram.bytes, self.steering.mailboxes.len()).unwrap_or(usize::from(self.index));
        // A full mailbox drops the datagram, as the network may; QUIC retransmits it.
        let _ = self.steering.mailboxes[index].try_send(datagram);
    }

    /// Returns the next datagram that another thread has received.
    pub(crate) fn poll_received(&self, cx: &mut Context<'_>) -> Poll<Datagram> {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        match received.poll_recv(cx) {
            Poll::Ready(Some(datagram)) => Poll::Ready(datagram),
            // The channel never closes, because this mailbox holds a sender.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Returns the generator of this thread's connection ids.
    pub(crate) fn ids(&self) -> Ids {
        Ids { index: self.index }
    }
}

/// Generates connection ids whose first byte is the thread.
#[derive(Debug, Clone)]
pub(crate) struct Ids {
    index: u8,
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; ID_LEN];
        // The system's random numbers cannot fail once the process runs. quinn would refuse ids that repeat.
        let _ = aws_lc_rs::rand::fill(&mut id);
        id[0] = self.index;
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        ID_LEN
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn datagram(bytes: &[u8]) -> Datagram {
        Datagram { bytes: bytes.into(), from: "127.0.0.1:1".parse().unwrap(), to: None, ecn: None }
    }

    #[test]
    fn packets_go_to_the_thread_of_their_id() {
        let boxes = Steering::mailboxes(2);
        let mut cx = Context::from_waker(Waker::noop());
        let id = boxes[1].ids().generate_cid();
        assert_eq!((id.len(), id[0]), (ID_LEN, 1));
        let mut packet = vec![0x40];
        packet.extend_from_slice(&id);
        packet.extend_from_slice(b"payload");
        assert!(!boxes[0].is_own(&packet) && boxes[1].is_own(&packet));
        boxes[0].hand_over(datagram(&packet));
        assert!(boxes[0].poll_received(&mut cx).is_pending());
        assert!(
            matches!(boxes[1].poll_received(&mut cx), Poll::Ready(received) if *received.bytes == *packet)
        );
        assert!(boxes[1].poll_received(&mut cx).is_pending());
    }

    #[test]
    fn other_packets_stay_where_they_are() {
        let boxes = Steering::mailboxes(2);
        for packet in [
            &[][..],
            &[0x40],
            &[0x40, 1],
            &[0xc0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
            &[0x40, 7, 2, 3, 4, 5, 6, 7, 8, 9, 10],
        ] {
            assert!(boxes[0].is_own(packet) && boxes[1].is_own(packet), "{packet:?}");
        }
    }

    #[test]
    fn a_full_mailbox_drops() {
        let boxes = Steering::mailboxes(2);
        let packet = [0x40, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        (0..MAILBOX * 2).for_each(|_| boxes[0].hand_over(datagram(&packet)));
        let mut cx = Context::from_waker(Waker::noop());
        let count = std::iter::from_fn(|| boxes[1].poll_received(&mut cx).is_ready().then_some(())).count();
        assert_eq!(count, MAILBOX);
    }
}
