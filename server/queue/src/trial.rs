//! The share of requests that a worker on trial gets.
//!
//! Why at random and not each tenth request: clients ask in rhythms, too. With ten pages in turn, a worker that gets each tenth
//! request would see one of them only.

use crate::ticket::Serial;

#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) serial: Serial,
    /// In thousandths of all requests.
    share: u32,
    /// Requests since the trial began.
    all: u64,
    /// The number of requests from which the worker gets the next one; `None` without a share.
    next: Option<u64>,
}

impl Trial {
    pub(crate) fn new(serial: Serial, share: u32) -> Trial {
        let mut trial = Trial { serial, share: 0, all: 0, next: None };
        trial.set_share(share);
        trial
    }

    /// Changes the share from now on.
    pub(crate) fn set_share(&mut self, share: u32) {
        if share != self.share {
            self.share = share;
            self.next = self.gap().map(|gap| self.all + gap);
        }
    }

    /// Returns whether the next request goes to the worker on trial.
    pub(crate) fn is_due(&self) -> bool {
        self.next.is_some_and(|next| self.all >= next)
    }

    /// Counts a request that went to worker `serial`.
    pub(crate) fn went_to(&mut self, serial: Serial) {
        self.all += 1;
        if serial == self.serial {
            // From the last turn on, not from now on: a worker that was busy then gets its share later.
            self.next = self.gap().and_then(|gap| Some(self.next? + gap));
        }
    }

    /// Returns a random number of requests, on average those of which the worker gets one.
    fn gap(&self) -> Option<u64> {
        let mean = 1000.0 / f64::from(Some(self.share).filter(|share| *share > 0)?);
        // A gap is uniform between 0 and twice the mean; the fraction is rounded at random, so that nothing is lost on average.
        Some((fastrand::f64() * 2.0 * mean + fastrand::f64()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns which of `count` requests the worker got.
    fn given(trial: &mut Trial, count: u64) -> Vec<u64> {
        let mut given = Vec::new();
        for at in 0..count {
            let serial = if trial.is_due() { 1 } else { 2 };
            trial.went_to(serial);
            if serial == 1 {
                given.push(at);
            }
        }
        given
    }

    #[test]
    fn the_share_is_exact_in_the_end_and_has_no_rhythm() {
        for share in [10, 50, 100, 250, 500] {
            let given = given(&mut Trial::new(1, share), 100_000);
            let wanted = 100 * u64::from(share);
            assert!((given.len() as u64).abs_diff(wanted) < wanted / 10, "{share}: {}", given.len());
            let of_ten: std::collections::HashSet<u64> = given.iter().map(|at| at % 10).collect();
            assert_eq!(of_ten.len(), 10, "{share}");
        }
    }

    #[test]
    fn a_share_may_change_and_be_none_or_all() {
        let mut trial = Trial::new(1, 0);
        assert!(given(&mut trial, 1000).is_empty());
        trial.set_share(1000);
        assert!(given(&mut trial, 1000).len() > 900);
        trial.set_share(0);
        assert!(given(&mut trial, 1000).is_empty());
    }
}
