//! Which thread a packet belongs to.

use quinn::{ConnectionId, ConnectionIdGenerator};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

/// Length of connection ids: the number of the thread and 8 random bytes.
const ID_LEN: usize = 9;
/// Packets that wait for a thread.
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

/// A thread's own end.
#[derive(Debug)]
pub struct Mailbox {
    index: u8,
    steering: Steering,
    received: Mutex<mpsc::Receiver<Datagram>>,
}

impl Steering {
    /// Mailboxes for that many threads, 256 at most, in order.
    pub fn mailboxes(threads: u8) -> Vec<Mailbox> {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..threads).map(|_| mpsc::channel(MAILBOX)).unzip();
        let steering = Steering { mailboxes: senders.into() };
        let mailbox =
            |(index, received)| Mailbox { index, steering: steering.clone(), received: Mutex::new(received) };
        (0..threads).zip(receivers).map(mailbox).collect()
    }
}

/// The thread that issued the connection id of a datagram; `None` where that cannot be said.
///
/// Packets of a handshake have a long header (RFC 9000 section 17.2), and arrive where the first one did.
fn owner(datagram: &[u8], threads: usize) -> Option<usize> {
    match datagram {
        [first, index, ..] if first & 0x80 == 0 && datagram.len() > ID_LEN => {
            Some(usize::from(*index)).filter(|&index| index < threads)
        }
        _ => None,
    }
}

impl Mailbox {
    /// Whether a datagram is for this thread.
    pub(crate) fn is_own(&self, datagram: &[u8]) -> bool {
        owner(datagram, self.steering.mailboxes.len()).is_none_or(|index| index == usize::from(self.index))
    }

    /// Hands a datagram to its thread.
    pub(crate) fn hand_over(&self, datagram: Datagram) {
        let index = owner(&datagram.bytes, self.steering.mailboxes.len()).unwrap_or(usize::from(self.index));
        // A full mailbox drops it, as the network might have: QUIC sends it again.
        let _ = self.steering.mailboxes[index].try_send(datagram);
    }

    /// The next datagram that another thread has received.
    pub(crate) fn poll_received(&self, cx: &mut Context<'_>) -> Poll<Datagram> {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        match received.poll_recv(cx) {
            Poll::Ready(Some(datagram)) => Poll::Ready(datagram),
            // It never ends: this mailbox has a sender, too.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Makes the connection ids of this thread.
    pub(crate) fn ids(&self) -> Ids {
        Ids { index: self.index }
    }
}

/// Connection ids whose first byte is the thread.
#[derive(Debug, Clone)]
pub(crate) struct Ids {
    index: u8,
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; ID_LEN];
        // The system's random numbers cannot fail once the process runs; ids that repeat would be refused by quinn.
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
