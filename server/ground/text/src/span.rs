//! Spans of time: `30`, `30s`, `500ms`, `1m30s`, `1h 30min`, `1.5h`, `365d`; a bare number is seconds.

use std::time::Duration;

use crate::number::{Decimal, split};
use crate::{Mistake, OrMistake};

const SECOND: u64 = 1_000_000_000;

/// Returns the nanoseconds of a unit. Case does not matter; the caller decides about `M`.
fn nanos(unit: &str) -> Option<u64> {
    Some(match unit.to_lowercase().as_str() {
        "ns" => 1,
        // U+00B5 and U+03BC look the same.
        "us" | "usec" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" | "msec" => 1_000_000,
        "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
        "m" | "min" | "mins" | "minute" | "minutes" => 60 * SECOND,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600 * SECOND,
        "d" | "day" | "days" => 86_400 * SECOND,
        "w" | "week" | "weeks" => 7 * 86_400 * SECOND,
        _ => return None,
    })
}

/// Returns the seconds of a unit that is at least a second long.
pub(crate) fn seconds(unit: &str) -> Option<u64> {
    nanos(unit).map(|nanos| nanos / SECOND).filter(|seconds| *seconds > 0)
}

/// Reads one number with its unit, or several from the largest unit down; rounded to nanoseconds.
///
/// # Errors
/// The text is no span of time, or may be read in two ways (`1M`, `1:30`).
pub fn parse(text: &str) -> Result<Duration, Mistake> {
    let text = text.trim();
    let (mut rest, mut sum, mut last) = (text, 0u64, u64::MAX);
    loop {
        let (number, behind) = split(rest);
        let end = behind.find(|c: char| !c.is_alphabetic()).unwrap_or(behind.len());
        let (name, next) = behind.split_at(end);
        let unit = match name {
            "" if last == u64::MAX && next.is_empty() => SECOND,
            name => nanos(name)
                .filter(|unit| name != "M" && *unit < last)
                .ok_or_else(|| refused(text, number, name, last))?,
        };
        let part = Decimal::read(number).map_err(|mistake| mistake.near(fraction(text)))?;
        sum = part.rounded(unit).and_then(|part| sum.checked_add(part)).or_mistake()?;
        (rest, last) = (next.trim_start(), unit);
        if rest.is_empty() {
            return Ok(Duration::from_nanos(sum));
        }
    }
}

/// Returns `0.5s` for `.5s`.
fn fraction(text: &str) -> Option<String> {
    let meant = format!("0{text}");
    (text.starts_with('.') && parse(&meant).is_ok()).then_some(meant)
}

/// Returns the mistake of a number without its unit, or with an unknown one.
fn refused(text: &str, number: &str, unit: &str, last: u64) -> Mistake {
    let is_clock = text.split_once(':').is_some_and(|(one, two)| {
        [one, two].iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    });
    if let Some((one, two)) = text.split_once(':').filter(|_| is_clock) {
        return Mistake::expected(format!(
            "a time such as \"{one}m{two}s\" or \"{one}h{two}m\": {text} may be either"
        ));
    }
    match unit {
        "M" => Mistake::expected(format!(
            "a time such as \"{number}m\" for minutes or \"{number}d\" for days: {number}M may also be months"
        )),
        "y" | "year" | "years" | "mo" | "month" | "months" => {
            Mistake::expected("a time in days, such as \"365d\": months and years differ in length")
        }
        "" if text.ends_with(number) && !number.is_empty() => {
            let smaller = [("h", 86_400 * SECOND), ("m", 3_600 * SECOND), ("s", 60 * SECOND), ("ms", SECOND)];
            let meant =
                smaller.iter().find(|(_, larger)| *larger == last).map(|(name, _)| format!("{text}{name}"));
            Mistake::default().near(meant)
        }
        _ => Mistake::default(),
    }
}

