//! Counts what QUIC holds for a connection, as [`MemoryClass::Quic`].
//!
//! Why an estimate: quinn tells how many bytes its buffers may have, not how many they have. A thousand quiet connections would count with their
//! full windows.
//!
//! Contract:
//! 1. Sent bytes count from the moment when QUIC takes them until an acknowledgement has arrived after the next look, at most [`SEND_WINDOW`]. So a
//!    client that acknowledges nothing counts with all that it holds; the figure of a quick download may be too large by that of one interval.
//! 2. Received bytes count from the next look on, until a handler has read them, at most the window.
//! 3. When no stream is open, nothing counts.

use super::windows::{Arrived, WIDE};
use net::memory::{MemoryClass, Reserved};
use quic::SEND_WINDOW;
use std::cell::Cell;
use std::time::Duration;

/// The interval of looks while a request is in progress.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Buffers {
    counted: Reserved,
    /// Response bytes that QUIC has taken since the connection began; those at the last look; and those that are acknowledged.
    taken: Cell<u64>,
    seen: Cell<u64>,
    acknowledged: Cell<u64>,
    acks: Cell<u64>,
    received: Cell<u64>,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers {
            counted: Reserved::new(MemoryClass::Quic, 0),
            taken: Cell::default(),
            seen: Cell::default(),
            acknowledged: Cell::default(),
            acks: Cell::default(),
            received: Cell::default(),
        }
    }
}

impl Buffers {
    /// Counts response bytes that QUIC has taken.
    pub(super) fn take(&self, bytes: u64) {
        self.taken.update(|taken| taken + bytes);
        self.count();
    }

    /// Returns the response bytes that QUIC has taken since the connection began.
    pub(super) fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// Looks at the counters of the connection. `held`: received bytes that are not read.
    pub(super) fn look(&self, arrived: Arrived, held: u64) {
        if self.acks.replace(arrived.acks) != arrived.acks {
            self.acknowledged.set(self.seen.get());
        }
        self.seen.set(self.taken.get());
        self.received.set(held.min(u64::from(WIDE)));
        self.count();
    }

    /// No stream is open.
    pub(super) fn settle(&self) {
        self.acknowledged.set(self.taken.get());
        self.received.set(0);
        self.count();
    }

    fn count(&self) {
        let sent = (self.taken.get() - self.acknowledged.get()).min(u64::from(SEND_WINDOW));
        self.counted.set(sent + self.received.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_bytes_count_until_they_are_acknowledged() {
        let (buffers, acks) = (Buffers::default(), |acks| Arrived { acks, ..Arrived::default() });
        buffers.take(1000);
        assert_eq!(buffers.counted.bytes(), 1000);
        buffers.look(acks(0), 0);
        buffers.look(acks(0), 0);
        assert_eq!(buffers.counted.bytes(), 1000, "the client is silent");
        buffers.take(500);
        buffers.look(acks(3), 40);
        assert_eq!(buffers.counted.bytes(), 540, "the newer ones may be on their way");
        buffers.look(acks(4), u64::MAX);
        assert_eq!(buffers.counted.bytes(), u64::from(WIDE));
        buffers.take(1 << 30);
        assert_eq!(buffers.counted.bytes(), u64::from(WIDE) + u64::from(SEND_WINDOW));
        buffers.settle();
        assert_eq!((buffers.counted.bytes(), buffers.taken()), (0, 1500 + (1 << 30)));
    }
}
