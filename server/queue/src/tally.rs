//! Totals of the requests that workers have served, for the comparison of new code with old.

/// The totals of one or more workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Finished requests.
    pub requests: u64,
    /// Responses with a status of 500 or more, which is also the result of exceptions.
    pub failures: u64,
    /// The time in the app, in microseconds.
    pub app_us: u64,
}

impl std::ops::Sub for Tally {
    type Output = Tally;

    fn sub(self, before: Tally) -> Tally {
        Tally {
            requests: self.requests.saturating_sub(before.requests),
            failures: self.failures.saturating_sub(before.failures),
            app_us: self.app_us.saturating_sub(before.app_us),
        }
    }
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Tally>>(all: I) -> Tally {
        all.fold(Tally::default(), |sum, one| Tally {
            requests: sum.requests + one.requests,
            failures: sum.failures + one.failures,
            app_us: sum.app_us + one.app_us,
        })
    }
}
