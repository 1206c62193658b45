//! Number formatting: rounding, thousands separators, and round steps.

use text::people;

/// The limits beyond which numbers are shown with a power of ten.
const LARGEST_WRITTEN_OUT: f64 = 1e15;
const SMALLEST_WRITTEN_OUT: f64 = 1e-4;

/// Formats at most three significant digits, without trailing zeros.
pub(crate) fn significant(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        return "0".to_owned();
    }
    if !(SMALLEST_WRITTEN_OUT..LARGEST_WRITTEN_OUT).contains(&size) {
        let text = format!("{value:.2e}").replace('-', "−");
        return text.replace(".00e", "e");
    }
    people::figure(value).replace('-', "−")
}

/// Formats a fixed number of decimals, with thousands separators.
pub(crate) fn grouped(value: f64, decimals: usize) -> String {
    people::decimals(value, decimals).replace('-', "−")
}

/// The rule for round steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Steps {
    /// 1, 2, 5, 10… times this value.
    Decimal(f64),
    /// The same steps, at least 1.
    Whole,
    /// Steps in seconds, minutes and hours.
    Time,
}

const TIME_STEPS: [f64; 17] = [
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10_800.0,
    21_600.0, 43_200.0,
];

impl Steps {
    /// Returns the smallest round step that is at least `rough`, which is above 0.
    pub fn at_least(self, rough: f64) -> f64 {
        match self {
            Steps::Decimal(unit) => decimal(rough / unit) * unit,
            Steps::Whole => decimal(rough).max(1.0),
            Steps::Time if rough < 1.0 => decimal(rough),
            Steps::Time => TIME_STEPS
                .into_iter()
                .find(|step| *step >= rough)
                .unwrap_or_else(|| decimal(rough / 86_400.0) * 86_400.0),
        }
    }
}

fn decimal(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    // With a small tolerance, because 0.1 / 0.1 could count as more than one.
    let rest = rough / power * (1.0 - 1e-9);
    power * [1.0, 2.0, 5.0].into_iter().find(|step| *step >= rest).unwrap_or(10.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn digits() {
        assert_eq!(significant(0.012_345), "0.0123");
        assert_eq!(significant(1.999_9), "2");
        assert_eq!(significant(123_456.0), "123,000");
        assert_eq!(significant(1.5e300), "1.50e300");
        assert_eq!(significant(-2e-9), "−2e−9");
        assert_eq!(grouped(-0.04, 1), "0.0");
        assert_eq!(grouped(1_234_567.0, 0), "1,234,567");
    }

    #[test]
    fn round_steps() {
        assert_eq!(Steps::Decimal(1.0).at_least(0.3), 0.5);
        assert_eq!(Steps::Whole.at_least(0.3), 1.0);
        assert_eq!(Steps::Time.at_least(40.0), 60.0);
        assert_eq!(Steps::Decimal(1_048_576.0).at_least(15.0 * 1_048_576.0), 20.0 * 1_048_576.0);
    }

    proptest! {
        #[test]
        fn steps_are_large_enough(rough in 1e-90f64..1e90) {
            for steps in [Steps::Decimal(1.0), Steps::Decimal(1024.0), Steps::Whole, Steps::Time] {
                prop_assert!(steps.at_least(rough) >= rough * (1.0 - 1e-6));
            }
        }
    }
}
