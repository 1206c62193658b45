//! The budget of a shadow: one round of copies at a time, and how long none follows.
//!
//! Why processors and not seats alone: the two workers of a shadow take no seat of a client, but they compute. With a
//! processor to spare a round costs no client anything, and every other moment may have one. Otherwise rounds take at
//! most [`SHARE`] of the processors' time.

use std::time::{Duration, Instant};

/// The part of the processors' time that copies may take while all of them may be busy, as one of so many.
const SHARE: f64 = 20.0;

/// The load of the pool when a request comes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolLoad {
    pub(crate) waiting: usize,
    pub(crate) busy: u32,
    pub(crate) seats: u32,
    pub(crate) processors: usize,
}

impl PoolLoad {
    /// Returns whether no client waits for a seat, and none would have to at once.
    fn has_room(self) -> bool {
        self.waiting == 0 && self.busy < self.seats
    }

    /// Returns how much longer than a round took the pause after it is.
    fn pause_factor(self) -> f64 {
        // The request that is copied is about to be served, too.
        if (self.busy as usize) + 1 < self.processors {
            return 1.0;
        }
        (SHARE / self.processors.max(1) as f64 - 1.0).max(1.0)
    }
}

/// Whether a round may begin.
#[derive(Debug)]
pub(crate) struct Lane {
    /// The factor of the pause after the round in progress; `None` without one.
    running: Option<f64>,
    next_at: Instant,
}

impl Lane {
    /// Creates a lane that is taken, for requests of the server's own.
    pub(crate) fn taken(now: Instant) -> Lane {
        Lane { running: Some(0.0), next_at: now }
    }

    /// Takes the lane. Returns false if it is not free, or if clients would feel it.
    pub(crate) fn take(&mut self, load: PoolLoad, now: Instant) -> bool {
        let free = self.running.is_none() && now >= self.next_at && load.has_room();
        if free {
            self.running = Some(load.pause_factor());
        }
        free
    }

    /// Frees the lane after a round that took this long. Returns when the next one may begin.
    pub(crate) fn free(&mut self, took: Duration, now: Instant) -> Instant {
        if let Some(factor) = self.running.take() {
            self.next_at = now + took.mul_f64(factor);
        }
        self.next_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn load(waiting: usize, busy: u32) -> PoolLoad {
        PoolLoad { waiting, busy, seats: 4, processors: 2 }
    }

    #[test]
    fn one_round_at_a_time_and_none_while_clients_wait() {
        let now = Instant::now();
        let mut lane = Lane::taken(now);
        assert!(!lane.take(load(0, 0), now));
        lane.free(SECOND, now);
        assert!(!lane.take(load(1, 4), now) && !lane.take(load(0, 4), now), "no seat is free");
        assert!(lane.take(load(0, 0), now) && !lane.take(load(0, 0), now));
        lane.free(SECOND, now);
        assert!(!lane.take(load(0, 0), now + SECOND / 2) && lane.take(load(0, 0), now + SECOND));
    }

    #[test]
    fn busy_processors_get_a_small_share() {
        let now = Instant::now();
        let mut lane = Lane::taken(now);
        lane.free(SECOND, now);
        assert!(lane.take(load(0, 1), now));
        lane.free(SECOND, now);
        assert!(!lane.take(load(0, 1), now + 8 * SECOND), "a twentieth of two processors");
        assert!(lane.take(load(0, 1), now + 9 * SECOND));
    }
}
