//! Numbers for people: units, at most three significant digits, and fractions in words.

/// Formats at most three significant digits, with thousands separators.
pub fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "infinite".to_owned();
    }
    let size = value.abs();
    if size >= 999.5 {
        let digits = size.log10().floor() as i32 - 2;
        let step = 10_f64.powi(digits);
        return grouped((value / step).round() * step);
    }
    let places = match size {
        s if s >= 99.95 || s == 0.0 => 0,
        s if s >= 9.995 => 1,
        s if s >= 0.9995 => 2,
        s if s >= 0.0995 => 3,
        s if s >= 0.00995 => 4,
        _ => 5,
    };
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
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
    const MIB: f64 = 1_048_576.0;
    match bytes {
        bytes if bytes >= 1_024.0 * MIB => format!("{} GiB", figure(bytes / 1_024.0 / MIB)),
        bytes if bytes >= 0.1 * MIB => format!("{} MiB", figure(bytes / MIB)),
        bytes if bytes >= 1_024.0 => format!("{} KiB", figure(bytes / 1_024.0)),
        bytes => format!("{} bytes", figure(bytes)),
    }
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
pub fn whole(number: u64) -> String {
    grouped(number as f64)
}

/// Writes `1 process`, `2 processes`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number as f64), if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_significant_digits() {
        let texts =
            [0.0, 0.001234, 0.0123, 0.5, 1.0, 7.126, 22.857, 142.857, 999.6, 6_250.0, 123_456.0, -4.5, 99.96];
        let texts: Vec<String> = texts.into_iter().map(figure).collect();
        assert_eq!(
            texts,
            [
                "0", "0.00123", "0.0123", "0.5", "1", "7.13", "22.9", "143", "1,000", "6,250", "123,000",
                "-4.5", "100"
            ]
        );
    }

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
