//! A small histogram of durations, for figures of which there are many.
//!
//! Eight steps between powers of two, from 8 µs to 134 s: a percentile is at most an eighth too high. One histogram
//! takes 0.7 KiB, where [`crate::Durations`] takes 26.

use crate::durations::{Bucket, DurationSummary, FineBuckets, ms};

/// The steps between two powers of two are 2 to this power.
const STEP_BITS: u32 = 3;
/// Durations below 2 to this power have steps of the same width, in microseconds.
const FIRST_BITS: u32 = 6;
/// The power of two of the longest duration that is told apart, in microseconds. Longer ones are in the last step.
const LAST_BITS: u32 = 26;
const STEPS: usize = ((LAST_BITS - FIRST_BITS + 2) << STEP_BITS) as usize;

/// A histogram of durations. Counts saturate.
#[derive(Debug, Clone)]
pub(crate) struct LogHistogram {
    steps: [u32; STEPS],
    count: u64,
    sum_us: u64,
    max_us: u64,
}

impl Default for LogHistogram {
    fn default() -> LogHistogram {
        LogHistogram { steps: [0; STEPS], count: 0, sum_us: 0, max_us: 0 }
    }
}

/// Returns the step of a duration.
#[inline]
fn step(us: u64) -> usize {
    if us < 1 << FIRST_BITS {
        return (us >> (FIRST_BITS - STEP_BITS)) as usize;
    }
    let power = us.ilog2();
    let inside = (us >> (power - STEP_BITS)) & ((1 << STEP_BITS) - 1);
    ((u64::from(power - FIRST_BITS + 1) << STEP_BITS | inside) as usize).min(STEPS - 1)
}

/// Returns the first duration behind a step, in microseconds.
fn end_us(step: usize) -> u64 {
    let (octave, inside) = ((step >> STEP_BITS) as u32, (step & ((1 << STEP_BITS) - 1)) as u64 + 1);
    match octave.checked_sub(1) {
        None => inside << (FIRST_BITS - STEP_BITS),
        Some(power) => ((1 << STEP_BITS) + inside) << (FIRST_BITS + power - STEP_BITS),
    }
}

impl LogHistogram {
    /// Counts one duration, in microseconds.
    #[inline]
    pub(crate) fn record(&mut self, us: u64) {
        let step = &mut self.steps[step(us)];
        *step = step.saturating_add(1);
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(us);
        self.max_us = self.max_us.max(us);
    }

    /// Adds the counts of `other`.
    pub(crate) fn add(&mut self, other: &LogHistogram) {
        self.steps.iter_mut().zip(&other.steps).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
        self.count += other.count;
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        self.max_us = self.max_us.max(other.max_us);
    }

    pub(crate) fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// Returns the summary, with a bucket for each step that is not empty.
    pub(crate) fn summary(&self) -> DurationSummary {
        if self.count == 0 {
            return DurationSummary::default();
        }
        let filled = self.steps.iter().enumerate().filter(|(_, count)| **count > 0);
        let steps = FineBuckets {
            counts: filled.map(|(step, count)| (ms(end_us(step) - 1), u64::from(*count))).collect(),
            sum: ms(self.sum_us),
        };
        // Counts that have saturated are in the steps only up to there.
        let of_steps = steps.summary();
        let at = |le: f64| le.min(ms(self.max_us));
        let mut seen = 0;
        let buckets = steps.counts.iter().map(|(le, count)| {
            seen += count;
            Bucket { le: *le, count: seen }
        });
        DurationSummary {
            buckets: buckets.collect(),
            count: self.count,
            sum: of_steps.sum,
            mean: of_steps.sum / self.count as f64,
            p50: at(of_steps.p50),
            p75: at(of_steps.p75),
            p90: at(of_steps.p90),
            p95: at(of_steps.p95),
            p99: at(of_steps.p99),
            p999: at(of_steps.p999),
            max: ms(self.max_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn steps_follow_each_other() {
        let mut last = 0;
        for us in 0..2_000_000 {
            let now = step(us);
            assert!(now == last || now == last + 1 && end_us(last) == us, "{us}");
            last = now;
        }
        assert_eq!((step(u64::MAX), step((1 << 27) - 1)), (STEPS - 1, STEPS - 1));
        assert_eq!(end_us(STEPS - 1), 1 << 27);
    }

    proptest! {
        #[test]
        fn percentiles_are_near(values in prop::collection::vec(0..60_000_000_u64, 1..200)) {
            let mut histogram = LogHistogram::default();
            values.iter().for_each(|us| histogram.record(*us));
            let summary = histogram.summary();
            let mut sorted = values.clone();
            sorted.sort_unstable();
            for (found, quantile) in [(summary.p50, 0.5), (summary.p95, 0.95), (summary.p99, 0.99)] {
                let rank = ((values.len() as f64 * quantile).ceil() as usize).max(1) - 1;
                let exact = sorted[rank] as f64 / 1e3;
                prop_assert!(found >= exact - 0.001 && found <= exact * 1.125 + 0.008, "{} is not {}", found, exact);
            }
            prop_assert_eq!(summary.count, values.len() as u64);
            prop_assert_eq!(summary.sum, values.iter().sum::<u64>() as f64 / 1e3);
            prop_assert_eq!(summary.max, sorted[values.len() - 1] as f64 / 1e3);
        }

        #[test]
        fn two_add_up(one in prop::collection::vec(0..1_000_000_u64, 0..50), two in prop::collection::vec(0..1_000_000_u64, 0..50)) {
            let of = |values: &[u64]| {
                let mut histogram = LogHistogram::default();
                values.iter().for_each(|us| histogram.record(*us));
                histogram
            };
            let mut sum = of(&one);
            sum.add(&of(&two));
            prop_assert_eq!(sum.summary(), of(&[one, two].concat()).summary());
        }
    }
}
