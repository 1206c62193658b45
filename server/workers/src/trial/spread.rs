//! The distribution of a figure: counts in steps of equal ratio.

/// Steps in which a figure doubles.
const STEPS: f64 = 8.0;

/// A histogram whose steps are an eighth of an octave wide; it grows with the largest value.
#[derive(Debug, Clone, Default)]
pub(super) struct Spread {
    counts: Vec<u32>,
    total: u64,
    /// Added to each value, so that small differences of small values are within a step.
    offset: u32,
}

/// The values above a quantile of both distributions together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Above {
    pub(super) new: u64,
    pub(super) old: u64,
}

impl Spread {
    pub(super) fn with_offset(offset: u32) -> Spread {
        Spread { offset, ..Spread::default() }
    }

    pub(super) fn record(&mut self, value: u32) {
        let step = self.step(value);
        if self.counts.len() <= step {
            self.counts.resize(step + 1, 0);
        }
        self.counts[step] = self.counts[step].saturating_add(1);
        self.total += 1;
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns about the value that `quantile` (between 0 and 1) of all do not exceed; 0 if there are none.
    pub(super) fn quantile(&self, quantile: f64) -> u32 {
        let wanted = (quantile * self.total as f64).ceil().max(1.0) as u64;
        let mut sum = 0;
        let step = self.counts.iter().position(|count| {
            sum += u64::from(*count);
            sum >= wanted
        });
        // The middle of the step.
        step.map_or(0, |step| {
            ((((step as f64 + 0.5) / STEPS).exp2() - 1.0) as u32).saturating_sub(self.offset)
        })
    }

    /// Counts the values above a quantile of all values together, where those of `self`, the new release, are taken as less than they
    /// are: first by `excess`, then by `margin` steps.
    pub(super) fn above(&self, old: &Spread, quantile: f64, margin: usize, excess: f64) -> Above {
        let most = ((self.total + old.total) as f64 * quantile).ceil() as u64;
        let mut less = vec![0; self.counts.len()];
        for (step, count) in self.counts.iter().enumerate() {
            less[self.less(step, excess).saturating_sub(margin)] += u64::from(*count);
        }
        let shifted = |step: usize| less.get(step).copied().unwrap_or(0);
        let of_old = |step: usize| old.counts.get(step).map_or(0, |count| u64::from(*count));
        let (mut below, mut above) = (0, Above { new: self.total, old: old.total });
        for step in 0..self.counts.len().max(old.counts.len()) {
            let (new, old) = (shifted(step), of_old(step));
            (above.new, above.old) = (above.new - new, above.old - old);
            below += new + old;
            if below >= most {
                break;
            }
        }
        above
    }

    /// Returns the step of a value from the middle of this one, after `excess` is taken from it.
    fn less(&self, step: usize, excess: f64) -> usize {
        if excess <= 0.0 {
            return step;
        }
        let least = f64::from(self.offset) + 1.0;
        let value = ((step as f64 + 0.5) / STEPS).exp2() - excess;
        ((value.max(least).log2() * STEPS) as usize).min(step)
    }

    fn step(&self, value: u32) -> usize {
        ((f64::from(value) + f64::from(self.offset) + 1.0).log2() * STEPS) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spread(values: impl IntoIterator<Item = u32>) -> Spread {
        let mut spread = Spread::with_offset(1000);
        values.into_iter().for_each(|value| spread.record(value));
        spread
    }

    #[test]
    fn a_quantile_is_right_within_a_step() {
        let all = spread((0..1000).map(|n| n * 100));
        for (quantile, value) in [(0.5, 50_000), (0.95, 95_000), (0.99, 99_000)] {
            let about = all.quantile(quantile);
            assert!(about.abs_diff(value) < value / 10, "{quantile}: {about}");
        }
        assert_eq!(spread([]).quantile(0.5), 0);
    }

    #[test]
    fn a_shift_within_the_margin_is_none() {
        let old = spread(std::iter::repeat_n(20_000, 90));
        let above = |new: u32| spread(std::iter::repeat_n(new, 10)).above(&old, 0.5, 3, 0.0);
        assert_eq!(above(20_000), Above { new: 0, old: 0 });
        assert_eq!(above(24_000), Above { new: 0, old: 0 });
        assert_eq!(above(30_000), Above { new: 10, old: 0 });
    }

    #[test]
    fn an_excess_is_taken_from_each_value() {
        let old = spread(std::iter::repeat_n(20_000, 90));
        let above =
            |new: u32, excess: f64| spread(std::iter::repeat_n(new, 10)).above(&old, 0.5, 2, excess).new;
        assert_eq!([above(33_000, 0.0), above(33_000, 13_000.0), above(60_000, 13_000.0)], [10, 0, 10]);
        assert_eq!(above(5, 1e9), 0);
    }

    #[test]
    fn small_differences_of_small_values_are_none() {
        let (new, old) = (spread(std::iter::repeat_n(400, 10)), spread(std::iter::repeat_n(200, 90)));
        assert_eq!(new.above(&old, 0.5, 3, 0.0), Above { new: 0, old: 0 });
    }

    proptest! {
        #[test]
        fn at_most_the_part_beyond_the_quantile_is_above(
            new in prop::collection::vec(any::<u32>(), 0..200), old in prop::collection::vec(any::<u32>(), 0..200),
            quantile in 0.0f64..1.0, margin in 0usize..9, excess in 0f64..1e6,
        ) {
            let all = (new.len() + old.len()) as f64;
            let (new, old) = (spread(new), spread(old));
            let above = new.above(&old, quantile, margin, excess);
            prop_assert!(above.new <= new.total() && above.old <= old.total());
            prop_assert!((above.new + above.old) as f64 <= all * (1.0 - quantile) + 1e-6);
        }

        #[test]
        fn a_larger_margin_puts_fewer_above(
            new in prop::collection::vec(0u32..1 << 20, 1..100), quantile in 0.1f64..0.9, margin in 0usize..9,
        ) {
            let (new, old) = (spread(new.iter().copied()), spread(new.iter().copied()));
            prop_assert!(new.above(&old, quantile, margin + 1, 0.0).new <= new.above(&old, quantile, 0, 0.0).new);
        }
    }
}
