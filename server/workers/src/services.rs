//! Decides when to restart a service that has ended.
//!
//! Why: a service that fails at once must not use up the machine by failing all day, and a service that has
//! run for hours must not wait because of yesterday's failures.
//!
//! Contract:
//! 1. Pure: takes how a service ended and how long it ran, and returns the time until the next start.
//! 2. The wait begins with [`FIRST`], doubles with each end and never exceeds [`LONGEST`]. After a run of
//!    [`STEADY`], it begins with [`FIRST`] again.

use settings::Restart;
use std::time::Duration;

pub const FIRST: Duration = Duration::from_secs(1);
pub const LONGEST: Duration = Duration::from_secs(60);
/// A service that has lived for this long counts as started successfully.
pub const STEADY: Duration = Duration::from_secs(60);

/// The restart state of one service.
#[derive(Debug, Clone, Default)]
pub struct RestartSchedule {
    /// The number of consecutive short lives.
    short: u32,
}

impl RestartSchedule {
    /// Returns the time until the next start of a service that ended after `lived`; `well` if it exited with
    /// code 0. `None`: the service is not started again.
    pub fn ended(&mut self, policy: Restart, well: bool, lived: Duration) -> Option<Duration> {
        let again = match policy {
            Restart::Always => true,
            Restart::OnFailure => !well,
            Restart::Never => false,
        };
        if lived >= STEADY {
            self.short = 0;
        }
        let wait = net::backoff(FIRST, self.short, LONGEST);
        self.short = self.short.saturating_add(1);
        again.then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHORT: Duration = Duration::from_millis(10);

    #[test]
    fn waits_double_up_to_a_minute_and_begin_anew_after_a_long_life() {
        let mut schedule = RestartSchedule::default();
        let mut waits = |lived| schedule.ended(Restart::Always, false, lived).map(|wait| wait.as_secs());
        let seen: Vec<_> = (0..8).map(|_| waits(SHORT)).collect();
        assert_eq!(seen, [1, 2, 4, 8, 16, 32, 60, 60].map(Some));
        assert_eq!((waits(STEADY), waits(SHORT)), (Some(1), Some(2)));
    }

    #[test]
    fn the_policy_says_who_is_started_again() {
        let again = |policy, well| RestartSchedule::default().ended(policy, well, SHORT).is_some();
        assert_eq!([true, false].map(|well| again(Restart::Always, well)), [true, true]);
        assert_eq!([true, false].map(|well| again(Restart::OnFailure, well)), [false, true]);
        assert_eq!([true, false].map(|well| again(Restart::Never, well)), [false, false]);
    }

    proptest! {
        #[test]
        fn waits_are_bounded_and_grow_until_there_was_a_long_life(lives in proptest::collection::vec(0u64..120, 1..60)) {
            let (mut schedule, mut last) = (RestartSchedule::default(), Duration::ZERO);
            for seconds in lives {
                let lived = Duration::from_secs(seconds);
                let wait = schedule.ended(Restart::Always, false, lived).unwrap();
                prop_assert!((FIRST..=LONGEST).contains(&wait));
                if lived >= STEADY { prop_assert_eq!(wait, FIRST) } else { prop_assert!(wait >= last.min(LONGEST)) }
                last = wait;
            }
        }
    }
}
