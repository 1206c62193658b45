//! Units of values, which determine the format: with a unit, at most three significant digits, thousands separators.

use serde::{Deserialize, Serialize};

use crate::figure::{Steps, grouped, significant};

/// The unit of a value. Values are always in the unit named; the displayed unit follows from their size.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A plain number: `12,300`, `0.25`.
    #[default]
    Number,
    /// A count; ticks are whole numbers.
    Count,
    /// Milliseconds, shown as `250 µs`, `12.3 ms`, `1.5 s`.
    Milliseconds,
    /// Seconds since the start of the run, shown as `30 s`, `2 min`, `1:30 min`, `1 h`.
    Seconds,
    /// Seconds since 1970, shown as `14:05` or `14:05:30`, in UTC; add the offset of another time zone to the value.
    Clock,
    /// Bytes, shown as `512 KiB`, `64 MiB`.
    Bytes,
    /// A fraction of 1, shown as `42 %`.
    Fraction,
    /// Events per second, shown as `12,300/s`.
    PerSecond,
    /// Events per minute, shown as `375/min`.
    PerMinute,
    /// Any other unit, written after the number: `cores`.
    Named(String),
}

/// Units for large values: the largest that does not exceed the value is used; each with its size in the base unit.
const TIMES: [(f64, &str); 5] =
    [(60_000.0, " min"), (1000.0, " s"), (1.0, " ms"), (1e-3, " µs"), (1e-6, " ns")];
const SIZES: [(f64, &str); 5] = [
    (1_099_511_627_776.0, " TiB"),
    (1_073_741_824.0, " GiB"),
    (1_048_576.0, " MiB"),
    (1024.0, " KiB"),
    (1.0, " B"),
];
/// Below this many of a unit, the next smaller one is used: `90 s`, not `1.5 min`.
const MINUTES_FROM: f64 = 600_000.0;

impl Unit {
    /// Returns the value as text: `12.3 ms`. Values that are not finite are a dash.
    #[must_use]
    pub fn show(&self, value: f64) -> String {
        if !value.is_finite() {
            return "–".to_owned();
        }
        match self {
            Unit::Count if value.abs() < 1e15 => grouped(value, 0),
            Unit::Seconds => elapsed(value, value, false),
            Unit::Clock => clock(value, true),
            _ => {
                let (one, suffix) = self.one(value.abs());
                format!("{}{suffix}", significant(value / one))
            }
        }
    }

    /// Returns the displayed unit for values up to `largest`: its size in the base unit, and its symbol.
    pub(crate) fn one(&self, largest: f64) -> (f64, String) {
        let of = |list: &[(f64, &str)]| {
            let fits = |&&(one, _): &&(f64, &str)| {
                if one == 60_000.0 { largest >= MINUTES_FROM } else { largest >= one }
            };
            // Values below the smallest unit use that unit; 0 uses the base unit.
            let base = list.iter().find(|(one, _)| *one == 1.0);
            let smallest = if largest == 0.0 { base } else { list.last() };
            list.iter()
                .find(fits)
                .or(smallest)
                .map_or((1.0, String::new()), |&(one, sign)| (one, sign.to_owned()))
        };
        match self {
            Unit::Milliseconds => of(&TIMES),
            Unit::Bytes => of(&SIZES),
            Unit::Fraction => (0.01, " %".to_owned()),
            Unit::PerSecond => (1.0, "/s".to_owned()),
            Unit::PerMinute => (1.0, "/min".to_owned()),
            Unit::Named(name) if !name.is_empty() => (1.0, format!(" {name}")),
            Unit::Named(_) | Unit::Number | Unit::Count | Unit::Seconds | Unit::Clock => (1.0, String::new()),
        }
    }

    /// Returns the same for ticks. Fractions of a GiB are not round numbers of MiB, so a larger unit of bytes
    /// is used only if there are several of it.
    fn tick_one(&self, largest: f64) -> (f64, String) {
        if *self == Unit::Bytes && largest > 4096.0 { self.one(largest / 4.0) } else { self.one(largest) }
    }

    /// Returns the label of a tick on an axis with this step that reaches to `largest`; all ticks use the same unit.
    pub(crate) fn tick(&self, value: f64, step: f64, largest: f64) -> String {
        match self {
            Unit::Seconds => elapsed(value, largest, step % 60.0 != 0.0),
            Unit::Clock => clock(value, step < 60.0),
            _ if value == 0.0 => "0".to_owned(),
            _ => {
                let (one, suffix) = self.tick_one(largest);
                // The name of the unit is at the axis, where there is room.
                let suffix = if matches!(self, Unit::Named(_)) { String::new() } else { suffix };
                let decimals = (-(step / one).log10().floor()).clamp(0.0, 12.0);
                if (largest / one) < 1e9 {
                    format!("{}{suffix}", grouped(value / one, decimals as usize))
                } else {
                    format!("{}{suffix}", significant(value / one))
                }
            }
        }
    }

