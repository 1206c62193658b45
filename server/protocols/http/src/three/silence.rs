//! Detects clients that have vanished while their connection ends: [`Silence`].
//!
//! Why: QUIC gives up a silent client only after its idle time-out, half a minute. A server that shuts down
//! would wait that long for a client that no longer receives the response. With TCP, the system does that
//! waiting after the server has exited.
//!
//! Contract:
//! 1. A client that is silent because it has nothing to acknowledge has not vanished: it may wait for a slow
//!    response, or leave no room for more of one. Only unacknowledged frames count, at least the GOAWAY.
//! 2. The time is at least three probe time-outs (RFC 9002 section 6.2), so that the loss of a packet or of
//!    its probe does not count as the client's end.

use std::time::{Duration, Instant};

/// The shortest time without an acknowledgement,
const LEAST: Duration = Duration::from_secs(5);
/// and the same in round trips: a probe time-out is at most about three, and it doubles.
const ROUND_TRIPS: u32 = 20;
/// Unacknowledged frames in that time: the server probes when there is no answer.
const UNANSWERED: u64 = 3;

/// Counters of a connection; both only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heard {
    /// Received acknowledgements.
    pub(super) acks: u64,
    /// Sent frames that need an acknowledgement: stream frames, including repeated ones, and probes.
    pub(super) frames: u64,
}

/// A time without acknowledgements.
#[derive(Debug)]
pub(super) struct Silence {
    last: Heard,
    since: Instant,
}

impl Silence {
    pub(super) fn new(heard: Heard, now: Instant) -> Silence {
        Silence { last: heard, since: now }
    }

    /// Returns whether the client has vanished. Call this more often than [`LEAST`].
    pub(super) fn is_final(&mut self, heard: Heard, round_trip: Duration, now: Instant) -> bool {
        if heard.acks != self.last.acks || heard.frames == self.last.frames {
            *self = Silence::new(heard, now);
            return false;
        }
        let patience = LEAST.max(round_trip.saturating_mul(ROUND_TRIPS));
        heard.frames - self.last.frames >= UNANSWERED && now.duration_since(self.since) >= patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the results of one observation (acknowledgements, frames) per second.
    fn observe(round_trip: u64, seen: &[(u64, u64)]) -> Vec<bool> {
        let start = Instant::now();
        let mut silence = Silence::new(Heard { acks: seen[0].0, frames: seen[0].1 }, start);
        let rest = seen.iter().zip(0..).skip(1);
        rest.map(|(&(acks, frames), second)| {
            let now = start + Duration::from_secs(second);
            silence.is_final(Heard { acks, frames }, Duration::from_millis(round_trip), now)
        })
        .collect()
    }

    #[test]
    fn frames_without_an_answer_are_the_end() {
        let lost: Vec<(u64, u64)> = (0..7).map(|n| (4, 10 + n)).collect();
        assert_eq!(observe(20, &lost), [false, false, false, false, true, true]);
        assert_eq!(observe(500, &lost), [false; 6], "a client that is far away has more time");
    }

    #[test]
    fn a_client_that_has_nothing_to_acknowledge_is_there() {
        assert_eq!(observe(20, &[(4, 10); 60]), [false; 59]);
        // The app responds after a minute, and the time begins then.
        let late: Vec<(u64, u64)> = [(4, 10); 60].into_iter().chain([(4, 30), (4, 31), (9, 32)]).collect();
        assert!(!observe(20, &late).contains(&true));
    }

    #[test]
    fn a_client_that_acknowledges_now_and_then_is_there() {
        let slow: Vec<(u64, u64)> = (0..100).map(|n| (n / 4, n * 5)).collect();
        assert!(!observe(20, &slow).contains(&true));
    }

    #[test]
    fn a_frame_without_a_repetition_is_not_enough() {
        assert!(
            !observe(20, &[(4, 10), (4, 11), (4, 11), (4, 12), (4, 12), (4, 12), (4, 12)]).contains(&true)
        );
    }
}
