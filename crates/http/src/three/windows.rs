//! How far a client may send ahead, and whether what it sends can be used.
//!
//! Why: quinn keeps what arrives until it is read, and what arrives behind a gap cannot be read. A client that leaves the first bytes of
//! a stream out makes the server hold all of the window, for nothing.
//!
//! Contract:
//! 1. A connection has a small window until a handler reads a body, and a wide one meanwhile. The wide ones of a thread are bounded
//!    together; without room the small one stays, and the upload goes on, slower.
//! 2. A connection whose client sends, but for [`PATIENCE`] and some round trips nothing of what is waited for, is given up.

use crate::uploads::Uploads;
use quic::quinn::{Connection, VarInt};
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// The window of a connection while a handler reads a body.
pub(super) const WIDE: u32 = 2 << 20;
/// How often it is looked while bytes are waited for.
pub(super) const LOOK: Duration = Duration::from_millis(200);
/// Lost packets are sent again after a round trip, and once more after another.
const PATIENCE: Duration = Duration::from_millis(400);
const ROUND_TRIPS: u32 = 6;
/// Frames of streams that are no gap yet, but what was on its way behind a packet that was lost.
const FRUITLESS: u64 = 32;

/// The windows of a connection.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// Handlers that read a body.
    bodies: Cell<usize>,
    wide: Cell<bool>,
    /// Streams that bytes may come on, and those where they are waited for.
    open: Cell<usize>,
    waiting: Cell<usize>,
    /// Bytes that have been read from streams.
    read: Cell<u64>,
    gap: RefCell<Option<Gap>>,
}

impl Windows {
    /// A handler begins to read a body.
    pub(super) fn begin_body(&self, connection: &Connection, uploads: &Uploads) {
        self.bodies.update(|bodies| bodies + 1);
        if !self.wide.get() && uploads.widen(WIDE as usize) {
            self.wide.set(true);
            connection.set_receive_window(VarInt::from_u32(WIDE));
        }
    }

    /// It does not read it any more.
    pub(super) fn end_body(&self, connection: &Connection, uploads: &Uploads) {
        self.bodies.update(|bodies| bodies - 1);
        if self.bodies.get() == 0 && self.wide.replace(false) {
            connection.set_receive_window(VarInt::from_u32(quic::SMALL_WINDOW));
            uploads.narrow(WIDE as usize);
        }
    }

    /// The connection ends.
    pub(super) fn end(&self, uploads: &Uploads) {
        if self.wide.replace(false) {
            uploads.narrow(WIDE as usize);
        }
    }

    /// Bytes have been read from a stream.
    pub(super) fn count_read(&self, bytes: usize) {
        self.read.update(|read| read + bytes as u64);
    }

    /// Bytes may come on one more stream.
    pub(super) fn open(&self) {
        self.open.update(|open| open + 1);
    }

    /// Nothing more is read from one.
    pub(super) fn close(&self) {
        self.open.update(|open| open - 1);
    }

    /// A stream waits for bytes, or does not any more; whether it is the first one that does.
    pub(super) fn wait(&self, waits: bool) -> bool {
        self.waiting.update(|waiting| if waits { waiting + 1 } else { waiting - 1 });
        waits && self.waiting.get() == 1
    }

    /// Whether any stream waits for bytes.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.get() > 0
    }

    /// Whether the client sends what nobody can use. To be asked every [`LOOK`] while bytes are waited for; `received`: frames of streams that have come.
    pub(super) fn is_fruitless(&self, received: u64, round_trip: Duration, now: Instant) -> bool {
        let mut gap = self.gap.borrow_mut();
        // What a handler has not read yet is no gap.
        if !self.is_waiting() || self.waiting.get() < self.open.get() {
            *gap = None;
            return false;
        }
        let read = self.read.get();
        let known = gap.get_or_insert(Gap { read, received, since: now });
        known.is_final(read, received, round_trip, now)
    }
}

/// What a client has sent since something could last be read.
#[derive(Debug)]
struct Gap {
    read: u64,
    received: u64,
    since: Instant,
}

impl Gap {
    fn is_final(&mut self, read: u64, received: u64, round_trip: Duration, now: Instant) -> bool {
        if read != self.read {
            *self = Gap { read, received, since: now };
            return false;
        }
        let patience = PATIENCE.max(round_trip.saturating_mul(ROUND_TRIPS));
        received.saturating_sub(self.received) >= FRUITLESS
            && now.saturating_duration_since(self.since) >= patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TRIP: Duration = Duration::from_millis(20);

    #[test]
    fn bytes_behind_a_gap_end_the_connection() {
        let (windows, start) = (Windows::default(), Instant::now());
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        assert!(!windows.is_fruitless(100, TRIP, at(0)), "nobody waits");
        windows.open();
        windows.open();
        assert!(windows.wait(true) && !windows.wait(true));
        assert!(!windows.is_fruitless(100, TRIP, at(100)), "it is looked at for the first time");
        assert!(!windows.is_fruitless(200, TRIP, at(300)), "it may be on its way again");
        assert!(windows.is_fruitless(200, TRIP, at(700)));
        assert!(!windows.is_fruitless(200, Duration::from_secs(1), at(700)), "the way is long");
        windows.count_read(1);
        assert!(!windows.is_fruitless(300, TRIP, at(900)), "something could be used");
        assert!(!windows.is_fruitless(310, TRIP, at(5000)), "it is silent");
        windows.open();
        assert!(!windows.is_fruitless(900, TRIP, at(6000)), "a handler has not read what came for it");
        windows.close();
        windows.wait(false);
        windows.wait(false);
        assert!(!windows.is_waiting() && !windows.is_fruitless(999, TRIP, at(9000)));
    }

    proptest! {
        /// Who sends what can be used at least every round trip is never given up, whatever the amounts.
        #[test]
        fn a_useful_client_is_kept(steps in prop::collection::vec((1u64..1 << 12, 1usize..1 << 20, 0u64..390), 1..50)) {
            let (windows, mut now, mut received) = (Windows::default(), Instant::now(), 0);
            windows.open();
            windows.wait(true);
            for (frames, read, milliseconds) in steps {
                received += frames;
                windows.count_read(read);
                now += Duration::from_millis(milliseconds);
                prop_assert!(!windows.is_fruitless(received, TRIP, now));
            }
        }
    }
}
