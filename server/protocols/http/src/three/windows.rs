//! Limits how far a client may send ahead, and detects clients that send unusable data.
//!
//! Why: quinn keeps received data until it is read, and data behind a gap cannot be read. A client that
//! leaves out the first bytes of a stream makes the server hold a full window for nothing.
//!
//! Contract:
//! 1. A connection has a small window; while a handler reads a body, a wide one. All wide windows of a thread
//!    share one limit. Beyond it, the small window stays and the upload is slower.
//! 2. A connection is closed if its client keeps sending but fills no gap for [`PATIENCE`] and some round trips.

use crate::uploads::Uploads;
use quic::quinn::{Connection, VarInt};
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// The window of a connection while a handler reads a body.
pub(super) const WIDE: u32 = 2 << 20;
/// The interval of checks while a stream waits for bytes.
pub(super) const LOOK: Duration = Duration::from_millis(200);
/// Lost packets are sent again after a round trip, and once more after another one.
const PATIENCE: Duration = Duration::from_millis(300);
const ROUND_TRIPS: u32 = 6;
/// Too many bytes behind a gap. Fewer can be in flight behind a lost packet.
const FRUITLESS: u64 = 32 << 10;
/// The most bytes that a datagram, and an acknowledgement, add to stream data.
const AROUND: u64 = 60;
const ACKNOWLEDGEMENT: u64 = 250;

#[derive(Debug, Default)]
pub(super) struct Windows {
    /// Handlers that read a body.
    bodies: Cell<usize>,
    wide: Cell<bool>,
    /// Streams that may receive bytes, and streams that wait for bytes.
    open: Cell<usize>,
    waiting: Cell<usize>,
    /// Bytes read from streams.
    read: Cell<u64>,
    gap: RefCell<Gap>,
}

impl Windows {
    /// Widens the window for a handler that begins to read a body.
    pub(super) fn begin_body(&self, connection: &Connection, uploads: &Uploads) {
        self.bodies.update(|bodies| bodies + 1);
        if !self.wide.get() && uploads.widen(WIDE as usize) {
            self.wide.set(true);
            connection.set_receive_window(VarInt::from_u32(WIDE));
        }
    }

    /// Narrows the window after the last reader of a body.
    pub(super) fn end_body(&self, connection: &Connection, uploads: &Uploads) {
        self.bodies.update(|bodies| bodies - 1);
        if self.bodies.get() == 0 && self.wide.replace(false) {
            connection.set_receive_window(VarInt::from_u32(quic::SMALL_WINDOW));
            uploads.narrow(WIDE as usize);
        }
    }

    /// Gives the wide window back when the connection ends.
    pub(super) fn end(&self, uploads: &Uploads) {
        if self.wide.replace(false) {
            uploads.narrow(WIDE as usize);
        }
    }

    /// Counts bytes read from a stream.
    pub(super) fn count_read(&self, bytes: usize) {
        self.read.update(|read| read + bytes as u64);
    }

    /// Counts a new stream that may receive bytes.
    pub(super) fn open(&self) {
        self.open.update(|open| open + 1);
    }

    /// Counts a stream that is not read any more.
    pub(super) fn close(&self) {
        self.open.update(|open| open - 1);
    }

    /// Counts a stream that starts or stops waiting for bytes. Returns whether it is the first one that waits.
    pub(super) fn wait(&self, waits: bool) -> bool {
        self.waiting.update(|waiting| if waits { waiting + 1 } else { waiting - 1 });
        waits && self.waiting.get() == 1
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.get() > 0
    }

    /// Returns whether the client sends unusable data. Call this every [`LOOK`] while a stream waits for bytes.
    pub(super) fn is_fruitless(&self, arrived: Arrived, round_trip: Duration, now: Instant) -> bool {
        // Data that a handler has not read yet is not a gap.
        let all_wait = self.is_waiting() && self.waiting.get() == self.open.get();
        let mut gap = self.gap.borrow_mut();
        gap.look(arrived, self.read.get(), all_wait, now);
        let patience = PATIENCE.max(round_trip.saturating_mul(ROUND_TRIPS));
        let since = gap.since.is_some_and(|since| now.saturating_duration_since(since) >= patience);
        since && gap.held >= FRUITLESS
    }

