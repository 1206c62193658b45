//! Which request is next: a pure function of its number.

use crate::plan::{Order, Plan};

/// Weighted order of kinds of requests.
#[derive(Debug)]
pub(crate) struct Sequence {
    /// Sums of the weights up to each kind.
    sums: Vec<u64>,
    order: Order,
}

impl Sequence {
    pub(crate) fn new(plan: &Plan) -> Sequence {
        let mut sum = 0;
        let sums = plan.requests.iter().map(|request| {
            sum += u64::from(request.weight.max(1));
            sum
        });
        Sequence { sums: sums.collect(), order: plan.order }
    }

    /// There is only one kind, so nobody need count.
    pub(crate) fn is_single(&self) -> bool {
        self.sums.len() == 1
    }

    /// The kind of the request with this number, counted from 0.
    pub(crate) fn kind(&self, number: u64) -> usize {
        let Some(total) = self.sums.last().filter(|_| !self.is_single()) else { return 0 };
        let place = match self.order {
            Order::InTurn => number % total,
            Order::Random(seed) => fastrand::Rng::with_seed(seed.wrapping_add(number)).u64(..total),
        };
        self.sums.partition_point(|sum| *sum <= place)
    }
}
