//! Durations in microseconds, kept as a histogram and shown as percentiles in milliseconds.
//!
//! With two significant digits, a percentile is accurate to 1 %, and a histogram from 1 µs to an hour takes
//! about 26 KiB. Longer durations count as an hour.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

const LONGEST_US: u64 = 3_600_000_000;
const DIGITS: u8 = 2;

/// The percentiles of a summary, in the same order.
const QUANTILES: [f64; 6] = [0.50, 0.75, 0.90, 0.95, 0.99, 0.999];
/// The initial capacity for fine buckets.
const BUCKETS_USUAL: usize = 256;

/// The upper bounds of the buckets of [`DurationSummary::coarse`], in microseconds.
const BUCKETS_US: [u64; 17] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000, 30_000_000,
];

/// A histogram of durations.
#[derive(Debug, Clone)]
pub struct Durations {
    histogram: Histogram<u64>,
    /// The exact sum of all durations.
    sum_us: u64,
}

impl Default for Durations {
    fn default() -> Durations {
        let histogram = Histogram::new_with_bounds(1, LONGEST_US, DIGITS);
        let histogram = histogram.expect("the bounds are constants that hdrhistogram accepts");
        Durations { histogram, sum_us: 0 }
    }
}

impl Durations {
    /// Counts one duration, in microseconds.
    #[inline]
    pub fn record(&mut self, us: u64) {
        self.histogram.saturating_record(us);
        self.sum_us = self.sum_us.saturating_add(us.min(LONGEST_US));
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Durations) {
        let added = self.histogram.add(&other.histogram);
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        debug_assert!(added.is_ok(), "all histograms have the same bounds");
    }

    /// Returns the summary with fine buckets: every counted value, accurate to 1 %.
    ///
    /// Takes two passes over the counts, one for all percentiles and one for the rest, because each scrape
    /// creates summaries.
    pub fn summary(&self) -> DurationSummary {
        let count = self.histogram.len();
        if count == 0 {
            return DurationSummary::default();
        }
        let mut percentiles = self.histogram.value_at_quantiles(QUANTILES).map(ms);
        let [p50, p75, p90, p95, p99, p999] = std::array::from_fn(|_| percentiles.next().unwrap_or_default());
        let (mut buckets, mut seen, mut weighed) = (Vec::with_capacity(BUCKETS_USUAL), 0, 0.0);
        for step in self.histogram.iter_recorded() {
            let (value, new) = (step.value_iterated_to(), step.count_at_value());
            seen += new;
            weighed += self.histogram.median_equivalent(value) as f64 * new as f64;
            buckets.push(Bucket { le: ms(value), count: seen });
        }
        DurationSummary {
            count,
            sum: ms(self.sum_us),
            mean: (weighed / count as f64).round_ties_even() / 1_000.0,
            p50,
            p75,
            p90,
            p95,
            p99,
            p999,
            max: ms(self.histogram.max()),
            buckets,
        }
    }
}

impl DurationSummary {
    /// Replaces the fine buckets by a few fixed ones, which time series need.
    pub fn coarse(mut self) -> DurationSummary {
        let mut fine = self.buckets.iter().peekable();
        let mut seen = 0;
        let bounds = BUCKETS_US.map(|bound| {
            while let Some(bucket) = fine.next_if(|bucket| bucket.le <= ms(bound)) {
                seen = bucket.count;
            }
            Bucket { le: ms(bound), count: seen }
        });
        self.buckets = bounds.to_vec();
        self
    }

    /// Returns the summary of the durations since `earlier`, from the fine buckets of both and with their
    /// accuracy. The maximum is that of the last bucket. Count and sum need no buckets.
    pub fn since(&self, earlier: &DurationSummary) -> DurationSummary {
        let new = FineBuckets::between(earlier, self);
        DurationSummary { count: self.count.saturating_sub(earlier.count), sum: new.sum, ..new.summary() }
    }
}

/// Durations by fine bucket. The buckets of all servers are equal, so those of several servers can be added
/// without loss.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FineBuckets {
    /// The upper bound of each bucket in milliseconds with its count, in ascending order and without empty
    /// buckets.
    pub(crate) counts: Vec<(f64, u64)>,
    /// The sum of all durations, in milliseconds.
    pub(crate) sum: f64,
}

