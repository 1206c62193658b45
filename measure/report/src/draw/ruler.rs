//! Maps values to positions: the ends of an axis, its ticks, and the position of a value.

use crate::figure::Steps;
use crate::plot::{Axis, Scale};
use crate::unit::Unit;

/// The largest value; larger ones are drawn at the end of the axis, so that arithmetic stays finite.
const LARGEST: f64 = 1e100;
/// The smallest absolute value; smaller ones count as 0.
const SMALLEST: f64 = 1e-100;
/// The most powers of ten on a log scale, downward from its largest value.
const DECADES: f64 = 12.0;

/// Clamps a value to the range that can be drawn; `None` if it is not finite.
pub(crate) fn usable(value: f64) -> Option<f64> {
    let value = value.is_finite().then_some(value)?;
    Some(if value.abs() < SMALLEST { 0.0 } else { value.clamp(-LARGEST, LARGEST) })
}

/// The default start of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// At 0, or below if there are negative values.
    Zero,
    /// At the smallest value.
    Smallest,
}

/// A tick with its label.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    /// The position in units of the drawing.
    pub at: f64,
    pub label: String,
    /// Whether its label is preferred if there is not enough room for all labels.
    pub first: bool,
}

/// An axis with its ends.
#[derive(Debug, Clone)]
pub(crate) struct Ruler {
    unit: Unit,
    scale: Scale,
    low: f64,
    high: f64,
    step: f64,
    /// Positions of `low` and `high`.
    pub from: f64,
    pub to: f64,
}

impl Ruler {
    /// Returns an axis for these values, with about `wanted` ticks. It ends at a tick, unless it starts at
    /// the smallest value.
    pub fn fit(axis: &Axis, values: impl IntoIterator<Item = f64>, start: Start, wanted: usize) -> Ruler {
        let log = axis.scale == Scale::Log;
        let values = values.into_iter().filter_map(usable).filter(|value| !log || *value > 0.0);
        let (least, most) =
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        let (least, most) = if least <= most { (least, most) } else { (if log { 1.0 } else { 0.0 }, 1.0) };
        let said = |end: Option<f64>| end.and_then(usable).filter(|end| !log || *end > 0.0);
        let (from, to) = (said(axis.from), said(axis.to));
        let mut ruler = Ruler {
            unit: axis.unit.clone(),
            scale: axis.scale,
            low: from.unwrap_or(least),
            high: to.unwrap_or(most),
            step: 1.0,
            from: 0.0,
            to: 1.0,
        };
        if log {
            ruler.fit_log(from.is_none())
        } else {
            ruler.fit_linear(from.is_none(), to.is_none(), start, wanted)
        }
        ruler
    }

    /// Returns the same axis between these positions.
    pub fn between(self, from: f64, to: f64) -> Ruler {
        Ruler { from, to, ..self }
    }

    fn fit_log(&mut self, free: bool) {
        // A smaller range would spread a single value over the axis.
        const LEAST: f64 = 1.3;
        if self.high < self.low * LEAST {
            (self.low, self.high) = (self.low.min(self.high) / 2.0, self.low.max(self.high) * 2.0);
        } else if free {
            let room = (self.high / self.low).powf(0.02);
            (self.low, self.high) = (self.low / room, self.high * room);
        }
        self.low = self.low.max(self.high / 10f64.powf(DECADES));
    }

    fn fit_linear(&mut self, free_low: bool, free_high: bool, start: Start, wanted: usize) {
        if free_low && start == Start::Zero && self.low > 0.0 {
            self.low = 0.0;
        }
        if free_high && start == Start::Zero && self.high < 0.0 {
            self.high = 0.0;
        }
        // Too narrow to tell the ends apart, or reversed.
        let least = (self.low.abs().max(self.high.abs()) * 1e-9).max(SMALLEST);
        if self.high - self.low < least {
            let room = if self.low == 0.0 { 1.0 } else { self.low.abs() / 2.0 };
            self.high = self.low + room;
            if start == Start::Smallest {
                self.low -= room;
            }
        }
        let steps = self.steps();
        self.step = steps.at_least((self.high - self.low) / wanted.max(1) as f64);
        if start == Start::Zero {
            if free_low {
                self.low = (self.low / self.step + 1e-9).floor() * self.step;
            }
            if free_high {
                self.high = (self.high / self.step - 1e-9).ceil() * self.step;
            }
        }
    }

    fn steps(&self) -> Steps {
        self.unit.steps(self.low.abs().max(self.high.abs()))
    }

    /// Returns the position of a value; values beyond the ends are drawn at the end. `None` if it cannot be drawn.
    pub fn at(&self, value: f64) -> Option<f64> {
        self.position(usable(value)?)
    }