    /// Returns round steps in this unit, for an axis that reaches to `largest`.
    pub(crate) fn steps(&self, largest: f64) -> Steps {
        match self {
            Unit::Seconds | Unit::Clock => Steps::Time,
            Unit::Count => Steps::Whole,
            _ => Steps::Decimal(self.tick_one(largest).0),
        }
    }

    /// Returns the label of a tick with its own unit, as on a log scale.
    pub(crate) fn alone(&self, value: f64) -> String {
        if matches!(self, Unit::Named(_)) { significant(value) } else { self.show(value) }
    }

    /// Returns the quantity and the unit of numbers shown without unit: `memory in MiB`, `transactions per second`.
    pub(crate) fn words(&self, measure: &str, largest: f64) -> String {
        match (self, self.one(largest).1.trim()) {
            // The measure already contains the unit.
            (_, unit) if !unit.is_empty() && measure.ends_with(unit) => measure.to_owned(),
            (Unit::PerSecond, _) => format!("{measure} per second"),
            (Unit::PerMinute, _) => format!("{measure} per minute"),
            (_, "") => measure.to_owned(),
            (_, unit) => format!("{measure} in {unit}"),
        }
    }

    /// Returns the label of an axis in this unit.
    pub(crate) fn axis_label(&self, label: &str) -> String {
        match self {
            Unit::Named(name) if !name.is_empty() && !label.ends_with(name.as_str()) => {
                format!("{label} ({name})")
            }
            _ => label.to_owned(),
        }
    }
}

/// Formats a duration; `exact` adds the seconds to minutes. `largest` determines the unit.
fn elapsed(seconds: f64, largest: f64, exact: bool) -> String {
    let sign = if seconds < 0.0 { "−" } else { "" };
    let (length, largest) = (seconds.abs(), largest.abs());
    if length == 0.0 {
        "0".to_owned()
    } else if largest < 120.0 {
        format!("{sign}{} s", significant(length))
    } else if largest < 7200.0 {
        let rest = (length % 60.0).round();
        if exact || rest != 0.0 {
            format!("{sign}{}:{rest:02} min", (length / 60.0).floor())
        } else {
            format!("{sign}{} min", (length / 60.0).round())
        }
    } else if largest < 172_800.0 {
        format!("{sign}{} h", significant(length / 3600.0))
    } else {
        format!("{sign}{} d", significant(length / 86_400.0))
    }
}

fn clock(value: f64, seconds: bool) -> String {
    let of_day = value.floor().rem_euclid(86_400.0) as u32;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    if seconds { format!("{hour:02}:{minute:02}:{second:02}") } else { format!("{hour:02}:{minute:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        let shown = |unit: Unit, value| unit.show(value);
        assert_eq!(shown(Unit::Milliseconds, 412.3456), "412 ms");
        assert_eq!(shown(Unit::Milliseconds, 0.2504), "250 µs");
        assert_eq!(shown(Unit::Milliseconds, 0.0000004), "0.4 ns");
        assert_eq!(shown(Unit::Milliseconds, 1500.0), "1.5 s");
        assert_eq!(shown(Unit::Milliseconds, 999.96), "1,000 ms");
        assert_eq!(shown(Unit::Milliseconds, 900_000.0), "15 min");
        assert_eq!(shown(Unit::Milliseconds, 0.0), "0 ms");
        assert_eq!(shown(Unit::PerSecond, 12_345.6), "12,300/s");
        assert_eq!(shown(Unit::Count, 12_345.0), "12,345");
        assert_eq!(shown(Unit::Bytes, 67_108_864.0), "64 MiB");
        assert_eq!(shown(Unit::Fraction, 0.4213), "42.1 %");
        assert_eq!(shown(Unit::Named("cores".into()), 1.5), "1.5 cores");
        assert_eq!(shown(Unit::Number, -1234.0), "−1,230");
        assert_eq!(shown(Unit::Number, f64::NAN), "–");
        assert_eq!(shown(Unit::Seconds, 90.0), "90 s");
        assert_eq!(shown(Unit::Seconds, 150.0), "2:30 min");
        assert_eq!(shown(Unit::Seconds, -1800.0), "−30 min");
        assert_eq!(shown(Unit::Clock, 50_730.0), "14:05:30");
    }

    #[test]
    fn ticks_share_a_unit() {
        assert_eq!(Unit::Milliseconds.tick(500.0, 500.0, 2000.0), "0.5 s");
        assert_eq!(Unit::Milliseconds.tick(2000.0, 500.0, 2000.0), "2.0 s");
        assert_eq!(Unit::PerSecond.tick(20_000.0, 10_000.0, 40_000.0), "20,000/s");
        assert_eq!(Unit::Seconds.tick(90.0, 30.0, 300.0), "1:30 min");
        assert_eq!(Unit::Seconds.tick(-600.0, 600.0, -3600.0), "−10 min");
    }
}
