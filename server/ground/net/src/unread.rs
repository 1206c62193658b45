//! Estimates how long the client program may still read data that it has received: [`Unread`].
//!
//! Why: closing a QUIC connection discards data that the client has acknowledged but its program has not read
//! (RFC 9000 section 10.2); TCP keeps such data. A slow program would lose the end of a response to
//! `keep_alive` or to a restart. A program that takes much at once and then pauses, that has a large system
//! buffer, or that opens a large window of HTTP/2 or HTTP/3 again when half of it is read, asks for nothing
//! for minutes although it reads on (`curl --limit-rate`).
//!
//! Contract:
//! 1. A client that reads at [`PACE`] or faster has the time to read everything, up to [`LONGEST`]. Over
//!    QUIC it gets GOAWAY before that, so a client that has read everything closes at once.
//! 2. Less than a minimum in total causes no wait.
//! 3. A client that asks for nothing has [`Unread::patience`]: `timeouts.send`, or [`STEPS`] times as long while
//!    it may have unread data.

use std::time::{Duration, Instant};

/// The slowest supported reading rate, in bytes per second.
const PACE: u64 = 4 << 10;
/// Less than this is read at once.
const SMALL: u64 = 16 << 10;
/// More than the system of a client over TCP takes whose program reads nothing.
const MUCH: u64 = 256 << 10;
/// A client that reads 5 kB/s and opens a smaller window again when half of it is read does so within a minute. Most clients have smaller
/// windows (64 KiB; quic-go: 512 KiB).
const LARGE_WINDOW: u64 = 576 << 10;
/// The longest time in which a client asks for nothing, in units of `timeouts.send`.
const STEPS: u32 = 5;
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(600);

/// An estimate of the bytes that the client program has not read, as if it read at [`PACE`].
#[derive(Debug, Clone, Copy)]
pub struct Unread {
    /// The bytes at that time.
    left: u64,
    at: Option<Instant>,
    /// They have been `least` or more since the client had read everything.
    counts: bool,
    least: u64,
}

impl Unread {
    /// Creates the estimate for a connection whose end discards unread data.
    pub fn of_ending() -> Unread {
        Unread::of(SMALL)
    }

    /// Creates the estimate for a connection over TCP.
    pub fn of_connection() -> Unread {
        Unread::of(MUCH)
    }

    /// Creates the estimate for a stream of HTTP/2 or HTTP/3.
    pub fn of_stream() -> Unread {
        Unread::of(LARGE_WINDOW)
    }

    /// Creates an estimate that ignores fewer bytes than `least`.
    fn of(least: u64) -> Unread {
        Unread { left: 0, at: None, counts: false, least }
    }

    /// Records that `bytes` of a response or a tunnel were sent.
    pub fn sent(&mut self, bytes: u64, now: Instant) {
        let before = self.left(now);
        self.left = (before + bytes).min(PACE * LONGEST.as_secs());
        self.counts = (self.counts && before > 0) || self.left >= self.least;
        self.at = Some(now);
    }

    /// Returns whether the client may still have unread data.
    pub fn is_possible(&self, now: Instant) -> bool {
        self.counts && self.left(now) > 0
    }

    /// Returns how long the client may ask for nothing. `send`: `timeouts.send`.
    pub fn patience(&self, send: Duration, now: Instant) -> Duration {
        if self.is_possible(now) { send.saturating_mul(STEPS) } else { send }
    }

    fn left(&self, now: Instant) -> u64 {
        let time = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.left
            .saturating_sub(u64::try_from(time.as_millis()).unwrap_or(u64::MAX).saturating_mul(PACE) / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns whether data may be unread `at` seconds after the start, given what was `sent` (second, bytes).
    fn possible(sent: &[(u64, u64)], at: u64) -> bool {
        let start = Instant::now();
        let second = |second| start + Duration::from_secs(second);
        let mut unread = Unread::of_ending();
        sent.iter().for_each(|&(at, bytes)| unread.sent(bytes, second(at)));
        unread.is_possible(second(at))
    }

    #[test]
    fn small_responses_are_read_at_once() {
        assert!(!possible(&[], 0));
        assert!(!possible(&[(0, 16_000), (10, 16_000)], 10));
        assert!(possible(&[(0, 9_000), (0, 9_000)], 4), "together they are not small");
    }

    #[test]
    fn a_large_response_is_read_at_the_least_pace() {
        let response = [(0, 100 * PACE)];
        assert!(possible(&response, 99) && !possible(&response, 100));
        assert!(possible(&[(0, 100 * PACE), (2, 100 * PACE)], 199), "one after the other");
        assert!(!possible(&[(0, 100 * PACE), (500, 100 * PACE)], 601));
    }

    #[test]
    fn a_stream_that_was_quiet_for_long_does_not_shorten_the_time_for_what_it_sent_last() {
        // Events, or the messages of a WebSocket, and then a burst.
        let burst: Vec<(u64, u64)> = (0..3600).map(|at| (at, 100)).chain([(3600, 50 * PACE)]).collect();
        assert!(possible(&burst, 3649) && !possible(&burst, 3651));
        assert!(!possible(&[(0, 1 << 62)], 601), "the time is bounded");
    }

    #[test]
    fn a_client_that_may_read_has_five_times_the_time() {
        let (start, send) = (Instant::now(), Duration::from_secs(60));
        let mut unread = Unread::of_stream();
        unread.sent(LARGE_WINDOW - 1, start);
        assert_eq!(unread.patience(send, start), send);
        unread.sent(1, start);
        assert_eq!(unread.patience(send, start), 5 * send);
        assert_eq!(unread.patience(send, start + Duration::from_secs(LARGE_WINDOW / PACE)), send);
    }

    proptest! {
        /// A client that reads at the pace, and the rest in one go, is never cut off.
        #[test]
        fn a_client_at_the_pace_has_its_time(sent in prop::collection::vec((0u64..60, 0u64..1 << 16), 1..40)) {
            let start = Instant::now();
            let (mut unread, mut left, mut at) = (Unread::of_ending(), 0u64, 0);
            for (wait, bytes) in sent {
                at += wait;
                left = left.saturating_sub(wait * PACE) + bytes;
                let now = start + Duration::from_secs(at);
                unread.sent(bytes, now);
                prop_assert!(unread.is_possible(now) || left < SMALL);
            }
        }
    }
}
