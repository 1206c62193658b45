//! Limits the share of a thread's time that is spent on encoding.
//!
//! Why: encoding a page takes more time than everything else that the server does for it. When a thread is
//! overloaded, clients get larger responses sooner instead.
//!
//! Contract: pure; times are passed in. The account gains `share` of the elapsed time, up to [`BURST`], and
//! encoding is charged its processor time. More than half full: the full level. Not empty: the least level.
//! Empty: no encoding.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The account holds the share of this time, so a single burst of requests is encoded fully.
const BURST: Duration = Duration::from_secs(1);

/// The work that the budget allows for a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// Send it as it is.
    None,
    /// Encode with [`Levels::LEAST`](super::Levels::LEAST).
    Least,
    /// Encode with the configured levels.
    Full,
}

/// The account of a thread.
#[derive(Debug)]
pub struct Budget {
    /// The share of time in thousandths; 1000 or more never runs out.
    share: Cell<u32>,
    /// In nanoseconds of processor time; negative if encoding took more than the balance.
    left: Cell<i64>,
    filled: Cell<Instant>,
}

impl Budget {
    /// Creates a full account. `share`: thousandths of the thread's time.
    pub fn new(share: u32, now: Instant) -> Budget {
        let budget = Budget { share: Cell::new(share), left: Cell::new(0), filled: Cell::new(now) };
        budget.left.set(budget.most());
        budget
    }

    /// Changes the share.
    pub fn set_share(&self, share: u32) {
        if self.share.replace(share) != share {
            self.left.set(self.most());
        }
    }

    /// Returns the effort that a response may have now.
    pub fn effort(&self, now: Instant) -> Effort {
        if self.share.get() >= 1000 {
            return Effort::Full;
        }
        self.fill(now);
        match self.left.get() {
            left if left * 2 > self.most() => Effort::Full,
            1.. => Effort::Least,
            _ => Effort::None,
        }
    }

    /// Takes the processor time of an encoding from the account.
    pub fn spend(&self, time: Duration) {
        self.left.set(self.left.get().saturating_sub(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)));
    }

    fn most(&self) -> i64 {
        BURST.as_nanos() as i64 / 1000 * i64::from(self.share.get())
    }

    fn fill(&self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled.replace(now)).min(BURST * 2);
        let gained = passed.as_nanos() as i64 / 1000 * i64::from(self.share.get());
        self.left.set((self.left.get() + gained).min(self.most()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_level_falls_then_encoding_stops_and_returns() {
        let start = Instant::now();
        let budget = Budget::new(500, start);
        assert_eq!(budget.effort(start), Effort::Full);
        budget.spend(300 * MS);
        assert_eq!(budget.effort(start), Effort::Least);
        budget.spend(300 * MS);
        assert_eq!(budget.effort(start), Effort::None);
        // 100 ms in debt: 200 ms later the account is at 0.
        assert_eq!(budget.effort(start + 190 * MS), Effort::None);
        assert_eq!(budget.effort(start + 210 * MS), Effort::Least);
        assert_eq!(budget.effort(start + 800 * MS), Effort::Full);
    }

    #[test]
    fn a_share_of_everything_never_runs_out() {
        let start = Instant::now();
        let budget = Budget::new(1000, start);
        budget.spend(Duration::from_secs(100));
        assert_eq!(budget.effort(start), Effort::Full);
        budget.set_share(0);
        assert_eq!(budget.effort(start + 10_000 * MS), Effort::None);
    }

    proptest! {
        /// Over a long time the encoding takes no more than its share, whatever the requests cost.
        #[test]
        fn the_share_is_kept(share in 1_u32..1000, costs in prop::collection::vec(1_u64..20_000, 50..400)) {
            let start = Instant::now();
            let budget = Budget::new(share, start);
            let (mut now, mut spent) = (start, Duration::ZERO);
            for cost in costs.iter().cycle().take(5000) {
                let cost = Duration::from_micros(*cost);
                if budget.effort(now) != Effort::None {
                    budget.spend(cost);
                    spent += cost;
                    now += cost;
                } else {
                    now += MS;
                }
            }
            let allowed = (now - start + BURST).mul_f64(f64::from(share) / 1000.0) + 20 * MS;
            prop_assert!(spent <= allowed, "{spent:?} of {allowed:?}");
        }
    }
}
