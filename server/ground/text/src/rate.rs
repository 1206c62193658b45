//! Rates: `500/s`, `375/min`, `10r/s`, `10/30s`, `2k/s`, `375 per minute`, `375rpm`.

use crate::count::multiple;
use crate::number::{Decimal, split};
use crate::{Mistake, OrMistake, span};

/// Seconds of a month of 730 hours, as hosting companies count.
pub const MONTH: u64 = 730 * 3_600;

/// A number of requests in a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub count: f64,
    /// Seconds, at least 1; `None`: no period was given.
    pub period: Option<u64>,
}

impl Rate {
    /// Returns the requests per second; a bare number is already that.
    pub fn per_second(self) -> f64 {
        self.count / self.period.unwrap_or(1) as f64
    }
}

/// Reads a rate. The period is one unit (`/s`, `/min`, `/h`, `/day`, `/month`) or several of it (`/30s`).
///
/// # Errors
/// The text is no rate; `375min` is refused, because it may be a time.
pub fn parse(text: &str) -> Result<Rate, Mistake> {
    let (number, rest) = split(text);
    let (factor, rest) = multiple(rest).unwrap_or((1, rest));
    let count = Decimal::read(number)?.float() * factor as f64;
    let unit = ["requests", "request", "req", "r"].iter().find_map(|word| {
        rest.strip_prefix(word)
            .map(str::trim_start)
            .filter(|rest| rest.starts_with('/') || rest.starts_with("per "))
    });
    let rest = unit.unwrap_or(rest);
    let period = match rest {
        "" => None,
        "rps" => Some(1),
        "rpm" => Some(60),
        _ => {
            let Some(period) = rest.strip_prefix('/').or_else(|| rest.strip_prefix("per ")) else {
                let meant = format!("{number}/{rest}");
                return Err(Mistake::default().near(period(rest).map(|_| meant)));
            };
            Some(self::period(period).or_mistake()?)
        }
    };
    Ok(Rate { count, period })
}

/// Reads `s`, `min`, `30s`, `1d`: seconds.
fn period(text: &str) -> Option<u64> {
    let (number, unit) = split(text);
    let one = match unit.to_ascii_lowercase().as_str() {
        "month" | "mo" => MONTH,
        unit => span::seconds(unit)?,
    };
    let seconds = if number.is_empty() { Some(one) } else { Decimal::read(number).ok()?.times(one) };
    seconds.filter(|seconds| *seconds > 0)
}

/// Returns the form in the largest unit that fits: `100/s`, `10/30s`, `5/m`.
pub fn exact(count: u64, seconds: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let (name, unit) = UNITS.into_iter().find(|(_, unit)| seconds.is_multiple_of(*unit)).unwrap_or(("s", 1));
    match seconds / unit {
        1 => format!("{count}/{name}"),
        several => format!("{count}/{several}{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_as_people_write_them() {
        for (text, count, period) in [
            ("500/s", 500.0, Some(1)),
            ("10r/s", 10.0, Some(1)),
            ("30 req / min", 30.0, Some(60)),
            (" 5 / m ", 5.0, Some(60)),
            ("10/30s", 10.0, Some(30)),
            ("1/1.5m", 1.0, Some(90)),
            ("2k/s", 2_000.0, Some(1)),
            ("1.5M/h", 1_500_000.0, Some(3_600)),
            ("22,500/h", 22_500.0, Some(3_600)),
            ("540k/day", 540_000.0, Some(86_400)),
            ("375 per minute", 375.0, Some(60)),
            ("375rpm", 375.0, Some(60)),
            ("6.25 rps", 6.25, Some(1)),
            ("7/month", 7.0, Some(MONTH)),
            ("0.5", 0.5, None),
        ] {
            assert_eq!(parse(text), Ok(Rate { count, period }), "{text}");
        }
        for text in ["", "-5/s", "500/x", "/s", "500/ms", "k", "1e9/s", "5/0s", "NaN", "5/fortnight", "5//s"]
        {
            assert_eq!(parse(text), Err(Mistake::default()), "{text}");
        }
        assert_eq!(parse("375min").unwrap_err().nearest.as_deref(), Some("375/min"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(count in 0u64..1 << 50, seconds in 1u64..1 << 40) {
            prop_assert_eq!(parse(&exact(count, seconds)), Ok(Rate { count: count as f64, period: Some(seconds) }));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,20}", near in "[0-9.,kM]{1,5} ?(/|per |r/)?[0-9]{0,3}[smhdMino]{0,4}") {
            for rate in [parse(&text), parse(&near)].into_iter().flatten() {
                prop_assert!(rate.per_second().is_finite());
            }
        }
    }
}
