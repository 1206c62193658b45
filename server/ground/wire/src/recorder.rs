//! The layout of the flight recorder (`docs/internals/wire.md`, "The flight recorder"): the end of a worker's slot of the scoreboard.
//!
//! A ring of events, of which the oldest are overwritten, and a ring of seconds, so that a minute is covered however many events there are.

/// The events of the ring.
pub const EVENTS: usize = 256;
/// The bytes of an event.
pub const EVENT: usize = 128;
/// The seconds of the ring.
pub const SECONDS: usize = 64;
/// The bytes of a second.
pub const SECOND: usize = 32;
/// The bytes before the ring of events: the number of events so far, and zeros.
pub const HEADER: usize = 64;
/// The bytes of the whole.
pub const LEN: usize = HEADER + EVENTS * EVENT + SECONDS * SECOND;
/// The longest text of an event.
pub const LONGEST: usize = EVENT - TEXT;

// Offsets in an event.
/// The number of the event, from 1; 0 while it is being written. Written last.
pub const NUMBER: usize = 0;
/// When it happened, in microseconds of the monotonic clock.
pub const AT: usize = 8;
/// The kind, the length of the text, the thread and the status: see [`pack`].
pub const KIND: usize = 16;
/// The link and the id of the request; 0 if the event is not of a request.
pub const REQUEST: usize = 24;
/// Two values, whose meaning depends on the kind.
pub const VALUES: usize = 32;
/// The text.
pub const TEXT: usize = 48;

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum EventKind {
    /// A request begins; values: microseconds in the queue, 0; text: method and path.
    Begin = 1,
    /// A request has ended; values: microseconds, and collections of garbage meanwhile; text: its route.
    End = 2,
    /// The same, and the app has raised.
    Fail = 3,
    /// A signal or an order has reached the worker; text: its name.
    Told = 4,
    /// The app has raised; text: the class of the exception, and the app's line.
    Raised = 5,
}

impl EventKind {
    fn from_byte(byte: u8) -> Option<EventKind> {
        use EventKind::{Begin, End, Fail, Raised, Told};
        [Begin, End, Fail, Told, Raised].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Returns the offset of the event with this number.
pub const fn event_at(number: u64) -> usize {
    HEADER + (number as usize).wrapping_sub(1) % EVENTS * EVENT
}

/// Returns the offset of a second of the monotonic clock. Its words: the second; requests begun, and ended in the upper half; failed ones, and
/// collections in the upper half; the resident memory at its first event in KiB, and milliseconds of the ended requests in the upper half.
pub const fn second_at(second: u64) -> usize {
    HEADER + EVENTS * EVENT + second as usize % SECONDS * SECOND
}

/// Packs the third word of an event. `status`: of the response, 0 if there is none.
#[inline]
pub const fn pack(kind: EventKind, len: usize, thread: usize, status: u16) -> u64 {
    kind as u64 | (len as u64) << 8 | (thread as u64 & 0xffff) << 16 | (status as u64) << 32
}

/// An event, as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub at_us: u64,
    pub kind: EventKind,
    pub thread: u32,
    /// The status of the response; 0 if there is none.
    pub status: u16,
    pub link: u32,
    pub id: u32,
    pub values: [u64; 2],
    pub text: String,
}

/// A second, as read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Second {
    /// Of the monotonic clock.
    pub second: u64,
    pub begun: u32,
    pub ended: u32,
    pub failed: u32,
    /// Collections of garbage.
    pub collections: u32,
    /// Resident memory in KiB at its first event; 0 if it is not known.
    pub rss_kib: u32,
    /// The durations of the requests that have ended, in milliseconds.
    pub busy_ms: u32,
}

/// The record of a worker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flight {
    /// The last events, the oldest first.
    pub events: Vec<Event>,
    /// The last seconds in which something happened, the oldest first.
    pub seconds: Vec<Second>,
}

