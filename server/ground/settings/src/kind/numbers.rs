//! Numbers: counts, sizes in bytes, spans of time.

use std::time::Duration;

use text::size::{self, Letter};
use text::{OrMistake, count, span};

use super::{Mistake, ValueKind};
use crate::raw::Raw;

/// A whole number within bounds.
pub(crate) struct Count {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl<T: TryFrom<u64>> ValueKind<T> for Count {
    fn read(&self, raw: &Raw) -> Result<T, Mistake> {
        within(raw.whole(count::parse)?, self.min, self.max)
    }

    fn expected(&self) -> String {
        match self.max {
            u64::MAX => format!("a whole number of at least {}", self.min),
            max => format!("a whole number from {} to {max}", self.min),
        }
    }
}

/// Permissions of a file in octal digits: `0640`. A number in a file is meant as it is (`0o640`).
pub(crate) struct Permissions;

impl ValueKind<u32> for Permissions {
    fn read(&self, raw: &Raw) -> Result<u32, Mistake> {
        let bits = match raw {
            Raw::Word(text) | Raw::Text(text) => {
                let digits = text.trim().trim_start_matches("0o");
                let octal = digits.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
                octal.then(|| u32::from_str_radix(digits, 8).ok()).flatten()
            }
            Raw::Integer(number) => u32::try_from(*number).ok(),
            _ => None,
        };
        bits.filter(|bits| *bits <= 0o777).or_mistake()
    }

    fn expected(&self) -> String {
        "permissions in octal digits, such as \"0640\"".to_owned()
    }
}

/// A number from 0 to 1, in millionths.
pub(crate) struct Ratio;

impl ValueKind<u32> for Ratio {
    fn read(&self, raw: &Raw) -> Result<u32, Mistake> {
        let number = match raw {
            Raw::Word(text) | Raw::Text(text) => text.trim().parse::<f64>().ok(),
            Raw::Integer(number @ 0..=1) => Some(*number as f64),
            Raw::Float(number) => Some(*number),
            _ => None,
        };
        let within = number.filter(|number| (0.0..=1.0).contains(number));
        within.map(|number| (number * 1e6).round() as u32).or_mistake()
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

impl<T: TryFrom<u64>> ValueKind<T> for Size {
    fn read(&self, raw: &Raw) -> Result<T, Mistake> {
        within(raw.whole(|text| size::parse(text, Letter::Binary))?, self.min, self.max)
    }

    fn expected(&self) -> String {
        let bounds = match (self.min, self.max) {
            (0, max) => format!("up to {}", size::exact(max)),
            (min, max) => format!("from {} to {}", size::exact(min), size::exact(max)),
        };
        format!("a size such as 65536, \"64KiB\" or \"10MB\", {bounds}")
    }
}

/// Returns the number as a `T` if it is within its bounds and those of the type.
fn within<T: TryFrom<u64>>(number: u64, min: u64, max: u64) -> Result<T, Mistake> {
    let number = (min..=max).contains(&number).then_some(number);
    number.and_then(|number| T::try_from(number).ok()).or_mistake()
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

/// Reads a span of time in the form of options, for flags that are no options.
///
/// # Errors
/// A description of what was expected.
pub fn period(text: &str) -> Result<Duration, String> {
    let period = Period::ANY.read(&Raw::Word(text.to_owned()));
    period.map_err(|mistake| mistake.explain(&Period::ANY.expected()))
}

impl ValueKind<Duration> for Period {
    fn read(&self, raw: &Raw) -> Result<Duration, Mistake> {
        let period = match raw {
            Raw::Word(text) | Raw::Text(text) => Some(span::parse(text)?),
            Raw::Integer(number) => u64::try_from(*number).ok().map(Duration::from_secs),
            Raw::Float(number) => Duration::try_from_secs_f64(*number).ok(),
            _ => None,
        };
        period.filter(|period| (self.min..=self.max).contains(period)).or_mistake()
    }

    fn expected(&self) -> String {
        let bounds = format!("from {} to {}", span::exact(self.min), span::exact(self.max));
        format!("a time such as 30, \"30s\", \"500ms\" or \"2m\", {bounds}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_an_exponent_are_sizes_if_they_are_whole() {
        let read = |raw| ValueKind::<u64>::read(&Size { min: 0, max: u64::MAX }, &raw).ok();
        assert_eq!((read(Raw::Float(1e3)), read(Raw::Float(0.0))), (Some(1000), Some(0)));
        for wrong in [1.5, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(read(Raw::Float(wrong)), None, "{wrong}");
        }
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
    fn periods_are_text_or_seconds() {
        let read = |raw| Period::ANY.read(&raw).ok();
        let [text, word] = [Raw::Text("1m30s".into()), Raw::Word("90".into())].map(read);
        assert_eq!([text, word, read(Raw::Integer(90))], [Some(Duration::from_secs(90)); 3]);
        assert_eq!(read(Raw::Float(1.5)), Some(Duration::from_millis(1500)));
        for wrong in [Raw::Text("25h".into()), Raw::Float(f64::NAN), Raw::Integer(-1), Raw::Switch(false)] {
            assert_eq!(Period::ANY.read(&wrong), Err(Mistake::default()), "{wrong}");
        }
    }

    #[test]
    fn counts_are_numbers_or_text() {
        let count = Count { min: 1, max: 10_000 };
        for right in [Raw::Integer(10), Raw::Word("10".into()), Raw::Text("10".into()), Raw::Float(10.0)] {
            assert_eq!(count.read(&right), Ok(10_u16), "{right}");
        }
        assert_eq!(count.read(&Raw::Word("10k".into())), Ok(10_000_u64));
        for wrong in [Raw::Text("0".into()), Raw::Integer(10_001), Raw::Float(1.5), Raw::Switch(true)] {
            assert!(ValueKind::<u64>::read(&count, &wrong).is_err(), "{wrong}");
        }
    }
}