impl FineBuckets {
    /// Returns the durations since `earlier`, from the fine buckets of both.
    pub fn between(earlier: &DurationSummary, later: &DurationSummary) -> FineBuckets {
        FineBuckets {
            counts: new_in(&later.buckets, &earlier.buckets),
            sum: (later.sum - earlier.sum).max(0.0),
        }
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// Adds the durations of `other`.
    pub fn add(&mut self, other: &FineBuckets) {
        self.sum += other.sum;
        let mine = std::mem::take(&mut self.counts);
        let (mut mine, mut theirs) = (mine.into_iter().peekable(), other.counts.iter().copied().peekable());
        loop {
            let next = match (mine.peek(), theirs.peek()) {
                (Some((one, _)), Some((two, _))) if one > two => theirs.next(),
                (Some((one, _)), Some((two, _))) if one == two => {
                    let added = theirs.next().map_or(0, |(_, count)| count);
                    mine.next().map(|(le, count)| (le, count + added))
                }
                (Some(_), _) => mine.next(),
                (None, _) => theirs.next(),
            };
            match next {
                Some(step) => self.counts.push(step),
                None => return,
            }
        }
    }

    /// Returns the summary of the durations.
    pub fn summary(&self) -> DurationSummary {
        let count = self.count();
        if count == 0 {
            return DurationSummary::default();
        }
        let at = |quantile: f64| {
            let rank = ((count as f64 * quantile).ceil() as u64).clamp(1, count);
            let mut seen = 0;
            let reached = self.counts.iter().find(|(_, new)| {
                seen += new;
                seen >= rank
            });
            reached.map_or(0.0, |(le, _)| *le)
        };
        DurationSummary {
            count,
            sum: self.sum,
            mean: self.counts.iter().map(|(le, new)| middle(*le) * *new as f64).sum::<f64>() / count as f64,
            p50: at(0.50),
            p75: at(0.75),
            p90: at(0.90),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: at(1.0),
            buckets: Vec::new(),
        }
    }
}

/// Returns the new durations in each bucket of `later` since `earlier`. The buckets of `earlier` are a subset
/// of the same buckets.
fn new_in(later: &[Bucket], earlier: &[Bucket]) -> Vec<(f64, u64)> {
    let mut old = earlier.iter().peekable();
    let (mut seen, mut seen_before) = (0, 0);
    let mut steps = Vec::new();
    for bucket in later {
        let mut known = 0;
        while let Some(before) = old.next_if(|before| before.le <= bucket.le) {
            known += before.count.saturating_sub(seen_before);
            seen_before = before.count;
        }
        let new = bucket.count.saturating_sub(seen).saturating_sub(known);
        seen = bucket.count;
        steps.extend((new > 0).then_some((bucket.le, new)));
    }
    steps
}

/// Returns the middle of the fine bucket that ends at `le` milliseconds. There are 256 equal steps up to 256
/// µs, and 128 steps between powers of two above, which is how the histogram keeps two digits.
fn middle(le: f64) -> f64 {
    let us = (le * 1_000.0).round() as u64;
    let width = if us < 256 { 1 } else { 1 << (us.ilog2() - 7) };
    ms(us) - (width - 1) as f64 / 2_000.0
}

pub(crate) fn ms(us: u64) -> f64 {
    us as f64 / 1_000.0
}

/// Count, sum, mean and percentiles. All durations are in milliseconds, and 0 if none was counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DurationSummary {
    /// The number of durations.
    pub count: u64,
    /// The sum of all durations.
    #[serde(default)]
    pub sum: f64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 75th percentile.
    pub p75: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    pub max: f64,
    /// Cumulative buckets, fine unless [`DurationSummary::coarse`] was called. May be empty
    /// ([`crate::Snapshot::without_buckets`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<Bucket>,
}

