//! Decides which requests are recorded.

use crate::{TraceId, TraceParent};

/// Decides by the caller's flag or by the trace id, so that all servers of a trace decide in the same way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// Whether the caller's flag is used.
    parent_based: bool,
    /// Ids whose last 63 bits are below this bound are recorded.
    bound: u64,
}

impl Sampler {
    /// Records the fraction `ratio` (0 to 1) of the traces. If `parent_based` is set, the caller's flag
    /// decides about traces that the caller has begun.
    pub fn new(parent_based: bool, ratio: f64) -> Sampler {
        let bound = (ratio.clamp(0.0, 1.0) * (1_u64 << 63) as f64) as u64;
        Sampler { parent_based, bound }
    }

    /// Returns whether a request is recorded. `trace`: the caller's trace, or a new one.
    pub fn decide(&self, parent: Option<&TraceParent>, trace: &TraceId) -> bool {
        match parent {
            Some(parent) if self.parent_based => parent.is_sampled(),
            _ => trace.low() >> 1 < self.bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trace(low: u64) -> TraceId {
        let mut bytes = [1; 16];
        bytes[8..].copy_from_slice(&low.to_be_bytes());
        TraceId::new(bytes).unwrap()
    }

    fn parent(sampled: bool) -> TraceParent {
        let value: &[u8] = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        TraceParent::parse(value).unwrap().sampled(sampled)
    }

    #[test]
    fn the_callers_flag_counts_if_it_should() {
        for (parent_based, ratio) in [(true, 0.0), (true, 1.0), (false, 0.0), (false, 1.0)] {
            let sampler = Sampler::new(parent_based, ratio);
            assert_eq!(sampler.decide(None, &trace(u64::MAX)), ratio == 1.0);
            for sampled in [true, false] {
                let wanted = if parent_based { sampled } else { ratio == 1.0 };
                assert_eq!(sampler.decide(Some(&parent(sampled)), &trace(7)), wanted);
            }
        }
    }

    proptest! {
        #[test]
        fn a_larger_ratio_records_all_that_a_smaller_one_does(low: u64, one in 0.0..=1.0, other in 0.0..=1.0) {
            let (less, more) = if one < other { (one, other) } else { (other, one) };
            let decides = |ratio| Sampler::new(true, ratio).decide(None, &trace(low));
            prop_assert!(!decides(less) || decides(more));
        }
    }

    #[test]
    fn the_ratio_is_kept() {
        let sampler = Sampler::new(true, 0.25);
        let step = u64::MAX / 1_000;
        let recorded = (0..1_000_u64).filter(|at| sampler.decide(None, &trace(at * step))).count();
        assert!((249..=251).contains(&recorded), "{recorded}");
    }
}
