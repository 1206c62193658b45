//! The state that a [`DoSDetector`](../ruby/kit/dos_detector.rb) keeps per client: recent visits, and the end
//! of its ban.
//!
//! The rule is H2O's: a visit adds one, a new period subtracts `threshold`; a client that reaches the
//! threshold is banned.

/// The rule for bans; times are in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counting {
    /// At least 1.
    pub(crate) period: u64,
    pub(crate) threshold: u64,
    pub(crate) ban: u64,
}

/// The state of a client; times are in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Visits {
    pub(crate) count: u64,
    pub(crate) banned_until: u64,
    period: u64,
}

impl Counting {
    /// Counts a visit; returns whether the client is banned.
    pub(crate) fn visit(&self, visits: &mut Visits, now: u64) -> bool {
        let period = now / self.period;
        let passed = period.saturating_sub(visits.period);
        visits.count = visits.count.saturating_sub(passed.saturating_mul(self.threshold)) + 1;
        visits.period = visits.period.max(period);
        if visits.banned_until >= now {
            return true;
        }
        let banned = visits.count >= self.threshold;
        if banned {
            visits.banned_until = now.saturating_add(self.ban);
        }
        banned
    }

    /// Returns the time when the state expires, in seconds.
    pub(crate) fn over(&self, visits: &Visits) -> u64 {
        let periods = visits.count / self.threshold.max(1) + 1;
        let counted = (visits.period + periods).saturating_mul(self.period);
        counted.max(visits.banned_until.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bans_for_a_while() {
        let counting = Counting { period: 10, threshold: 3, ban: 30 };
        let mut visits = Visits::default();
        let banned: Vec<bool> =
            [100, 101, 102, 103, 132].iter().map(|at| counting.visit(&mut visits, *at)).collect();
        assert_eq!(banned, [false, false, true, true, true]);
        assert_eq!(visits.banned_until, 132);
        assert!(!counting.visit(&mut visits, 133));
        assert!(counting.over(&visits) > 133);
    }

    #[test]
    fn slow_visitors_are_never_banned() {
        let counting = Counting { period: 10, threshold: 3, ban: 30 };
        let mut visits = Visits::default();
        assert!((0..100).all(|number| !counting.visit(&mut visits, 1_000 + number * 5)));
    }
}
