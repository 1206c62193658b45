//! Numbers: counts, sizes in bytes, spans of time.

use std::time::Duration;

use super::{Kind, Mistake};
use crate::raw::Raw;

/// A whole number within bounds.
pub(crate) struct Count {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl<T: TryFrom<u64>> Kind<T> for Count {
    fn read(&self, raw: &Raw) -> Result<T, Mistake> {
        let number = match raw {
            Raw::Word(text) => digits(text),
            Raw::Integer(number) => u64::try_from(*number).ok(),
            // In the file a string is not a number, but the meaning is clear.
            Raw::Text(text) => {
                let meant = within::<T>(digits(text), self.min, self.max).is_ok();
                return Err(Mistake::default().near(meant.then(|| format!("{} without quotes", text.trim()))));
            }
            _ => None,
        };
        within(number, self.min, self.max)
    }

    fn expected(&self) -> String {
        match self.max {
            u64::MAX => format!("a whole number of at least {}", self.min),
            max => format!("a whole number from {} to {max}", self.min),
        }
    }
}

/// A number from 0 to 1, in millionths.
pub(crate) struct Ratio;

impl Kind<u32> for Ratio {
    fn read(&self, raw: &Raw) -> Result<u32, Mistake> {
        let number = match raw {
            Raw::Word(text) => text.parse::<f64>().ok(),
            Raw::Integer(number @ 0..=1) => Some(*number as f64),
            Raw::Float(number) => Some(*number),
            _ => None,
        };
        let within = number.filter(|number| (0.0..=1.0).contains(number));
        within.map(|number| (number * 1e6).round() as u32).ok_or_default()
    }

    fn expected(&self) -> String {
        "a number from 0 to 1, such as 0.1".to_owned()
    }
}

/// A number of bytes within bounds: `65536`, `64KiB`, `10MB`.
pub(crate) struct Size {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl<T: TryFrom<u64>> Kind<T> for Size {
    fn read(&self, raw: &Raw) -> Result<T, Mistake> {
        let bytes = match raw {
            Raw::Word(text) | Raw::Text(text) => parse_size(text),
            Raw::Integer(number) => u64::try_from(*number).ok(),
            // Accepts `1e3`; above 9e15 a double does not hold every whole number.
            Raw::Float(number) if number.fract() == 0.0 && (0.0..9e15).contains(number) => {
                Some(*number as u64)
            }
            _ => None,
        };
        within(bytes, self.min, self.max)
    }

    fn expected(&self) -> String {
        let bounds = match (self.min, self.max) {
            (0, max) => format!("up to {}", size_text(max)),
            (min, max) => format!("from {} to {}", size_text(min), size_text(max)),
        };
        format!("a size such as 65536, \"64KiB\" or \"10MB\", {bounds}")
    }
}

/// Returns the number as a `T` if it is within its bounds and those of the type.
fn within<T: TryFrom<u64>>(number: Option<u64>, min: u64, max: u64) -> Result<T, Mistake> {
    let number = number.filter(|number| (min..=max).contains(number));
    number.and_then(|number| T::try_from(number).ok()).ok_or_default()
}

const UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1_000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
];

fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text);
    let unit = unit.to_ascii_lowercase();
    let factor = UNITS.iter().find(|(name, _)| *name == unit)?.1;
    digits(number)?.checked_mul(factor)
}

