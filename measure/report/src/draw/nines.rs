//! The axis of percentiles: each nine has the same width, and the maximum is placed after the last.

use super::ruler::Tick;
use crate::figure::grouped;

/// The space between the last percentile and the maximum, in nines.
const APART: f64 = 0.45;
/// The most nines shown.
const MOST: f64 = 9.0;

/// Percentiles between two positions.
#[derive(Debug, Clone)]
pub(crate) struct Nines {
    nines: f64,
    /// Whether the maximum is shown.
    maximum: bool,
    pub from: f64,
    pub to: f64,
}

/// Returns the number of nines of a percentile: 90 has one. `None` for invalid percentiles and for the maximum.
fn nines(percentile: f64) -> Option<f64> {
    ((0.0..100.0).contains(&percentile)).then(|| (-(1.0 - percentile / 100.0).log10()).clamp(0.0, MOST))
}

impl Nines {
    pub fn fit(percentiles: impl IntoIterator<Item = f64>) -> Nines {
        let (mut most, mut maximum) = (2.0f64, false);
        for percentile in percentiles {
            maximum |= percentile == 100.0;
            most = most.max(nines(percentile).unwrap_or(0.0));
        }
        Nines { nines: most, maximum, from: 0.0, to: 1.0 }
    }

    pub fn between(self, from: f64, to: f64) -> Nines {
        Nines { from, to, ..self }
    }

    pub fn at(&self, percentile: f64) -> Option<f64> {
        let whole = self.nines + if self.maximum { APART } else { 0.0 };
        let reached = if percentile == 100.0 { whole } else { nines(percentile)?.min(self.nines) };
        Some(self.from + reached / whole * (self.to - self.from))
    }

    pub fn ticks(&self) -> Vec<Tick> {
        let named = [0.0, 50.0, 75.0].into_iter().chain((1..=MOST as i32).map(|n| 100.0 - 10f64.powi(2 - n)));
        let mut ticks: Vec<Tick> = named
            .filter(|percentile| nines(*percentile).is_some_and(|reached| reached <= self.nines + 1e-6))
            .filter_map(|percentile| {
                Some(Tick { at: self.at(percentile)?, label: label(percentile), first: percentile >= 90.0 })
            })
            .collect();
        if self.maximum {
            ticks.push(Tick { at: self.to, label: "max".to_owned(), first: true });
        }
        ticks
    }
}

/// Returns a label such as `99.9 %`, with as many nines as needed.
pub(crate) fn label(percentile: f64) -> String {
    if percentile == 100.0 {
        return "max".to_owned();
    }
    if percentile == 0.0 {
        return "0 %".to_owned();
    }
    let text = grouped(percentile, if percentile < 99.0 { 1 } else { 7 });
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Returns percentiles evenly spaced on the axis of a percentile plot, as far as `count` values determine
/// them, and the maximum. Callers query their histogram for the value at each.
#[must_use]
pub fn percentile_steps(count: u64) -> Vec<f64> {
    const PER_NINE: f64 = 12.0;
    let most = (count.max(1) as f64).log10().min(MOST);
    let steps = (most * PER_NINE).floor() as u32;
    (0..=steps).map(|step| 100.0 * (1.0 - 10f64.powf(-f64::from(step) / PER_NINE))).chain([100.0]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nines_have_equal_width() {
        let axis = Nines::fit([50.0, 99.99]).between(0.0, 400.0);
        let at = |percentile| axis.at(percentile).map(f64::round);
        assert_eq!(
            [at(0.0), at(90.0), at(99.0), at(99.9), at(99.99)],
            [0.0, 100.0, 200.0, 300.0, 400.0].map(Some)
        );
        let labels: Vec<_> = axis.ticks().into_iter().map(|tick| tick.label).collect();
        assert_eq!(labels, ["0 %", "50 %", "75 %", "90 %", "99 %", "99.9 %", "99.99 %"]);
    }

    #[test]
    fn steps_end_with_the_data() {
        let steps = percentile_steps(1000);
        assert_eq!((steps.first(), steps.last()), (Some(&0.0), Some(&100.0)));
        assert!(steps[..steps.len() - 1].iter().all(|step| *step <= 99.9 + 1e-9));
        assert_eq!(percentile_steps(0), [0.0, 100.0]);
    }

    proptest! {
        #[test]
        fn all_data_have_a_position(values in proptest::collection::vec(any::<f64>(), 0..8)) {
            let axis = Nines::fit(values.iter().copied()).between(40.0, 340.0);
            prop_assert!(values.iter().filter_map(|value| axis.at(*value)).all(|at| (40.0..=340.0).contains(&at)));
        }
    }
}
