//! One process's part of a run shared by several processes. The parts together are exactly the run of one
//! process: connections and numbers of requests add up, and each arrival of an open model or a replay belongs
//! to one process.

/// The distance between the first requests of processes, for a closed model without a number of requests to share.
const APART: u64 = 1 << 40;

/// Process `number`, from 0, of `of` processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    number: usize,
    of: usize,
}

impl Default for Part {
    fn default() -> Part {
        Part { number: 0, of: 1 }
    }
}

impl Part {
    /// Returns `None` unless `number` is below `of`.
    pub fn new(number: usize, of: usize) -> Option<Part> {
        (number < of).then_some(Part { number, of })
    }

    /// Returns the number of the process, from 0.
    pub fn number(self) -> usize {
        self.number
    }

    /// Returns the number of processes.
    pub fn of(self) -> usize {
        self.of
    }

    /// Returns the share of a number. Shares differ by 1 at most; the first processes have the larger ones.
    pub fn share(self, all: u64) -> u64 {
        let (number, of) = self.wide();
        all / of + u64::from(number < all % of)
    }

    /// Returns the sum of the shares of all earlier processes.
    fn before(self, all: u64) -> u64 {
        let (number, of) = self.wide();
        all / of * number + number.min(all % of)
    }

    /// Returns the number of the first request of a closed model, in which each process has its own sequence
    /// of requests. With every N-th of all requests, each of N processes would always request the same URL of
    /// a list of N.
    pub(crate) fn first_request(self, limit: Option<u64>) -> u64 {
        limit.map_or(self.wide().0.saturating_mul(APART), |limit| self.before(limit))
    }

    /// Returns the number of an arrival among this process's own; `None` if it belongs to another process.
    pub(crate) fn own(self, arrival: usize) -> Option<usize> {
        (arrival % self.of == self.number).then_some(arrival / self.of)
    }

    /// Reverses [`Part::own`].
    pub(crate) fn arrival(self, own: usize) -> usize {
        own.saturating_mul(self.of).saturating_add(self.number)
    }

    fn wide(self) -> (u64, u64) {
        (self.number as u64, self.of as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(of: usize) -> Vec<Part> {
        (0..of).map(|number| Part::new(number, of).expect("below")).collect()
    }

    #[test]
    fn a_number_beyond_the_last_is_no_part() {
        assert_eq!((Part::new(3, 3), Part::new(0, 0)), (None, None));
        assert_eq!(parts(3).iter().map(|part| part.share(5)).collect::<Vec<_>>(), [2, 2, 1]);
    }

    #[test]
    fn sequences_without_a_limit_are_apart() {
        let firsts: Vec<u64> = parts(3).iter().map(|part| part.first_request(None)).collect();
        assert_eq!(firsts, [0, APART, 2 * APART]);
    }

    proptest! {
        #[test]
        fn shares_add_up_and_follow_each_other(all in any::<u64>(), of in 1..300usize) {
            let mut sum = 0u64;
            for part in parts(of) {
                prop_assert_eq!(part.first_request(Some(all)), sum);
                prop_assert!(part.share(all).abs_diff(all / of as u64) <= 1);
                sum += part.share(all);
            }
            prop_assert_eq!(sum, all);
        }

        #[test]
        fn each_arrival_belongs_to_one_process(arrival in 0..1_000_000usize, of in 1..300usize) {
            let owners: Vec<(Part, usize)> =
                parts(of).into_iter().filter_map(|part| Some((part, part.own(arrival)?))).collect();
            prop_assert_eq!(owners.len(), 1);
            prop_assert_eq!(owners[0].0.arrival(owners[0].1), arrival);
        }
    }
}
