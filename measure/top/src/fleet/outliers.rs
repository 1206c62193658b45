//! Finds servers that differ from the others. Pure.
//!
//! The rule: among at least [`LEAST`] servers, a value is an outlier if it is more than [`FAR`] scaled median
//! absolute deviations above the median, and as far above it as the figure itself requires ([`Figure`]).
//! Outliers do not move the median and its deviation, as they would move a mean. The figure's requirement
//! keeps a millisecond from separating servers that are all alike.

/// The smallest number of servers that can be compared.
pub(crate) const LEAST: usize = 4;
/// The number of scaled deviations that counts as far.
pub(crate) const FAR: f64 = 3.0;
/// Scales the median absolute deviation of normally distributed values to their standard deviation.
const SCALE: f64 = 1.4826;

/// A value by which servers are compared.
pub(crate) struct Figure {
    /// An outlier is at least this many times the median,
    pub(crate) times: f64,
    /// and at least this much above it.
    pub(crate) more: f64,
}

/// Returns the median of all values, and which of them are outliers; `None` stands for a server without such a value.
pub(crate) fn find(values: &[Option<f64>], figure: &Figure) -> (f64, Vec<bool>) {
    let known: Vec<f64> = values.iter().copied().flatten().collect();
    if known.len() < LEAST {
        return (0.0, vec![false; values.len()]);
    }
    let middle = median(known.clone());
    let deviation = SCALE * median(known.iter().map(|value| (value - middle).abs()).collect());
    let is_far = |value: f64| {
        value - middle > FAR * deviation && value >= middle * figure.times && value - middle >= figure.more
    };
    (middle, values.iter().map(|value| value.is_some_and(is_far)).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[half],
        _ => (values[half - 1] + values[half]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIMES: Figure = Figure { times: 1.5, more: 10.0 };

    fn of(values: &[f64]) -> Vec<usize> {
        let values: Vec<Option<f64>> = values.iter().copied().map(Some).collect();
        let (_, found) = find(&values, &TIMES);
        (0..found.len()).filter(|index| found[*index]).collect()
    }

    #[test]
    fn one_that_is_slower_stands_out() {
        assert_eq!(of(&[40.0, 42.0, 41.0, 400.0]), [3]);
        assert_eq!(of(&[40.0, 42.0, 41.0, 39.0, 400.0, 500.0]), [4, 5]);
        assert!(of(&[40.0, 42.0, 400.0]).is_empty(), "three are too few to compare");
        assert!(of(&[40.0, 40.0, 40.0, 41.0]).is_empty(), "a millisecond is nothing");
        assert!(of(&[10.0, 50.0, 90.0, 130.0]).is_empty(), "all differ");
        assert!(of(&[0.0, 0.0, 0.0, 5.0]).is_empty(), "less than the figure demands");
    }

    #[test]
    fn who_has_no_value_is_left_out() {
        let (middle, found) = find(&[Some(40.0), None, Some(41.0), Some(42.0), Some(300.0)], &TIMES);
        assert_eq!((middle, found), (41.5, vec![false, false, false, false, true]));
    }

    proptest! {
        #[test]
        fn fewer_than_half_are_outliers(values in prop::collection::vec(0.0..1e6f64, 0..40)) {
            prop_assert!(of(&values).len() * 2 <= values.len());
        }

        #[test]
        fn the_order_does_not_matter(mut values in prop::collection::vec(0.0..1e6f64, 4..20)) {
            let pick = |values: &[f64]| {
                let mut picked: Vec<u64> = of(values).into_iter().map(|index| values[index].to_bits()).collect();
                picked.sort_unstable();
                picked
            };
            let before = pick(&values);
            values.reverse();
            prop_assert_eq!(pick(&values), before);
        }
    }
}
