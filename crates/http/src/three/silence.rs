//! Whether a client has vanished while its connection ends: [`Silence`].
//!
//! Why: QUIC gives a silent client up after its idle time, half a minute. A server that ends would wait that long for the client of
//! a response that nobody receives. With TCP the system waits instead, after the server has ended.
//!
//! Contract:
//! 1. A client that says nothing because there is nothing to acknowledge has not vanished: it may wait for a slow response, or leave
//!    no room for more of one. Only what it was sent and does not acknowledge counts, the GOAWAY at least.
//! 2. The time is at least that of three probe timeouts (RFC 9002 section 6.2), so that the loss of a packet, or of its probe, is
//!    not taken for the end of the client.

use std::time::{Duration, Instant};

/// How long a client may acknowledge nothing,
const LEAST: Duration = Duration::from_secs(5);
/// and how many round trips: a probe timeout is at most about three, and they double.
const ROUND_TRIPS: u32 = 20;
/// Frames that it has not acknowledged then: the server probes when there is no answer.
const UNANSWERED: u64 = 3;

/// What is known of a connection at some time; both only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heard {
    /// Acknowledgements that have arrived.
    pub(super) acks: u64,
    /// Frames that were sent and have to be acknowledged: of streams, repeated ones included, and probes.
    pub(super) frames: u64,
}

/// Since when a client has acknowledged nothing.
#[derive(Debug)]
pub(super) struct Silence {
    last: Heard,
    since: Instant,
}

impl Silence {
    /// Begins to listen.
    pub(super) fn new(heard: Heard, now: Instant) -> Silence {
        Silence { last: heard, since: now }
    }

    /// Whether the client has vanished. To be asked more often than the least time.
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

    /// What comes of observations (acknowledgements, frames), one each second.
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
        // The app responds after a minute: the time begins then.
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
