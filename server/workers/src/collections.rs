//! Decides which worker runs a full garbage collection between requests. Pure.
//!
//! Why: a full collection stops all threads of a worker for tens or hundreds of milliseconds. If the worker
//! has no requests and gets none meanwhile, no request is delayed.
//!
//! Contract:
//! 1. One worker collects at a time, in the order in which their collections became due.
//! 2. A worker collects only while it can [rest](queue::Dispatch::rest): it has no requests, no
//!    request waits, and others have free seats. A worker that cannot rest does not delay those behind it.
//! 3. A worker that does not report the end within [`LONGEST`] gets requests again.

use queue::Serial;
use std::time::{Duration, Instant};

/// The longest time without requests.
pub const LONGEST: Duration = Duration::from_secs(10);

/// The workers due for a collection, and the worker that is collecting.
#[derive(Debug, Default)]
pub struct Collections {
    due: Vec<Serial>,
    running: Option<(Serial, Instant)>,
    count: u64,
    total: Duration,
}

impl Collections {
    /// Records that a collection is due in this worker.
    pub fn due(&mut self, serial: Serial) {
        if !self.due.contains(&serial) {
            self.due.push(serial);
        }
    }

    /// Records a finished collection. `took` is zero if it was no longer due. Returns whether it was this
    /// worker's turn, so that it gets requests again.
    pub fn collected(&mut self, serial: Serial, took: Duration) -> bool {
        if !took.is_zero() {
            self.count += 1;
            self.total += took;
        }
        self.running.take_if(|(running, _)| *running == serial).is_some()
    }

    /// Removes a dead worker.
    pub fn gone(&mut self, serial: Serial) {
        self.due.retain(|one| *one != serial);
        self.running.take_if(|(running, _)| *running == serial);
    }

    /// Returns the worker that collects next. `rest` stops its requests, if that is possible.
    pub fn next(&mut self, mut rest: impl FnMut(Serial) -> bool, now: Instant) -> Option<Serial> {
        if self.running.is_some() {
            return None;
        }
        let at = self.due.iter().position(|serial| rest(*serial))?;
        let serial = self.due.remove(at);
        self.running = Some((serial, now));
        Some(serial)
    }

    /// Returns the worker that has not reported the end for too long, and ends its turn.
    pub fn overdue(&mut self, now: Instant) -> Option<Serial> {
        let late = |since: Instant| now.saturating_duration_since(since) >= LONGEST;
        self.running.take_if(|(_, since)| late(*since)).map(|(serial, _)| serial)
    }

    /// Returns the number of collections and their total duration.
    pub fn totals(&self) -> (u64, Duration) {
        (self.count, self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Duration = Duration::from_millis(80);

    #[test]
    fn one_at_a_time_in_the_order_of_their_wishes() {
        let (mut collections, now) = (Collections::default(), Instant::now());
        assert_eq!(collections.next(|_| true, now), None);
        [3, 1, 3].into_iter().for_each(|serial| collections.due(serial));
        assert_eq!(collections.next(|_| true, now), Some(3));
        assert_eq!(collections.next(|_| true, now), None);
        assert!(collections.collected(3, TOOK));
        assert_eq!(collections.next(|_| true, now), Some(1));
        assert!(collections.collected(1, TOOK));
        assert_eq!(collections.next(|_| true, now), None, "it said so twice, but once is enough");
        assert_eq!(collections.totals(), (2, 2 * TOOK));
    }

    #[test]
    fn a_busy_worker_does_not_hold_up_the_others() {
        let (mut collections, now) = (Collections::default(), Instant::now());
        [1, 2].into_iter().for_each(|serial| collections.due(serial));
        assert_eq!(collections.next(|_| false, now), None);
        assert_eq!(collections.next(|serial| serial == 2, now), Some(2));
        collections.collected(2, Duration::ZERO);
        assert_eq!(collections.totals(), (0, Duration::ZERO), "it was not due any more");
        assert_eq!(collections.next(|_| true, now), Some(1));
    }

    #[test]
    fn a_worker_that_dies_or_takes_too_long_makes_room() {
        let (mut collections, now) = (Collections::default(), Instant::now());
        [1, 2, 3, 4].into_iter().for_each(|serial| collections.due(serial));
        assert_eq!(collections.next(|_| true, now), Some(1));
        collections.gone(1);
        collections.gone(2);
        assert_eq!(collections.next(|_| true, now), Some(3));
        assert_eq!(collections.overdue(now + LONGEST / 2), None);
        assert_eq!(collections.overdue(now + LONGEST), Some(3));
        assert!(!collections.collected(3, TOOK), "it takes requests already");
        assert_eq!(collections.next(|_| true, now), Some(4));
    }
}
