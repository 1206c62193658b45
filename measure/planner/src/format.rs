//! Numbers for people: units, at most three significant digits, and fractions in words.

use text::people;

/// Formats at most three significant digits, with thousands separators.
pub fn figure(value: f64) -> String {
    if value.is_finite() { people::figure(value) } else { "infinite".to_owned() }
}

/// Formats milliseconds with a suitable unit: `7 ms`, `1.5 s`, `2.5 min`, `3 h`.
pub fn millis(ms: f64) -> String {
    match ms {
        ms if !ms.is_finite() => "infinite".to_owned(),
        ms if ms < 999.5 => format!("{} ms", figure(ms)),
        ms if ms < 120_000.0 => format!("{} s", figure(ms / 1_000.0)),
        ms if ms < 7_200_000.0 => format!("{} min", figure(ms / 60_000.0)),
        ms if ms < 172_800_000.0 => format!("{} h", figure(ms / 3_600_000.0)),
        ms => format!("{} days", figure(ms / 86_400_000.0)),
    }
}

/// Formats memory: `21 MiB`, `1.5 GiB`.
pub fn memory(bytes: f64) -> String {
    if bytes < 1_024.0 { format!("{} bytes", figure(bytes)) } else { people::size(bytes, figure) }
}

/// Formats a fraction in percent: `73 %`; values near 0 or 100 % are not rounded to it.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p <= 0.0 => "0 %".to_owned(),
        p if p < 0.01 => "less than 0.01 %".to_owned(),
        p if p < 10.0 => format!("{} %", figure((p * 100.0).round() / 100.0)),
        p if !(99.0..100.0).contains(&p) => format!("{p:.0} %"),
        p => format!("{} %", (p * 100.0).floor() / 100.0),
    }
}

/// Writes a ratio in words: `a fifth of`, `half`, `about`, `1.5 times`, `twice`. Goes before "the memory".
pub fn times(ratio: f64) -> String {
    const FRACTIONS: [(f64, &str); 11] = [
        (0.1, "a tenth of"),
        (0.125, "an eighth of"),
        (0.167, "a sixth of"),
        (0.2, "a fifth of"),
        (0.25, "a quarter of"),
        (0.333, "a third of"),
        (0.5, "half"),
        (0.667, "two thirds of"),
        (0.75, "three quarters of"),
        (0.9, "nine tenths of"),
        (1.0, "about"),
    ];
    if ratio < 0.085 || !ratio.is_finite() {
        return format!("{} of", percent(ratio));
    }
    if ratio > 1.05 {
        return if (1.95..2.05).contains(&ratio) {
            "twice".to_owned()
        } else {
            format!("{} times", (ratio * 10.0).round() / 10.0)
        };
    }
    let distance = |fraction: f64| (fraction / ratio).ln().abs();
    let nearest = FRACTIONS.into_iter().min_by(|a, b| distance(a.0).total_cmp(&distance(b.0)));
    nearest.map_or_else(|| format!("{} of", percent(ratio)), |(_, words)| words.to_owned())
}

/// Formats a whole number with thousands separators.
pub use text::people::grouped as whole;

/// Writes `1 process`, `2 processes`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", people::grouped(number), if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit_the_size() {
        assert_eq!(
            [millis(7.0), millis(1_500.0), millis(90_000.0), millis(150_000.0), millis(1e7)],
            ["7 ms", "1.5 s", "90 s", "2.5 min", "2.78 h"]
        );
        assert_eq!(
            [memory(22e6), memory(2e9), memory(500.0), memory(5_000.0)],
            ["21 MiB", "1.86 GiB", "500 bytes", "4.88 KiB"]
        );
        assert_eq!(
            [percent(0.0), percent(1e-6), percent(0.0437), percent(0.5), percent(0.9999), percent(1.0)],
            ["0 %", "less than 0.01 %", "4.37 %", "50 %", "99.99 %", "100 %"]
        );
        assert_eq!(
            [count(1, "worker", "workers"), count(2_000, "worker", "workers")],
            ["1 worker", "2,000 workers"]
        );
    }

    #[test]
    fn fractions_in_words() {
        assert_eq!(
            [times(0.2), times(0.49), times(1.02), times(1.52), times(2.0), times(0.02)],
            ["a fifth of", "half", "about", "1.5 times", "twice", "2 % of"]
        );
    }
}