    /// Returns a low estimate of the received bytes that are not read.
    pub(super) fn held(&self) -> u64 {
        self.gap.borrow().held
    }

    /// No stream is open, so nothing is held.
    pub(super) fn settle(&self) {
        self.gap.borrow_mut().held = 0;
    }
}

/// Counters of received data since the connection began.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Arrived {
    /// Bytes of datagrams.
    pub(super) bytes: u64,
    pub(super) datagrams: u64,
    pub(super) acks: u64,
}

/// Received data that cannot be read.
#[derive(Debug, Default)]
struct Gap {
    arrived: Arrived,
    read: u64,
    /// A low estimate: received bytes minus read bytes and overhead.
    held: u64,
    /// The start of the time in which streams waited and no byte could be read.
    since: Option<Instant>,
}

impl Gap {
    fn look(&mut self, arrived: Arrived, read: u64, all_wait: bool, now: Instant) {
        let before = std::mem::replace(&mut self.arrived, arrived);
        let more = arrived.bytes.saturating_sub(before.bytes);
        let around = arrived.datagrams.saturating_sub(before.datagrams).saturating_mul(AROUND)
            + arrived.acks.saturating_sub(before.acks).saturating_mul(ACKNOWLEDGEMENT);
        let used = read.saturating_sub(self.read).saturating_add(around);
        self.held = self.held.saturating_add(more).saturating_sub(used);
        let progress = read != std::mem::replace(&mut self.read, read);
        match self.since {
            _ if !all_wait => self.since = None,
            Some(_) if !progress => {}
            _ => self.since = Some(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TRIP: Duration = Duration::from_millis(20);

    /// The counters after `count` full datagrams.
    fn datagrams(count: u64) -> Arrived {
        Arrived { bytes: count * 1252, datagrams: count, acks: 0 }
    }

    #[test]
    fn bytes_behind_a_gap_end_the_connection() {
        let (windows, start) = (Windows::default(), Instant::now());
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        windows.open();
        windows.open();
        assert!(windows.wait(true) && !windows.wait(true));
        // A head, and then a full window except for its first byte.
        windows.count_read(100);
        assert!(!windows.is_fruitless(datagrams(100), TRIP, at(200)), "it may be on its way");
        assert!(!windows.is_fruitless(datagrams(100), TRIP, at(400)));
        assert!(windows.is_fruitless(datagrams(100), TRIP, at(600)));
        assert!(!windows.is_fruitless(datagrams(100), Duration::from_secs(1), at(800)), "the way is long");
        windows.count_read(118_000);
        assert!(!windows.is_fruitless(datagrams(101), TRIP, at(900)), "the gap is filled");
        assert!(!windows.is_fruitless(datagrams(103), TRIP, at(5000)), "it is silent");
        windows.open();
        assert!(
            !windows.is_fruitless(datagrams(900), TRIP, at(6000)),
            "a handler has not read what came for it"
        );
        windows.close();
        windows.wait(false);
        windows.wait(false);
        assert!(!windows.is_waiting() && !windows.is_fruitless(datagrams(999), TRIP, at(9000)));
    }

    #[test]
    fn a_download_is_no_gap() {
        let (windows, mut now, mut arrived) = (Windows::default(), Instant::now(), Arrived::default());
        windows.open();
        windows.wait(true);
        for _ in 0..1000 {
            now += LOOK;
            // Acknowledgements over a lossy path while an upload pauses.
            arrived = Arrived {
                bytes: arrived.bytes + 500 * 180,
                datagrams: arrived.datagrams + 500,
                acks: arrived.acks + 500,
            };
            assert!(!windows.is_fruitless(arrived, TRIP, now));
        }
    }

    proptest! {
        /// A client whose data can be read in time is never closed, whatever the amounts.
        #[test]
        fn a_useful_client_is_kept(steps in prop::collection::vec((1u64..1 << 12, 1usize..1 << 20, 0u64..390), 1..50)) {
            let (windows, mut now, mut count) = (Windows::default(), Instant::now(), 0);
            windows.open();
            windows.wait(true);
            for (more, read, milliseconds) in steps {
                count += more;
                windows.count_read(read);
                now += Duration::from_millis(milliseconds);
                prop_assert!(!windows.is_fruitless(datagrams(count), TRIP, now));
            }
        }
    }
}
