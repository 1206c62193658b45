//! Numbers for people: at most three significant digits below a thousand, with a suitable unit.

use std::time::Duration;

/// Formats `0`, `0.042`, `1.23`, `45.6`, `789`, `12,345`.
pub(crate) fn significant(number: f64) -> String {
    if !number.is_finite() {
        return "–".to_owned();
    }
    let digits = match number.abs() {
        small if small < 0.000_5 => return "0".to_owned(),
        small if small < 0.995 => 3,
        small if small < 9.995 => 2,
        small if small < 99.95 => 1,
        _ => return grouped(number.round().max(0.0) as u64),
    };
    let text = format!("{number:.digits$}");
    // Trailing zeros are dropped: 0.500 becomes 0.5.
    if number.abs() < 0.995 { text.trim_end_matches('0').to_owned() } else { text }
}

/// Adds thousands separators: `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let (head, tail) = digits.split_at(first);
    let groups = tail.as_bytes().chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    let head = (!head.is_empty()).then(|| head.to_owned());
    head.into_iter().chain(groups).collect::<Vec<_>>().join(",")
}

/// Formats milliseconds with a suitable unit: `0.12 ms`, `345 ms`, `1.23 s`, `2 min 5 s`.
pub(crate) fn time(ms: f64) -> String {
    match ms {
        ms if ms < 999.5 => format!("{} ms", significant(ms)),
        ms if ms < 99_950.0 => format!("{} s", significant(ms / 1_000.0)),
        ms => span(Duration::from_secs_f64((ms / 1_000.0).min(1e9))),
    }
}

/// Formats a span: `45 s`, `12 min 3 s`, `3 h 12 min`, `2 d 4 h`.
pub(crate) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let two = |large: u64, unit: &str, small: u64, rest: &str| {
        if small == 0 { format!("{large} {unit}") } else { format!("{large} {unit} {small} {rest}") }
    };
    match seconds {
        0..=59 => format!("{seconds} s"),
        60..=3_599 => two(seconds / 60, "min", seconds % 60, "s"),
        3_600..=86_399 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// Formats bytes with a suitable unit: `512 KiB`, `45.6 MiB`, `1.23 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    let bytes = bytes as f64;
    let (number, unit) = match bytes {
        small if small < 1_024.0 => (small, "B"),
        small if small < 999.5 * 1_024.0 => (small / 1_024.0, "KiB"),
        small if small < 999.5 * 1_048_576.0 => (small / 1_048_576.0, "MiB"),
        large => (large / 1_073_741_824.0, "GiB"),
    };
    format!("{} {unit}", significant(number))
}

/// Formats a fraction in percent: `0 %`, `4.2 %`, `43 %`.
pub(crate) fn percent(part: f64) -> String {
    let percent = part * 100.0;
    if (0.05..9.95).contains(&percent) { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// Formats an interval: `500 ms`, `1 s`, `2 min`.
pub(crate) fn interval(time: Duration) -> String {
    match time.as_millis() {
        ms if ms % 60_000 == 0 => format!("{} min", ms / 60_000),
        ms if ms % 1_000 == 0 => format!("{} s", ms / 1_000),
        ms if ms < 1_000 => format!("{ms} ms"),
        ms => format!("{} s", ms as f64 / 1_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_significant_digits() {
        for (number, text) in [
            (0.0, "0"),
            (0.0001, "0"),
            (0.042, "0.042"),
            (0.5, "0.5"),
            (0.999, "1.00"),
            (1.234, "1.23"),
            (9.996, "10.0"),
            (45.67, "45.7"),
            (99.96, "100"),
            (789.4, "789"),
            (12_345.6, "12,346"),
            (1_234_567.0, "1,234,567"),
            (f64::NAN, "–"),
            (f64::INFINITY, "–"),
        ] {
            assert_eq!(significant(number), text, "{number}");
        }
    }

    #[test]
    fn times_have_a_suitable_unit() {
        for (ms, text) in [
            (0.0, "0 ms"),
            (0.12, "0.12 ms"),
            (345.0, "345 ms"),
            (999.7, "1.00 s"),
            (12_300.0, "12.3 s"),
            (125_000.0, "2 min 5 s"),
        ] {
            assert_eq!(time(ms), text);
        }
        for (seconds, text) in
            [(45, "45 s"), (60, "1 min"), (723, "12 min 3 s"), (11_520, "3 h 12 min"), (187_200, "2 d 4 h")]
        {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
        for (ms, text) in [(500, "500 ms"), (1_000, "1 s"), (1_500, "1.5 s"), (120_000, "2 min")] {
            assert_eq!(interval(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn bytes_and_percentages() {
        for (number, text) in [
            (0, "0 B"),
            (2_048, "2.00 KiB"),
            (45 << 20, "45.0 MiB"),
            (1_300 << 20, "1.27 GiB"),
            (u64::MAX, "17,179,869,184 GiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
        for (part, text) in [(0.0, "0 %"), (0.042, "4.2 %"), (0.43, "43 %"), (1.5, "150 %"), (0.0001, "0 %")]
        {
            assert_eq!(percent(part), text);
        }
    }
}