    fn position(&self, value: f64) -> Option<f64> {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log if value <= 0.0 => return None,
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        Some(self.from + share.clamp(0.0, 1.0) * (self.to - self.from))
    }

    /// Returns whether a value lies between the ends.
    pub fn holds(&self, value: f64) -> bool {
        usable(value).is_some_and(|value| value >= self.low && value <= self.high)
    }

    /// Returns the base line of areas.
    pub fn base(&self) -> f64 {
        self.at(0.0).unwrap_or(self.from)
    }

    /// Returns the ticks from low to high.
    pub fn ticks(&self) -> Vec<Tick> {
        match self.scale {
            Scale::Linear => self.linear_ticks(),
            Scale::Log => self.log_ticks(),
        }
    }

    fn linear_ticks(&self) -> Vec<Tick> {
        let first = (self.low / self.step - 1e-9).ceil();
        let count = ((self.high / self.step + 1e-9).floor() - first).clamp(0.0, 60.0) as usize;
        let largest = self.low.abs().max(self.high.abs());
        (0..=count)
            .map(|index| (first + index as f64) * self.step)
            .filter_map(|value| {
                Some(Tick {
                    at: self.position(value)?,
                    label: self.unit.tick(value, self.step, largest),
                    first: true,
                })
            })
            .collect()
    }

    /// Returns powers of ten (of two, for bytes) with labels; also 2 and 5 if there are few.
    fn log_ticks(&self) -> Vec<Tick> {
        let base: f64 = if self.unit == Unit::Bytes { 2.0 } else { 10.0 };
        let span = (self.high / self.low).ln() / base.ln();
        let (first, last) =
            ((self.low.ln() / base.ln()).floor() as i32, (self.high.ln() / base.ln()).ceil() as i32);
        let most = if base == 2.0 { 10.0 } else { 7.0 };
        let stride = (span / most).ceil().max(1.0) as i32;
        let between: &[f64] = match span {
            _ if base == 2.0 => &[1.0],
            span if span < 0.7 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
            span if span <= 4.0 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let position = |power: i32, times: f64| {
            let value = times * base.powi(power);
            let tick = Tick { at: self.at(value)?, label: self.unit.alone(value), first: times == 1.0 };
            self.holds(value).then_some(tick)
        };
        (first..=last)
            .filter(|power| power.rem_euclid(stride) == 0)
            .flat_map(|power| between.iter().filter_map(move |times| position(power, *times)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(axis: &Axis, values: &[f64], wanted: usize) -> Vec<String> {
        let ruler = Ruler::fit(axis, values.iter().copied(), Start::Zero, wanted);
        ruler.ticks().into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn round_ticks_with_one_unit() {
        let time = Axis::new("", Unit::Milliseconds);
        assert_eq!(labels(&time, &[3.0, 412.0], 5), ["0", "100 ms", "200 ms", "300 ms", "400 ms", "500 ms"]);
        let memory = Axis::new("", Unit::Bytes);
        assert_eq!(labels(&memory, &[500.0 * 1_048_576.0], 3), ["0", "200 MiB", "400 MiB", "600 MiB"]);
        assert_eq!(
            labels(&time.log(), &[0.9, 120.0], 5),
            ["1 ms", "2 ms", "5 ms", "10 ms", "20 ms", "50 ms", "100 ms"]
        );
        assert_eq!(labels(&Axis::new("", Unit::Count), &[1.0], 5), ["0", "1"]);
        assert_eq!(labels(&Axis::new("", Unit::Number), &[], 2), ["0", "0.5", "1.0"]);
    }

    proptest! {
        #[test]
        fn all_data_have_a_position(
            values in proptest::collection::vec(any::<f64>(), 0..8),
            from in any::<Option<f64>>(), to in any::<Option<f64>>(), log in any::<bool>(), zero in any::<bool>(),
        ) {
            let axis = Axis { from, to, scale: if log { Scale::Log } else { Scale::Linear }, ..Axis::default() };
            let start = if zero { Start::Zero } else { Start::Smallest };
            let ruler = Ruler::fit(&axis, values.iter().copied(), start, 5).between(50.0, 350.0);
            let ticks = ruler.ticks();
            prop_assert!(ticks.len() <= 61);
            prop_assert!(ticks.windows(2).all(|pair| pair[0].at <= pair[1].at));
            for at in values.iter().filter_map(|value| ruler.at(*value)).chain(ticks.iter().map(|tick| tick.at)) {
                prop_assert!((50.0..=350.0).contains(&at), "{at}");
            }
        }
    }
}
