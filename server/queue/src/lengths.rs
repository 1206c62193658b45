//! The clients of a class by the number of their waiting requests, in buckets of powers of two.
//!
//! Why: a full queue refuses requests of the client with the most, and the wait of a request depends on how
//! many requests each other client has. Both are needed often, with thousands of clients, so neither may
//! visit all clients.

use crate::flow::{BUCKET, Flow};
use crate::links::{List, NONE};
use slab::Slab;

const BUCKETS: usize = 32;

#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    flows: List<BUCKET>,
    /// The number of clients.
    count: u64,
    /// The requests of all of them.
    sum: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Lengths {
    buckets: [Bucket; BUCKETS],
    /// The bit of each bucket that has clients.
    filled: u32,
}

/// Returns the bucket of a client with `waiting` requests, which is at least 1.
#[inline]
pub(crate) fn bucket_of(waiting: u32) -> usize {
    waiting.max(1).ilog2() as usize
}

impl Lengths {
    /// Records that the number of a client's waiting requests has changed from `from` to `to`.
    #[inline]
    pub(crate) fn change(&mut self, flows: &mut Slab<Flow>, flow: u32, from: u32, to: u32) {
        if from > 0 && to > 0 && bucket_of(from) == bucket_of(to) {
            let sum = &mut self.buckets[bucket_of(from)].sum;
            *sum = *sum + u64::from(to) - u64::from(from);
            return;
        }
        if from > 0 {
            let bucket = &mut self.buckets[bucket_of(from)];
            bucket.flows.remove(flows, flow);
            bucket.count -= 1;
            bucket.sum -= u64::from(from);
            self.filled &= !(u32::from(bucket.count == 0) << bucket_of(from));
        }
        if to > 0 {
            let bucket = &mut self.buckets[bucket_of(to)];
            bucket.flows.push_back(flows, flow);
            bucket.count += 1;
            bucket.sum += u64::from(to);
            self.filled |= 1 << bucket_of(to);
        }
    }

    /// Returns the number of clients with waiting requests.
    pub(crate) fn clients(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.count).sum()
    }

    /// Returns the number of requests that are served while each client has up to `turns` turns. For the
    /// bucket of `turns` itself this is an upper bound.
    pub(crate) fn within(&self, turns: u32) -> u64 {
        let (own, turns) = (bucket_of(turns), u64::from(turns));
        let (mut filled, mut requests) = (self.filled, 0);
        while filled != 0 {
            let at = filled.trailing_zeros() as usize;
            filled &= filled - 1;
            let bucket = &self.buckets[at];
            requests += if at < own { bucket.sum } else { bucket.sum.min(bucket.count * turns) };
        }
        requests
    }

    /// Returns the highest bucket that has clients, and a client in it.
    pub(crate) fn longest(&self) -> Option<(usize, u32)> {
        let top = self.filled.checked_ilog2()? as usize;
        let first = self.buckets[top].flows.first();
        (first != NONE).then_some((top, first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::QueueKey;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_are_those_of_all_clients(changes in proptest::collection::vec((0usize..8, 0u32..300), 0..60), turns in 1u32..400) {
            let (mut flows, mut lengths) = (Slab::new(), Lengths::default());
            let at: Vec<u32> = (0..8).map(|_| flows.insert(Flow::new(QueueKey::default(), 1)) as u32).collect();
            let mut waiting = [0u32; 8];
            for (one, to) in changes {
                lengths.change(&mut flows, at[one], waiting[one], to);
                waiting[one] = to;
            }
            prop_assert_eq!(lengths.clients(), waiting.iter().filter(|&&count| count > 0).count() as u64);
            let exact: u64 = waiting.iter().map(|&count| u64::from(count.min(turns))).sum();
            let (least, most) = (exact, exact + waiting.iter().filter(|&&count| count > 0 && bucket_of(count) == bucket_of(turns)).count() as u64 * u64::from(turns));
            prop_assert!((least..=most).contains(&lengths.within(turns)));
            let most = waiting.iter().copied().max().filter(|&most| most > 0);
            prop_assert_eq!(lengths.longest().map(|(bucket, _)| bucket), most.map(bucket_of));
            if let Some((_, flow)) = lengths.longest() {
                prop_assert!(waiting[flow as usize] * 2 > most.unwrap_or(0));
            }
        }
    }
}
