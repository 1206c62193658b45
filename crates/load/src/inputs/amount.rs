//! Counts, durations and sizes in the usual notation: `10k`, `1m30s`, `64KiB`.

use std::time::Duration;

/// Longest accepted duration: 365 days.
const LONGEST: f64 = 31_536_000.0;

/// Parses a duration: `60s`, `1m30s`, `500ms`, `1.5h`; a bare number is seconds; siege's `1M`, `2H`, `30S` too.
///
/// # Errors
/// A description of what is expected.
pub fn duration(text: &str) -> Result<Duration, String> {
    let seconds = seconds(text.trim()).ok_or_else(|| {
        format!("{text:?} is not a duration: expected 30s, 500ms, 1m30s or 2h; a bare number is seconds")
    })?;
    if seconds > LONGEST {
        return Err(format!("{text:?} is more than a year"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn seconds(text: &str) -> Option<f64> {
    if let Some(bare) = number(text) {
        return Some(bare);
    }
    let mut rest = text;
    let mut sum = 0.0;
    let mut last = f64::INFINITY;
    while !rest.is_empty() {
        let (amount, unit, behind) = part(rest)?;
        let unit = unit_seconds(unit)?;
        // Units must decrease: 30s1m and 1m1m are typing errors.
        if unit >= last {
            return None;
        }
        sum += amount * unit;
        last = unit;
        rest = behind;
    }
    (last < f64::INFINITY).then_some(sum)
}

/// Returns the seconds per unit of time. Accepts either case, because siege uses upper case.
pub(super) fn unit_seconds(unit: &str) -> Option<f64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "hour" | "hours" => 3_600.0,
        "d" | "day" | "days" => 86_400.0,
        _ => return None,
    })
}

/// Splits `1m30s` into 1, `m`, `30s`.
fn part(text: &str) -> Option<(f64, &str, &str)> {
    let text = text.trim_start();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (amount, rest) = text.split_at(digits);
    let letters = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (unit, behind) = rest.split_at(letters);
    Some((number(amount)?, unit.trim(), behind))
}

/// Parses a plain decimal number: no sign, no exponent, no infinity.
pub(super) fn number(text: &str) -> Option<f64> {
    let ends = [text.bytes().next(), text.bytes().last()];
    let plain = ends.iter().all(|end| end.is_some_and(|byte| byte.is_ascii_digit()))
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if plain { text.parse().ok().filter(|number: &f64| number.is_finite()) } else { None }
}

/// Parses a count: `600`, `10_000`, `10k`, `1M`.
///
/// # Errors
/// A description of what is expected.
pub fn count(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("{text:?} is not a count: expected a whole number of at least 1, such as 600, 10k or 1M");
    let plain = text.trim().replace('_', "");
    let (digits, factor) = match plain.char_indices().last() {
        Some((at, 'k' | 'K')) => (&plain[..at], 1e3),
        Some((at, 'M')) => (&plain[..at], 1e6),
        _ => (plain.as_str(), 1.0),
    };
    let value = number(digits).ok_or_else(wrong)? * factor;
    if !(1.0..=1e15).contains(&value) || value.fract() != 0.0 {
        return Err(wrong());
    }
    Ok(value as u64)
}

/// Parses a size in bytes: `512`, `64KiB`, `10MB`.
///
/// # Errors
/// A description of what is expected.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "{text:?} is not a size: expected bytes, or a number with KB, MB, GB, KiB, MiB or GiB, such as 64KiB"
        )
    };
    let (amount, unit, rest) = part(text.trim()).ok_or_else(wrong)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(wrong()),
    };
    let bytes = amount * factor;
    if !rest.is_empty() || bytes > 1e15 || bytes.fract() != 0.0 {
        return Err(wrong());
    }
    Ok(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations() {
        for (text, ms) in [
            ("60s", 60_000),
            ("1m30s", 90_000),
            ("1m 30s", 90_000),
            ("500ms", 500),
            ("2", 2_000),
            ("0.25", 250),
            ("1M", 60_000),
            ("1H", 3_600_000),
            ("30S", 30_000),
            ("1.5h", 5_400_000),
            ("1h2m3s4ms", 3_723_004),
            ("0", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in [
            "",
            "s",
            "1x",
            "-1s",
            "1s1m",
            "1m1m",
            "1e3",
            "inf",
            "NaN",
            "1..5s",
            ".",
            "400d",
            "99999999999999999999",
            "1m30",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(duration("soon").unwrap_err().contains("1m30s"));
    }

    #[test]
    fn counts_and_sizes() {
        for (text, number) in
            [("1", 1), ("600", 600), ("10_000", 10_000), ("10k", 10_000), ("1.5k", 1_500), ("1M", 1_000_000)]
        {
            assert_eq!(count(text), Ok(number), "{text}");
        }
        for text in ["0", "-1", "1.5", "k", "", "1e3", "1 2", "1G"] {
            assert!(count(text).is_err(), "{text}");
        }
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("64KiB", 65_536),
            ("10MB", 10_000_000),
            ("1.5 kB", 1_500),
            ("1GiB", 1 << 30),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "KB", "1.5", "10 apples", "1KB2", "-1"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_accepted_or_rejected(text in ".{0,20}") {
            let _ = (duration(&text), count(&text), size(&text));
        }

        #[test]
        fn formatted_durations_are_parsed_back(h in 0u64..100, m in 0u64..60, s in 0u64..60, ms in 0u64..1000) {
            let wanted = Duration::from_millis(((h * 60 + m) * 60 + s) * 1000 + ms);
            let read = duration(&format!("{h}h{m}m{s}s{ms}ms")).unwrap();
            prop_assert!(read.abs_diff(wanted) < Duration::from_micros(1));
        }
    }
}
