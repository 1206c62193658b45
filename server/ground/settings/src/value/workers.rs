//! `MIN:MAX` worker processes, or one number.

use std::fmt;
use std::str::FromStr;

use text::digits;

use text::Mistake;

/// A range of worker processes, from which the server chooses by load, or one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    /// At least 1, and at most `max`. The server starts this many.
    pub min: u32,
    /// At most [`Workers::MOST`].
    pub max: u32,
}

impl Workers {
    /// The largest number of workers.
    pub const MOST: u32 = 1024;

    /// Returns a range of one number.
    pub fn exactly(number: u32) -> Workers {
        Workers { min: number, max: number }
    }

    /// Returns whether the number follows the load.
    pub fn is_range(self) -> bool {
        self.min < self.max
    }
}

impl FromStr for Workers {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<Workers, Mistake> {
        let (min, max) = text.split_once(':').unwrap_or((text, text));
        let bound = |text: &str| {
            let number = u32::try_from(digits(text)?).ok()?;
            (1..=Workers::MOST).contains(&number).then_some(number)
        };
        let (Some(min), Some(max)) = (bound(min), bound(max)) else { return Err(Mistake::default()) };
        if min > max {
            let nearest = Workers { min: max, max: min }.to_string();
            return Err(Mistake::expected("the minimum first, then the maximum").near(Some(nearest)));
        }
        Ok(Workers { min, max })
    }
}

/// Writes `4` or `2:8`.
impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_range() { write!(f, "{}:{}", self.min, self.max) } else { write!(f, "{}", self.min) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_or_one_number() {
        assert_eq!("2:8".parse(), Ok(Workers { min: 2, max: 8 }));
        assert_eq!("4".parse(), Ok(Workers::exactly(4)));
        for wrong in ["", "0", "0:3", "1:1025", "1:", ":3", "a:b", "1:2:3", "-1:3", "2:auto", "5000000000"] {
            assert_eq!(wrong.parse::<Workers>(), Err(Mistake::default()), "{wrong}");
        }
        assert_eq!("8:2".parse::<Workers>().map_err(|m| m.nearest), Err(Some("2:8".into())));
        assert_eq!(["2:8", "3:3"].map(|text| text.parse::<Workers>().unwrap().to_string()), ["2:8", "3"]);
    }
}
