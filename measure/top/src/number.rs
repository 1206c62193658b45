//! Numbers for people: at most three significant digits below a thousand, with a suitable unit.

use std::time::Duration;

pub(crate) use text::people::{grouped, span};

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

/// Formats milliseconds with a suitable unit: `0.12 ms`, `345 ms`, `1.23 s`, `2 min 5 s`.
pub(crate) fn time(ms: f64) -> String {
    match ms {
        ms if ms < 999.5 => format!("{} ms", significant(ms)),
        ms if ms < 99_950.0 => format!("{} s", significant(ms / 1_000.0)),
        ms => span(Duration::from_secs_f64((ms / 1_000.0).min(1e9))),
    }
}

/// Formats bytes with a suitable unit: `512 KiB`, `45.6 MiB`, `1.23 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    text::people::size(bytes as f64, significant)
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
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
        for (part, text) in [(0.0, "0 %"), (0.042, "4.2 %"), (0.43, "43 %"), (1.5, "150 %"), (0.0001, "0 %")]
        {
            assert_eq!(percent(part), text);
        }
    }
}