/// The number of durations up to `le` milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// The upper bound in milliseconds, inclusive.
    pub le: f64,
    /// The number of durations that were not longer.
    pub count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(found: f64, wanted: f64) -> bool {
        (found - wanted).abs() <= wanted * 0.01
    }

    #[test]
    fn durations_of_several_servers_add_up() {
        let (mut all, mut sum) = (Durations::default(), FineBuckets::default());
        for server in 1..=4_u64 {
            let mut own = Durations::default();
            for number in 1..=500 {
                own.record(server * number * 37);
                all.record(server * number * 37);
            }
            sum.add(&FineBuckets::between(&DurationSummary::default(), &own.summary()));
        }
        let expected = all.summary().since(&DurationSummary::default());
        assert_eq!(sum.count(), 2_000);
        let found = sum.summary();
        assert!((found.sum - expected.sum).abs() < 1e-6);
        assert_eq!(DurationSummary { sum: expected.sum, ..found }, expected, "exactly as if one had counted");
    }

    #[test]
    fn percentiles_are_within_one_percent() {
        let mut durations = Durations::default();
        (1..=10_000).for_each(|us| durations.record(us * 10));
        let summary = durations.summary();
        assert_eq!(summary.count, 10_000);
        let found =
            [summary.p50, summary.p75, summary.p90, summary.p95, summary.p99, summary.p999, summary.max];
        for (found, wanted) in found.into_iter().zip([50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 100.0]) {
            assert!(near(found, wanted), "{found} is not {wanted}");
        }
        assert!(near(summary.mean, 50.0));
        assert_eq!(summary.sum, 500_050.0, "exactly");
    }

    proptest! {
        #[test]
        fn a_summary_says_what_the_histogram_says(values in prop::collection::vec(0..LONGEST_US, 0..200)) {
            let mut durations = Durations::default();
            values.iter().for_each(|us| durations.record(*us));
            let (summary, histogram) = (durations.summary(), &durations.histogram);
            let found = [summary.p50, summary.p75, summary.p90, summary.p95, summary.p99, summary.p999];
            prop_assert_eq!(found, QUANTILES.map(|quantile| ms(histogram.value_at_quantile(quantile))));
            prop_assert!((summary.mean - histogram.mean() / 1_000.0).abs() <= 0.001);
            prop_assert_eq!(summary.max, ms(histogram.max()));
            prop_assert_eq!(summary.buckets.len(), histogram.iter_recorded().count());
            prop_assert_eq!(summary.buckets.last().map_or(0, |last| last.count), values.len() as u64);
        }
    }

    #[test]
    fn zero_and_the_endless_are_counted() {
        let mut durations = Durations::default();
        durations.record(0);
        durations.record(u64::MAX);
        let summary = durations.summary();
        assert_eq!((summary.count, summary.p50), (2, 0.0));
        assert!(near(summary.max, 3_600_000.0));
        assert_eq!(summary.coarse().buckets.last().map(|bucket| bucket.count), Some(1));
    }

    #[test]
    fn buckets_are_cumulative() {
        let mut durations = Durations::default();
        [50, 90, 900, 40_000].into_iter().for_each(|us| durations.record(us));
        let coarse = durations.summary().coarse();
        let count = |le: f64| coarse.buckets.iter().find(|b| b.le == le).map(|b| b.count);
        assert_eq!(
            [count(0.1), count(0.5), count(1.0), count(50.0), count(30_000.0)],
            [Some(2), Some(2), Some(3), Some(4), Some(4)]
        );
    }

    #[test]
    fn a_difference_is_what_came_between() {
        let mut durations = Durations::default();
        (1..=1_000).for_each(|us| durations.record(us * 7));
        let earlier = durations.summary();
        assert_eq!(earlier.since(&earlier), DurationSummary::default());
        let mut between = Durations::default();
        for us in (1..=500).map(|step| step * 400) {
            durations.record(us);
            between.record(us);
        }
        let (found, wanted) = (durations.summary().since(&earlier), between.summary());
        assert_eq!(found.count, 500);
        let pairs = [(found.mean, wanted.mean), (found.p50, wanted.p50), (found.p95, wanted.p95)];
        for (found, wanted) in pairs.into_iter().chain([(found.p99, wanted.p99), (found.max, wanted.max)]) {
            assert!((found - wanted).abs() <= wanted * 0.01, "{found} is not {wanted}");
        }
        let from_the_start = durations.summary().since(&DurationSummary::default());
        assert_eq!((from_the_start.count, from_the_start.p99), (1_500, durations.summary().p99));
    }

    #[test]
    fn sums_count_both() {
        let (mut a, mut b) = (Durations::default(), Durations::default());
        a.record(10);
        b.record(30);
        a.add(&b);
        assert_eq!((a.summary().count, a.summary().max), (2, 0.03));
        assert_eq!(Durations::default().summary().mean, 0.0);
    }
}