/// Returns the shortest exact form in one unit: `2m`, `90s`, `1500ms`.
pub fn exact(span: Duration) -> String {
    const UNITS: [(u128, &str); 5] = [
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
    ];
    match span.as_nanos() {
        0 => "0".to_owned(),
        nanos => match UNITS.iter().find(|(unit, _)| nanos.is_multiple_of(*unit)) {
            Some((unit, name)) => format!("{}{name}", nanos / unit),
            None => format!("{nanos}ns"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nanos_of(text: &str) -> Option<u128> {
        parse(text).ok().map(|span| span.as_nanos())
    }

    #[test]
    fn spans_take_units_and_fractions() {
        for (text, ms) in [
            ("30", 30_000),
            ("0.25", 250),
            ("500ms", 500),
            ("0.3s", 300),
            ("2m", 120_000),
            ("30S", 30_000),
            ("1m30s", 90_000),
            (" 1h 2min 3s 4ms ", 3_723_004),
            ("1 hour 30 minutes", 5_400_000),
            ("1.5 h", 5_400_000),
            ("365d", 31_536_000_000),
            ("1w", 604_800_000),
            ("1,500 ms", 1_500),
            ("0", 0),
        ] {
            assert_eq!(nanos_of(text), Some(ms * 1_000_000), "{text}");
        }
        assert_eq!(["1us", "1\u{b5}s", "1\u{3bc}s", "1000ns"].map(nanos_of), [Some(1_000); 4]);
        for wrong in [
            "",
            "s",
            "-1s",
            "1x",
            "1e9",
            "inf",
            "nan",
            ".",
            "1.2.3",
            "1..5s",
            "30s1m",
            "1m1m",
            "1m30s x",
            "1ms1",
            "1m-3s",
            "1m .5s",
            "20h 5h",
            "99999999999999999999",
            "soon",
        ] {
            assert_eq!(parse(wrong), Err(Mistake::default()), "{wrong}");
        }
    }

    #[test]
    fn the_likely_meaning_is_proposed() {
        let near = |text: &str| parse(text).unwrap_err().nearest.unwrap_or_default();
        assert_eq!(
            ["1m30", "1h30", "1d12", "2s500", ".5s", "1h 30"].map(near),
            ["1m30s", "1h30m", "1d12h", "2s500ms", "0.5s", "1h 30m"]
        );
        let expected = |text: &str| parse(text).unwrap_err().expected.unwrap_or_default();
        assert!(expected("1:30").contains("\"1m30s\" or \"1h30m\""), "{}", expected("1:30"));
        assert!(expected("1M").contains("minutes") && expected("1M").contains("months"));
        assert!(expected("1y").contains("\"365d\"") && expected("3 months").contains("in days"));
        assert!(expected("1,5s").contains("1.5 or 15"));
    }

    #[test]
    fn spans_are_written_shortest() {
        assert_eq!(
            [0, 86_400_000, 120_000, 90_000, 1_500].map(|ms| exact(Duration::from_millis(ms))),
            ["0", "24h", "2m", "90s", "1500ms"]
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(nanos in any::<u64>(), unit in 0..4u32) {
            for nanos in [nanos, nanos / 1_000u64.pow(unit) * 1_000u64.pow(unit)] {
                let span = Duration::from_nanos(nanos);
                prop_assert_eq!(parse(&exact(span)), Ok(span));
            }
        }

        #[test]
        fn parts_add_up(h in 0u64..100, m in 0u64..60, s in 0u64..60, ms in 0u64..1000) {
            let wanted = Duration::from_millis(((h * 60 + m) * 60 + s) * 1000 + ms);
            prop_assert_eq!(parse(&format!("{h}h{m}m{s}s{ms}ms")), Ok(wanted));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,20}", near in "([0-9.,:]{1,4} ?[hmsMyd\u{b5}]{0,2}){0,4}") {
            let _ = (parse(&text), parse(&near));
        }
    }
}
