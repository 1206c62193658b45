//! When a service that has ended is started again.
//!
//! Why: a service that fails at once must not take the machine's time by failing all day, and one that has worked for hours must not
//! wait because of failures of yesterday.
//!
//! Contract:
//! 1. Pure: how a service ended and how long it lived go in, the time until the next start comes out.
//! 2. The wait begins with [`FIRST`], doubles with each end and never exceeds [`LONGEST`]. A life of [`STEADY`] begins anew.

use settings::Restart;
use std::time::Duration;

/// Wait after the first end.
pub const FIRST: Duration = Duration::from_secs(1);
/// The longest wait.
pub const LONGEST: Duration = Duration::from_secs(60);
/// Who has lived for so long has started well.
pub const STEADY: Duration = Duration::from_secs(60);

/// The ends of one service.
#[derive(Debug, Clone, Default)]
pub struct Schedule {
    /// Short lives in a row.
    short: u32,
}

impl Schedule {
    /// The time until the next start of a service that has ended after `lived`, `well` with exit code 0; `None`: it is not started
    /// again.
    pub fn ended(&mut self, policy: Restart, well: bool, lived: Duration) -> Option<Duration> {
        let again = match policy {
            Restart::Always => true,
            Restart::OnFailure => !well,
            Restart::Never => false,
        };
        if lived >= STEADY {
            self.short = 0;
        }
        let wait = FIRST.saturating_mul(1 << self.short.min(10)).min(LONGEST);
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
        let mut schedule = Schedule::default();
        let mut waits = |lived| schedule.ended(Restart::Always, false, lived).map(|wait| wait.as_secs());
        let seen: Vec<_> = (0..8).map(|_| waits(SHORT)).collect();
        assert_eq!(seen, [1, 2, 4, 8, 16, 32, 60, 60].map(Some));
        assert_eq!((waits(STEADY), waits(SHORT)), (Some(1), Some(2)));
    }

    #[test]
    fn the_policy_says_who_is_started_again() {
        let again = |policy, well| Schedule::default().ended(policy, well, SHORT).is_some();
        assert_eq!([true, false].map(|well| again(Restart::Always, well)), [true, true]);
        assert_eq!([true, false].map(|well| again(Restart::OnFailure, well)), [false, true]);
        assert_eq!([true, false].map(|well| again(Restart::Never, well)), [false, false]);
    }

    proptest! {
        #[test]
        fn waits_are_bounded_and_grow_until_there_was_a_long_life(lives in proptest::collection::vec(0u64..120, 1..60)) {
            let (mut schedule, mut last) = (Schedule::default(), Duration::ZERO);
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
