//! The share of the requests that a worker on trial gets: small at first, so that a release that fails at once meets few clients.

use std::time::{Duration, Instant};

/// The shares before the configured one, in thousandths.
const STEPS: [u32; 2] = [10, 50];
/// A step ends after this many requests of the worker.
const ENOUGH: u64 = 20;
/// Or after this part of the trial's time.
const PART: u32 = 8;

/// The growth of the share during one trial.
#[derive(Debug, Clone, Copy)]
pub struct ShareGrowth {
    most: u32,
    step: usize,
    /// When the step ends, with how many requests of the worker, and after which time.
    until: (u64, Instant),
    every: Duration,
}

impl ShareGrowth {
    /// Starts at `now`. `most`: the configured share, in thousandths; `time`: of the trial.
    pub fn new(most: u32, time: Duration, now: Instant) -> ShareGrowth {
        let every = time / PART;
        ShareGrowth { most, step: 0, until: (ENOUGH, now + every), every }
    }

    /// Returns the current share in thousandths. `served`: the requests of the worker so far.
    pub fn share(&mut self, served: u64, now: Instant) -> u32 {
        while self.step < STEPS.len() && (served >= self.until.0 || now >= self.until.1) {
            self.step += 1;
            self.until = (served + ENOUGH, now + self.every);
        }
        STEPS.get(self.step).map_or(self.most, |share| (*share).min(self.most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_grows_with_requests_or_time() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut growth = ShareGrowth::new(100, 8 * second, start);
        assert_eq!([growth.share(0, start), growth.share(19, start)], [10, 10]);
        assert_eq!([growth.share(20, start), growth.share(39, start)], [50, 50]);
        assert_eq!(growth.share(40, start), 100);
        let mut growth = ShareGrowth::new(250, 8 * second, start);
        assert_eq!(growth.share(0, start + second), 50, "without requests");
        assert_eq!(growth.share(0, start + 2 * second), 250);
        let mut growth = ShareGrowth::new(20, 8 * second, start);
        assert_eq!([growth.share(0, start), growth.share(20, start)], [10, 20], "never more than configured");
    }
}
