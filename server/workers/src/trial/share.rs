//! The share of the requests that a worker on trial gets: small at first, so that a bad release meets few clients.
//!
//! Contract:
//! 1. The share grows to 1 %, 5 %, and the configured one, and never falls.
//! 2. A step ends after a number of requests of the worker, or a part of the trial's time: without requests, time alone decides.
//! 3. While something speaks against the release, the share does not grow.
//! 4. The worker never gets more than an old worker: with more work, its requests would take longer for that reason alone.

use std::time::{Duration, Instant};

/// A share before the configured one.
struct ShareStep {
    /// In thousandths.
    share: u32,
    /// It ends after this many requests of the worker.
    enough: u64,
    /// Or after this part of the trial's time.
    part: u32,
}

/// Most of the time is spent at 5 %: a bad release is found there, before a quarter of the clients have met it.
const STEPS: [ShareStep; 2] =
    [ShareStep { share: 10, enough: 20, part: 8 }, ShareStep { share: 50, enough: 1000, part: 2 }];

/// The growth of the share during one trial.
#[derive(Debug, Clone, Copy)]
pub struct ShareGrowth {
    most: u32,
    step: usize,
    /// The requests of the worker, and the time, when the step began.
    begun: (u64, Instant),
    time: Duration,
}

impl ShareGrowth {
    /// Starts at `now`. `most`: the configured share, in thousandths; `workers`: those that serve, with the new one; `time`: of the trial.
    pub fn new(most: u32, workers: usize, time: Duration, now: Instant) -> ShareGrowth {
        let fair = 1000 / u32::try_from(workers.max(1)).unwrap_or(u32::MAX);
        ShareGrowth { most: most.min(fair.max(1)), step: 0, begun: (0, now), time }
    }

    /// Returns the current share in thousandths. `served`: the requests of the worker so far; `is_suspicious`: whether something speaks against it.
    pub fn share(&mut self, served: u64, is_suspicious: bool, now: Instant) -> u32 {
        while let Some(step) = STEPS.get(self.step).filter(|_| !is_suspicious) {
            let (begun, since) = self.begun;
            if served < begun + step.enough && now < since + self.time / step.part {
                break;
            }
            self.step += 1;
            self.begun = (served, now);
        }
        STEPS.get(self.step).map_or(self.most, |step| step.share.min(self.most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_share_grows_with_requests_or_time() {
        let start = Instant::now();
        let mut growth = ShareGrowth::new(250, 2, 8 * SECOND, start);
        assert_eq!([growth.share(0, false, start), growth.share(19, false, start)], [10, 10]);
        assert_eq!([growth.share(20, false, start), growth.share(1019, false, start)], [50, 50]);
        assert_eq!(growth.share(1020, false, start), 250);
        let mut growth = ShareGrowth::new(250, 2, 8 * SECOND, start);
        assert_eq!(growth.share(0, false, start + SECOND), 50, "without requests");
        assert_eq!(growth.share(0, false, start + 4 * SECOND), 50);
        assert_eq!(growth.share(0, false, start + 5 * SECOND), 250);
    }

    #[test]
    fn it_is_never_more_than_configured_or_than_that_of_an_old_worker() {
        let start = Instant::now();
        let mut growth = ShareGrowth::new(20, 2, 8 * SECOND, start);
        assert_eq!([growth.share(0, false, start), growth.share(20, false, start)], [10, 20]);
        let mut growth = ShareGrowth::new(250, 10, 8 * SECOND, start);
        assert_eq!(growth.share(0, false, start), 10);
        growth.share(20, false, start);
        assert_eq!(growth.share(1020, false, start), 100);
    }

    #[test]
    fn it_does_not_grow_while_something_is_suspicious() {
        let start = Instant::now();
        let mut growth = ShareGrowth::new(250, 2, 8 * SECOND, start);
        growth.share(20, false, start);
        assert_eq!(growth.share(5_000, true, start + 7 * SECOND), 50);
        assert_eq!(growth.share(5_000, false, start + 7 * SECOND), 250);
    }

    proptest! {
        #[test]
        fn it_never_falls(
            most in 0u32..=1000,
            workers in 0usize..50,
            steps in prop::collection::vec((0u64..100, any::<bool>(), 0u64..2000), 1..60),
        ) {
            let start = Instant::now();
            let mut growth = ShareGrowth::new(most, workers, 10 * SECOND, start);
            let (mut served, mut now, mut before) = (0, start, 0);
            for (requests, is_suspicious, millis) in steps {
                served += requests;
                now += Duration::from_millis(millis);
                let share = growth.share(served, is_suspicious, now);
                prop_assert!(share >= before && share <= most);
                before = share;
            }
        }
    }
}
