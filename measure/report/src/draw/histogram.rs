//! Draws histograms.

use super::frame::{Across, Frame, Ground};
use super::ruler::{Ruler, Start, usable};
use super::sheet::{Area, Sheet};
use crate::plot::{Axis, Bucket, Histogram};
use crate::unit::Unit;

/// The smallest height of a bar: a single outlier must be visible.
const LEAST_HEIGHT: f64 = 2.0;

pub(crate) fn draw(sheet: &mut Sheet, plot: &Histogram) {
    let frame = Frame::draw(sheet, ground(sheet, plot));
    for bucket in &plot.buckets {
        let ends = frame.x.at(bucket.from).zip(frame.x.at(bucket.to));
        sheet.positions.push(ends.map_or(f64::NAN, |(from, to)| f64::midpoint(from, to)));
        let Some((from, to)) = ends.filter(|_| bucket.count > 0) else { continue };
        let Some(top) = frame.y.at(bucket.count as f64) else { continue };
        let top = top.min(frame.bottom - LEAST_HEIGHT);
        let width = (to - from).abs();
        // Leaves a small gap between bars, if there is room.
        let gap = if width > 3.0 { 1.0 } else { 0.0 };
        let bar = Area {
            x: from.min(to) + gap / 2.0,
            y: top,
            width: (width - gap).max(1.0),
            height: frame.bottom - top,
        };
        sheet.rect(bar, "f0");
    }
    frame.finish(sheet);
}

fn ground<'a>(sheet: &Sheet, plot: &'a Histogram) -> Ground<'a> {
    let counts = plot.buckets.iter().map(|bucket| bucket.count as f64);
    let ends = plot.buckets.iter().flat_map(|bucket| [bucket.from, bucket.to]);
    let counted = if plot.counted.is_empty() { "count" } else { &plot.counted };
    let (across, up) = if sheet.wide() { (9, 4) } else { (5, 4) };
    Ground {
        x: Across::Values(Ruler::fit(&plot.x, ends, Start::Smallest, across)),
        x_label: plot.x.unit.axis_label(&plot.x.label),
        y: Ruler::fit(&Axis::new("", Unit::Count), counts, Start::Zero, up),
        y_label: counted.to_owned(),
        margin: 0.0,
        spans: &[],
        limits: &[],
        marks: &plot.marks,
    }
}

/// Counts values (each with its count) in buckets of equal width on a log scale (or on a linear one, if `log`
/// is false): about `wanted` buckets from the smallest to the largest value, including empty ones. Values
/// that are not finite, or not above 0 on a log scale, count with the smallest value that can be shown.
#[must_use]
pub fn buckets_of(values: impl IntoIterator<Item = (f64, u64)>, log: bool, wanted: usize) -> Vec<Bucket> {
    let to_scale = |value: f64| if log { value.log10() } else { value };
    let from_scale = |at: f64| if log { 10f64.powf(at) } else { at };
    let mut odd = 0;
    let mut even = Vec::new();
    for (value, count) in values {
        match usable(value).map(to_scale).filter(|at| at.is_finite()) {
            Some(at) => even.push((at, count)),
            None => odd = count.saturating_add(odd),
        }
    }
    let (low, high) =
        even.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), (at, _)| (l.min(*at), h.max(*at)));
    if low > high {
        return Vec::new();
    }
    let least = if log { 0.01 } else { (low.abs().max(high.abs()) * 1e-6).max(1e-90) };
    let wanted = wanted.clamp(1, 500);
    let width = ((high - low) / wanted as f64).max(least);
    let bucket = |index: usize| Bucket {
        from: from_scale(low + width * index as f64),
        to: from_scale(low + width * (index + 1) as f64),
        count: 0,
    };
    let count = (((high - low) / width).floor() as usize + 1).min(wanted + 1);
    let mut buckets: Vec<Bucket> = (0..count).map(bucket).collect();
    for (at, times) in even {
        let index = ((at - low) / width).floor() as usize;
        let bucket = &mut buckets[index.min(count - 1)];
        bucket.count = bucket.count.saturating_add(times);
    }
    buckets[0].count = buckets[0].count.saturating_add(odd);
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_value_is_lost(values in proptest::collection::vec((any::<f64>(), 0u64..1000), 1..50), log in any::<bool>()) {
            let buckets = buckets_of(values.iter().copied(), log, 40);
            let usable = |value: f64| value.is_finite() && (!log || value >= 1e-100);
            prop_assert!(buckets.len() <= 41);
            if values.iter().any(|(value, _)| usable(*value)) {
                let counted: u64 = buckets.iter().map(|bucket| bucket.count).sum();
                prop_assert_eq!(counted, values.iter().map(|(_, count)| count).sum::<u64>());
            } else {
                prop_assert!(buckets.is_empty());
            }
        }
    }
}
