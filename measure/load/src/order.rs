//! The order of requests: a pure function of the request's number.

use crate::scenario::{RequestOrder, Scenario};

/// The weighted order of the kinds of requests.
#[derive(Debug)]
pub(crate) struct Sequence {
    /// Cumulative weights.
    sums: Vec<u64>,
    order: RequestOrder,
}

impl Sequence {
    pub(crate) fn new(scenario: &Scenario) -> Sequence {
        let mut sum = 0;
        let sums = scenario.requests.iter().map(|request| {
            sum += u64::from(request.weight.max(1));
            sum
        });
        Sequence { sums: sums.collect(), order: scenario.order }
    }

    /// Returns whether there is only one kind, so that requests need no numbers.
    pub(crate) fn is_single(&self) -> bool {
        self.sums.len() == 1
    }

    /// Returns the kind of the request with this number, from 0.
    pub(crate) fn kind(&self, number: u64) -> usize {
        let Some(total) = self.sums.last().filter(|_| !self.is_single()) else { return 0 };
        let position = match self.order {
            RequestOrder::InTurn => number % total,
            RequestOrder::Random(seed) => fastrand::Rng::with_seed(seed.wrapping_add(number)).u64(..total),
        };
        self.sums.partition_point(|sum| *sum <= position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_weight() {
        let in_turn = Sequence { sums: vec![2, 3, 6], order: RequestOrder::InTurn };
        let kinds: Vec<usize> = (0..8).map(|number| in_turn.kind(number)).collect();
        assert_eq!(kinds, [0, 0, 1, 2, 2, 2, 0, 0]);
        let random = Sequence { sums: vec![2, 3, 6], order: RequestOrder::Random(9) };
        let mut counts = [0; 3];
        for number in 0..6000 {
            counts[random.kind(number)] += 1;
        }
        for (count, expected) in counts.iter().zip([2000, 1000, 3000]) {
            assert!((expected - 200..expected + 200).contains(count), "{counts:?}");
        }
        assert_eq!(random.kind(77), random.kind(77));
    }
}