/// Returns the shortest exact form of a number of bytes.
pub(crate) fn size_text(bytes: u64) -> String {
    const SCALES: [(u64, &str); 5] =
        [(1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match SCALES.iter().find(|(scale, _)| bytes >= *scale && bytes.is_multiple_of(*scale)) {
        Some((scale, name)) => format!("{}{name}", bytes / scale),
        None => bytes.to_string(),
    }
}

/// A span of time within bounds: `30`, `"30s"`, `"500ms"`, `"2m"`.
pub(crate) struct Period {
    pub(crate) min: Duration,
    pub(crate) max: Duration,
}

impl Period {
    /// From a millisecond to a day.
    pub(crate) const POSITIVE: Period =
        Period { min: Duration::from_millis(1), max: Duration::from_secs(86_400) };
    /// From 0 to a day.
    pub(crate) const ANY: Period = Period { min: Duration::ZERO, max: Duration::from_secs(86_400) };
}

/// Reads a span of time in the form of options: `30`, `30s`, `500ms`, `2m`.
///
/// # Errors
/// A description of what was expected.
pub fn period(text: &str) -> Result<Duration, String> {
    Period::ANY.read(&Raw::Word(text.to_owned())).map_err(|_| Period::ANY.expected())
}

impl Kind<Duration> for Period {
    fn read(&self, raw: &Raw) -> Result<Duration, Mistake> {
        let period = match raw {
            Raw::Word(text) | Raw::Text(text) => parse_period(text),
            Raw::Integer(number) => u64::try_from(*number).ok().map(Duration::from_secs),
            Raw::Float(number) => Duration::try_from_secs_f64(*number).ok(),
            _ => None,
        };
        period.filter(|period| (self.min..=self.max).contains(period)).ok_or_default()
    }

    fn expected(&self) -> String {
        let bounds = format!("from {} to {}", period_text(self.min), period_text(self.max));
        format!("a time such as 30, \"30s\", \"500ms\" or \"2m\", {bounds}")
    }
}

/// Reads one number with its unit, or several from the largest unit down: `1m30s`.
fn parse_period(text: &str) -> Option<Duration> {
    let (mut rest, mut micros, mut last) = (text.trim(), 0.0, f64::INFINITY);
    loop {
        let (number, behind) = split_unit(rest);
        let end = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, next) = behind.split_at(end);
        let millis = match unit {
            "ms" => 1.0,
            "" | "s" => 1_000.0,
            "m" | "min" => 60_000.0,
            "h" => 3_600_000.0,
            _ => return None,
        };
        let whole = rest.len() == text.trim().len() && next.is_empty();
        if millis >= last || (unit.is_empty() && !whole) {
            return None;
        }
        // Rounds to the microsecond, so that "0.3s" is exact.
        micros += (decimal(number)? * millis * 1_000.0).round();
        (rest, last) = (next.trim_start(), millis);
        if rest.is_empty() {
            return Duration::try_from_secs_f64(micros / 1_000_000.0).ok();
        }
    }
}

/// Returns the shortest exact form of a span of whole milliseconds.
pub(crate) fn period_text(period: Duration) -> String {
    match period.as_millis() {
        0 => "0".to_owned(),
        millis if millis % 3_600_000 == 0 => format!("{}h", millis / 3_600_000),
        millis if millis % 60_000 == 0 => format!("{}m", millis / 60_000),
        millis if millis % 1_000 == 0 => format!("{}s", millis / 1_000),
        millis => format!("{millis}ms"),
    }
}

/// Splits a text into a number and the unit after it, without blanks.
fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

/// Reads digits only. Other forms that `str::parse` accepts (`+5`) are more often mistakes.
pub(crate) fn digits(text: &str) -> Option<u64> {
    let text = text.trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn decimal(text: &str) -> Option<f64> {
    let plain = text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    plain.then(|| text.parse().ok()).flatten()
}

/// Turns `None` into a mistake with the kind's own description.
pub(super) trait OrDefault<T> {
    fn ok_or_default(self) -> Result<T, Mistake>;
}

impl<T> OrDefault<T> for Option<T> {
    fn ok_or_default(self) -> Result<T, Mistake> {
        self.ok_or_else(Mistake::default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str) -> Option<u64> {
        Size { min: 0, max: u64::MAX }.read(&Raw::Word(text.into())).ok()
    }

    fn period(text: &str) -> Option<Duration> {
        Period::ANY.read(&Raw::Text(text.into())).ok()
    }

    #[test]
    fn sizes_take_binary_and_decimal_units() {
        assert_eq!(size("64KiB"), Some(65_536));
        assert_eq!(size("64 kib"), Some(65_536));
        assert_eq!(size("10MB"), Some(10_000_000));
        assert_eq!(size("1g"), Some(1 << 30));
        assert_eq!(size("4096"), Some(4096));
        for wrong in ["", "KiB", "-1", "+1", "1.5GiB", "1QB", "18446744073709551616", "99999999999TiB", "1 2"]
        {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn numbers_with_an_exponent_are_sizes_if_they_are_whole() {
        let read = |raw| Kind::<u64>::read(&Size { min: 0, max: u64::MAX }, &raw).ok();
        assert_eq!((read(Raw::Float(1e3)), read(Raw::Float(0.0))), (Some(1000), Some(0)));
        for wrong in [1.5, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(read(Raw::Float(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn sizes_are_written_shortest() {
        assert_eq!(size_text(65_536), "64KiB");
        assert_eq!(size_text(1 << 30), "1GiB");
        assert_eq!(size_text(1_000), "1000");
        assert_eq!(size_text(0), "0");
    }

    #[test]
    fn ratios_are_from_0_to_1() {
        let read = |raw| Ratio.read(&raw).ok();
        assert_eq!(
            ["0", "1", "0.25", "1e-3"].map(|text| read(Raw::Word(text.into()))),
            [0, 1_000_000, 250_000, 1_000].map(Some)
        );
        assert_eq!((read(Raw::Float(0.5)), read(Raw::Integer(1))), (Some(500_000), Some(1_000_000)));
        for wrong in ["", "1.1", "-0.1", "10 %", "nan", "inf"] {
            assert_eq!(read(Raw::Word(wrong.into())), None, "{wrong}");
        }
        assert_eq!((read(Raw::Integer(2)), read(Raw::Float(f64::NAN))), (None, None));
    }

    #[test]
    fn periods_take_units_and_fractions() {
        assert_eq!(period("30"), Some(Duration::from_secs(30)));
        assert_eq!(period("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(period("2m"), Some(Duration::from_secs(120)));
        assert_eq!(period("0.3s"), Some(Duration::from_millis(300)));
        assert_eq!(period("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(period(" 1h 2min 3s 4ms "), Some(Duration::from_millis(3_723_004)));
        for wrong in ["1m30", "30s1m", "1m1m", "1m30s x", "1ms1", "1m-3s", "1m .5s", "20h 5h"] {
            assert_eq!(period(wrong), None, "{wrong}");
        }
        for wrong in ["", "s", "-1s", "1d", "1e9", "inf", "nan", ".5", "1.2.3", "25h"] {
            assert_eq!(period(wrong), None, "{wrong}");
        }
        assert_eq!(Period::ANY.read(&Raw::Float(1.5)), Ok(Duration::from_millis(1500)));
        assert!(Period::ANY.read(&Raw::Float(f64::NAN)).is_err());
        assert!(Period::ANY.read(&Raw::Integer(-1)).is_err());
    }

    #[test]
    fn counts_in_the_file_are_integers_not_strings() {
        let count = Count { min: 1, max: 10 };
        assert_eq!(count.read(&Raw::Integer(10)), Ok(10_u64));
        assert_eq!(count.read(&Raw::Word("10".into())), Ok(10_u16));
        for wrong in
            [Raw::Text("10".into()), Raw::Integer(0), Raw::Integer(11), Raw::Float(1.0), Raw::Switch(true)]
        {
            assert!(Kind::<u64>::read(&count, &wrong).is_err(), "{wrong}");
        }
    }
}
