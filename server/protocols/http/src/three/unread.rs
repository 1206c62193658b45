//! Estimates how long the client program may still read data that QUIC has delivered: [`Unread`].
//!
//! Why: closing a QUIC connection discards data that the client has acknowledged but its program has not read (RFC 9000 section 10.2); TCP keeps
//! such data. A slow program would lose the end of a response to `keep_alive` or to a restart.
//!
//! Contract:
//! 1. A client that reads at [`PACE`] or faster has the time to read everything, up to [`LONGEST`]. It gets GOAWAY before that, so a client that has
//!    read everything closes at once.
//! 2. Responses of less than [`SMALL`] in total cause no wait.

use std::time::{Duration, Instant};

/// The slowest supported reading rate, in bytes per second.
const PACE: u64 = 4 << 10;
/// Less than this is read at once.
const SMALL: u64 = 16 << 10;
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(600);

/// The time until which the client may have unread data.
#[derive(Debug, Default)]
pub(super) struct Unread {
    until: Option<Instant>,
    /// When the requests in progress began, and the response bytes sent before.
    begun: Option<(Instant, u64)>,
}

impl Unread {
    /// Records that a request begins while no other one is in progress. `sent`: response bytes so far.
    pub(super) fn begin(&mut self, sent: u64, now: Instant) {
        self.begun = Some((now, sent));
    }

    /// Records that the last request in progress has ended.
    pub(super) fn end(&mut self, sent: u64, now: Instant) {
        let Some((begun, before)) = self.begun.take() else { return };
        let bytes = sent.saturating_sub(before);
        if bytes < SMALL {
            return;
        }
        let from = self.until.map_or(begun, |until| until.max(begun));
        let until = from + Duration::from_secs(bytes / PACE).min(LONGEST + (now - from));
        self.until = Some(until.min(now + LONGEST));
    }

    /// Returns whether the client may still have unread data.
    pub(super) fn is_possible(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether data may be unread `at` seconds after the start, given `responses` (from, to, bytes).
    fn possible(responses: &[(u64, u64, u64)], at: u64) -> bool {
        let start = Instant::now();
        let second = |second| start + Duration::from_secs(second);
        let (mut unread, mut sent) = (Unread::default(), 0);
        for &(from, to, bytes) in responses {
            unread.begin(sent, second(from));
            sent += bytes;
            unread.end(sent, second(to));
        }
        unread.is_possible(second(at))
    }

    #[test]
    fn small_responses_are_read_at_once() {
        assert!(!possible(&[], 0));
        assert!(!possible(&[(0, 0, 16_000), (1, 1, 16_000)], 1));
    }

    #[test]
    fn a_large_response_is_read_at_the_least_pace() {
        let response = [(0, 1, 100 * PACE)];
        assert!(possible(&response, 99) && !possible(&response, 100));
        assert!(possible(&[(0, 1, 100 * PACE), (2, 3, 100 * PACE)], 199), "one after the other");
        assert!(!possible(&[(0, 1, 100 * PACE), (500, 501, 100 * PACE)], 601));
    }

    #[test]
    fn the_time_while_it_was_sent_counts_and_the_rest_is_bounded() {
        let slow = [(0, 900, 1000 * PACE)];
        assert!(possible(&slow, 999) && !possible(&slow, 1000));
        let huge = [(0, 10, 1 << 40)];
        assert!(possible(&huge, 609) && !possible(&huge, 610));
        assert!(!possible(&[(0, 10, 1 << 62)], 611));
    }
}