impl Flight {
    /// Reads [`LEN`] bytes that a worker has written, which may have died meanwhile. Whatever the bytes are, the result is bounded; events that
    /// are incomplete are left out.
    pub fn read(bytes: &[u8]) -> Flight {
        let word =
            |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        let last = word(0);
        let first = last.saturating_sub(EVENTS as u64 - 1).max(1);
        let events = (first..=last).filter_map(|number| {
            let at = event_at(number);
            if word(at + NUMBER) != number {
                return None;
            }
            let packed = word(at + KIND);
            let len = ((packed >> 8) as u8 as usize).min(LONGEST);
            let text = bytes.get(at + TEXT..at + TEXT + len).unwrap_or_default();
            let request = word(at + REQUEST);
            Some(Event {
                at_us: word(at + AT),
                kind: EventKind::from_byte(packed as u8)?,
                thread: (packed >> 16) as u16 as u32,
                status: (packed >> 32) as u16,
                link: (request >> 32) as u32,
                id: request as u32,
                values: [word(at + VALUES), word(at + VALUES + 8)],
                text: String::from_utf8_lossy(text).into_owned(),
            })
        });
        let halves = |word: u64| (word as u32, (word >> 32) as u32);
        let seconds = (0..SECONDS as u64).filter_map(|slot| {
            let at = second_at(slot);
            let second = word(at);
            let ((begun, ended), (failed, collections), (rss_kib, busy_ms)) =
                (halves(word(at + 8)), halves(word(at + 16)), halves(word(at + 24)));
            let read = Second { second, begun, ended, failed, collections, rss_kib, busy_ms };
            (second > 0).then_some(read)
        });
        let mut flight = Flight { events: events.collect(), seconds: seconds.collect() };
        flight.seconds.sort_by_key(|second| second.second);
        flight
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(bytes: &mut [u8], at: usize, word: u64) {
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    fn write(bytes: &mut [u8], number: u64, text: &[u8]) {
        let at = event_at(number);
        put(bytes, at + AT, number * 10);
        put(bytes, at + KIND, pack(EventKind::End, text.len(), 3, 404));
        put(bytes, at + REQUEST, 2 << 32 | 7);
        put(bytes, at + VALUES, 5);
        bytes[at + TEXT..at + TEXT + text.len()].copy_from_slice(text);
        put(bytes, at + NUMBER, number);
        put(bytes, 0, number);
    }

    #[test]
    fn the_last_events_are_read_in_order() {
        let mut bytes = vec![0; LEN];
        assert_eq!(Flight::read(&bytes), Flight::default());
        for number in 1..=300 {
            write(&mut bytes, number, b"GET /\xff");
        }
        let flight = Flight::read(&bytes);
        assert_eq!(flight.events.len(), EVENTS);
        assert_eq!((flight.events[0].at_us, flight.events[255].at_us), (450, 3000));
        let first = &flight.events[0];
        assert_eq!((first.kind, first.status), (EventKind::End, 404));
        assert_eq!((first.thread, first.link, first.id, first.values), (3, 2, 7, [5, 0]));
        assert_eq!(first.text, "GET /\u{fffd}");
        // Being written when the worker died.
        put(&mut bytes, event_at(299) + NUMBER, 0);
        assert_eq!(Flight::read(&bytes).events.len(), EVENTS - 1);
    }

    #[test]
    fn seconds_are_read_in_order() {
        let mut bytes = vec![0; LEN];
        for second in [130, 64, 100] {
            put(&mut bytes, second_at(second), second);
            put(&mut bytes, second_at(second) + 8, 3 | 2 << 32);
            put(&mut bytes, second_at(second) + 24, 4096 | 9 << 32);
        }
        let seconds = Flight::read(&bytes).seconds;
        assert_eq!(seconds.iter().map(|one| one.second).collect::<Vec<_>>(), [64, 100, 130]);
        assert_eq!(
            (seconds[0].begun, seconds[0].ended, seconds[0].rss_kib, seconds[0].busy_ms),
            (3, 2, 4096, 9)
        );
    }

    proptest! {
        #[test]
        fn any_memory_is_read(seed: Vec<u8>, count: u64) {
            let mut bytes: Vec<u8> = seed.iter().copied().chain([1]).cycle().take(LEN).collect();
            put(&mut bytes, 0, count);
            let flight = Flight::read(&bytes);
            prop_assert!(flight.events.len() <= EVENTS && flight.seconds.len() <= SECONDS);
            let _ = Flight::read(&seed);
        }
    }
}
