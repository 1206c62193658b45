//! Until when the client's program may still read what QUIC has delivered: [`Unread`].
//!
//! Why: the close of a connection of QUIC discards what its client has acknowledged and the program there has not read (RFC 9000 section
//! 10.2); with TCP it stays. A program that reads slowly would lose the end of a response to `keep_alive`, or to a restart.
//!
//! Contract:
//! 1. A client that reads [`PACE`] or faster has the time to read all that it was sent, [`LONGEST`] at most. It is told of the end before
//!    (GOAWAY), so that one that has read everything closes at once.
//! 2. Nothing is waited for after responses of together less than [`SMALL`].

use std::time::{Duration, Instant};

/// Bytes a second at which a client reads at least.
const PACE: u64 = 4 << 10;
/// Less is read at once.
const SMALL: u64 = 16 << 10;
/// How long it is waited for at most.
const LONGEST: Duration = Duration::from_secs(600);

/// What the client of a connection may not have read.
#[derive(Debug, Default)]
pub(super) struct Unread {
    until: Option<Instant>,
    /// When the requests in progress began, and what had been sent before.
    begun: Option<(Instant, u64)>,
}

impl Unread {
    /// The first request in progress begins; `sent`: bytes of responses so far.
    pub(super) fn begin(&mut self, sent: u64, now: Instant) {
        self.begun = Some((now, sent));
    }

    /// No request is in progress any more.
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

    /// Whether the client may still read.
    pub(super) fn is_possible(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether something may be unread so many seconds after the start, when `responses` (from, to, bytes) have been sent.
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
