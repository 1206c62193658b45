//! Reduces points to the visible ones, and rows to a readable number, without losing extremes.

use std::collections::BTreeMap;

use crate::plot::Lines;

/// The most rows of a table behind a plot.
pub(crate) const ROWS: usize = 300;

/// Returns the positions of a line, with at most four per horizontal unit: the first, the lowest, the
/// highest, the last.
pub(crate) fn extremes(positions: &[Option<(f64, f64)>], from: f64, to: f64) -> Vec<Option<(f64, f64)>> {
    if (positions.len() as f64) <= 4.0 * (to - from) {
        return positions.to_vec();
    }
    let mut kept = Vec::new();
    for run in positions
        .chunk_by(|a, b| a.map(|position| position.0.floor()) == b.map(|position| position.0.floor()))
    {
        let by_height = |a: &&Option<(f64, f64)>, b: &&Option<(f64, f64)>| {
            a.map_or(0.0, |position| position.1).total_cmp(&b.map_or(0.0, |position| position.1))
        };
        kept.extend(run.first().copied());
        if run.len() > 2 {
            kept.extend(run.iter().max_by(by_height).copied());
            kept.extend(run.iter().min_by(by_height).copied());
        }
        if run.len() > 1 {
            kept.extend(run.last().copied());
        }
    }
    kept
}

/// Returns n, where every n-th row of a table is shown.
pub(crate) fn stride(rows: usize) -> usize {
    rows.div_ceil(ROWS).max(1)
}

/// Returns the x of each row of the table behind lines.
pub(crate) fn positions(plot: &Lines) -> Vec<f64> {
    let lines = plot.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0));
    let bands = plot.bands.iter().flat_map(|band| band.points.iter().map(|point| point.0));
    // Keyed by bits in the order of `total_cmp`, so that equal values meet.
    let all: BTreeMap<i64, f64> =
        lines.chain(bands).filter(|x| x.is_finite()).map(|x| (order(x), x)).collect();
    let all: Vec<f64> = all.into_values().collect();
    let stride = stride(all.len());
    all.into_iter().step_by(stride).collect()
}

fn order(value: f64) -> i64 {
    let bits = (value + 0.0).to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn extremes_stay(heights in proptest::collection::vec(0f64..1000.0, 2..3000)) {
            let positions: Vec<_> =
                heights.iter().enumerate().map(|(index, y)| Some((index as f64 / heights.len() as f64 * 50.0, *y))).collect();
            let kept = extremes(&positions, 0.0, 50.0);
            prop_assert!(kept.len() <= positions.len() && kept.len() <= 4 * 51);
            let highest = |positions: &[Option<(f64, f64)>]| positions.iter().flatten().map(|position| position.1).fold(0.0, f64::max);
            prop_assert_eq!(highest(&kept), highest(&positions));
        }

        #[test]
        fn the_order_is_that_of_numbers(a in any::<f64>(), b in any::<f64>()) {
            prop_assume!(a.is_finite() && b.is_finite());
            prop_assert_eq!(order(a).cmp(&order(b)), (a + 0.0).total_cmp(&(b + 0.0)));
        }
    }
}
