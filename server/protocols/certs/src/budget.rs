//! Limits the number of orders per hour, so that an attacker cannot use up the authority's limit.

use crate::schedule::Moment;

/// The remaining orders: at first as many as per hour, refilled evenly.
#[derive(Clone, Debug)]
pub struct OrderBudget {
    per_hour: f64,
    left: f64,
    at: Moment,
}

impl OrderBudget {
    /// Creates a full budget.
    pub fn new(per_hour: u32, now: Moment) -> OrderBudget {
        OrderBudget { per_hour: f64::from(per_hour), left: f64::from(per_hour), at: now }
    }

    /// Takes one order; `false` if none is left.
    pub fn take(&mut self, now: Moment) -> bool {
        let passed = now.saturating_sub(self.at).max(0) as f64;
        self.left = (self.left + passed / 3_600.0 * self.per_hour).min(self.per_hour);
        self.at = now;
        let taken = self.left >= 1.0;
        if taken {
            self.left -= 1.0;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_budget_is_used_up_and_comes_back() {
        let mut budget = OrderBudget::new(2, 0);
        assert_eq!(
            [0, 0, 0, 1_799, 1_800, 1_801].map(|now| budget.take(now)),
            [true, true, false, false, true, false]
        );
        assert_eq!(
            [90_000, 90_000, 90_000].map(|now| budget.take(now)),
            [true, true, false],
            "not more than one hour's"
        );
    }

    proptest! {
        #[test]
        fn never_more_than_two_hours_worth_in_an_hour(times in proptest::collection::vec(0_i64..3_600, 1..300)) {
            let mut times = times;
            times.sort_unstable();
            let mut budget = OrderBudget::new(10, 0);
            let taken = times.iter().filter(|now| budget.take(**now)).count();
            prop_assert!(taken <= 20, "{taken}");
        }
    }
}
