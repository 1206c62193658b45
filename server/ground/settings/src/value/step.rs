//! The number of workers that a reload replaces at a time: fixed, or a percentage of the workers.

use std::fmt;
use std::str::FromStr;

use text::digits;

use text::Mistake;

/// A number of workers, fixed or relative to the current number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A fixed number, 1 to [`Step::MOST`].
    Workers(u32),
    /// A percentage of the workers, rounded up; 1 to 100.
    Percent(u32),
}

impl Step {
    /// The largest fixed number.
    pub const MOST: u32 = 1_000;

    /// Returns the number for `workers` workers: at least 1, and at most all of them.
    pub fn of(self, workers: usize) -> usize {
        let number = match self {
            Step::Workers(number) => number as usize,
            Step::Percent(percent) => workers.saturating_mul(percent as usize).div_ceil(100),
        };
        number.clamp(1, workers.max(1))
    }
}

impl FromStr for Step {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<Step, Mistake> {
        let number = |text: &str, most: u32| {
            let number = u32::try_from(digits(text).unwrap_or_default()).unwrap_or_default();
            if (1..=most).contains(&number) { Ok(number) } else { Err(Mistake::default()) }
        };
        match text.strip_suffix('%') {
            Some(percent) => number(percent.trim_end(), 100).map(Step::Percent),
            None => number(text, Step::MOST).map(Step::Workers),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Workers(number) => write!(f, "{number}"),
            Step::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_or_a_percentage() {
        for (text, step) in
            [("1", Step::Workers(1)), ("25%", Step::Percent(25)), ("100 %", Step::Percent(100))]
        {
            assert_eq!(text.parse(), Ok(step), "{text}");
        }
        for wrong in ["", "0", "0%", "101%", "%", "-1", "1.5", "25 percent", "1001", "99999999999999999999"] {
            assert_eq!(wrong.parse::<Step>(), Err(Mistake::default()), "{wrong}");
        }
    }

    #[test]
    fn a_percentage_is_rounded_up() {
        assert_eq!(Step::Percent(25).of(8), 2);
        assert_eq!(Step::Percent(25).of(9), 3);
        assert_eq!(Step::Percent(1).of(3), 1);
        assert_eq!(Step::Workers(4).of(2), 2);
    }

    proptest! {
        #[test]
        fn a_step_moves_and_is_no_more_than_all(number in 1u32..=1000, percent in 1u32..=100, workers in 1usize..500) {
            for step in [Step::Workers(number), Step::Percent(percent)] {
                prop_assert!((1..=workers).contains(&step.of(workers)));
                prop_assert_eq!(step.to_string().parse::<Step>(), Ok(step));
            }
        }
    }
}
