//! Sizes, times and numbers for people: rounded, with a suitable unit.
//!
//! Contract: three significant digits, and at most six decimals. [`figure`] drops zeros at the end, for
//! sentences; [`padded`] keeps them, for columns.

use std::time::Duration;

/// Adds thousands separators: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Adds thousands separators to a fixed number of decimals: `-1,234.5`.
pub fn decimals(value: f64, places: usize) -> String {
    let text = format!("{:.places$}", value.abs());
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let sign = if value < 0.0 && text.bytes().any(|digit| (b'1'..=b'9').contains(&digit)) { "-" } else { "" };
    // A number beyond 2^64 keeps its digits, without separators.
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), grouped);
    format!("{sign}{whole}{rest}")
}

/// Rounds to three significant digits: `0.0123`, `1.5`, `143`, `123,000`.
pub fn figure(value: f64) -> String {
    let text = padded(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Rounds to three significant digits and keeps zeros at the end: `1.50`, `45.0`.
pub fn padded(value: f64) -> String {
    let magnitude = if value == 0.0 { return "0".to_owned() } else { value.abs().log10().floor() };
    if magnitude >= 2.0 {
        let unit = 10f64.powf(magnitude - 2.0);
        return decimals((value / unit).round() * unit, 0);
    }
    let places = (2.0 - magnitude).min(6.0) as usize;
    // 9.996 is 10.0, not 10.00.
    let is_shorter =
        format!("{value:.places$}").parse().is_ok_and(|read: f64| read.abs() >= 10f64.powf(magnitude + 1.0));
    decimals(value, places - usize::from(is_shorter && magnitude >= -4.0))
}

/// Formats bytes in the largest unit that leaves less than 1000, with a formatter for the number: `21 MiB`.
pub fn size(bytes: f64, number: impl Fn(f64) -> String) -> String {
    let (mut unit, mut scaled) = ("B", bytes);
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        if scaled.abs() < if unit == "B" { 1_024.0 } else { 999.5 } {
            break;
        }
        (unit, scaled) = (next, scaled / 1_024.0);
    }
    if unit == "B" { format!("{bytes:.0} B") } else { format!("{} {unit}", number(scaled)) }
}

/// Formats a span in its two largest units: `45 s`, `12 min 3 s`, `3 h 12 min`, `2 d 4 h`.
pub fn span(time: Duration) -> String {
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

/// Wraps `text` to `width`. The indentation of the first line is kept; further lines are indented by `indent` more.
pub fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let words = text.trim_start();
    let blanks = text.len() - words.len();
    let mut lines: Vec<String> = Vec::new();
    let mut line = " ".repeat(blanks);
    let mut empty = true;
    for word in words.split(' ') {
        if !empty && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, " ".repeat(blanks + indent)));
        } else if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    lines.push(line);
    lines.join("\n")
}

/// Shortens a text that has more than `longest` characters.
pub fn shortened(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_not_broken() {
        assert_eq!(wrapped("one two three four", 9, 2), "one two\n  three\n  four");
        assert_eq!(wrapped("  one two three", 9, 1), "  one two\n   three");
        assert_eq!(wrapped("unbreakable", 3, 2), "unbreakable");
        assert_eq!(wrapped("", 3, 2), "");
    }

    #[test]
    fn three_significant_digits() {
        let values = [
            0.0, 0.001_234, 0.0123, 0.5, 1.999_9, 7.126, 22.857, 142.857, 999.6, 6_250.0, 123_456.0, -4.5,
            99.96,
        ];
        assert_eq!(
            values.map(figure),
            [
                "0", "0.00123", "0.0123", "0.5", "2", "7.13", "22.9", "143", "1,000", "6,250", "123,000",
                "-4.5", "100"
            ]
        );
        assert_eq!([1.234, 9.996, 45.0, 99.96, 0.5].map(padded), ["1.23", "10.0", "45.0", "100", "0.500"]);
        assert_eq!([-0.04, -1_234.56].map(|value| decimals(value, 1)), ["0.0", "-1,234.6"]);
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn units_fit_the_value() {
        let sizes = [0.0, 1_023.0, 2_048.0, 45_000_000.0, 1_363_148_800.0, u64::MAX as f64];
        assert_eq!(
            sizes.map(|bytes| size(bytes, figure)),
            ["0 B", "1023 B", "2 KiB", "42.9 MiB", "1.27 GiB", "16 EiB"]
        );
        let spans = [45, 60, 723, 11_520, 187_200].map(|seconds| span(Duration::from_secs(seconds)));
        assert_eq!(spans, ["45 s", "1 min", "12 min 3 s", "3 h 12 min", "2 d 4 h"]);
    }

    proptest! {
        #[test]
        fn a_figure_is_within_half_a_percent(value in 1e-4f64..1e90) {
            for text in [figure(value), padded(value)] {
                let read: f64 = text.replace(',', "").parse().unwrap();
                prop_assert!((read / value - 1.0).abs() <= 0.005 + 1e-9, "{value}: {text}");
            }
        }
    }
}
