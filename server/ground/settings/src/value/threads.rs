//! `MIN:MAX` threads per worker.

use std::fmt;
use std::str::FromStr;

use text::digits;

use text::Mistake;

/// Threads per worker: `min` start at once, more up to `max` when they are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// At least 1, at most `max`.
    pub min: u16,
    /// 1 to [`Threads::MOST`].
    pub max: u16,
}

impl Threads {
    /// The most threads a worker may have.
    pub const MOST: u16 = 512;
}

impl FromStr for Threads {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<Threads, Mistake> {
        let (min, max) = text.split_once(':').unwrap_or((text, text));
        let bound = |text: &str| {
            let number = u16::try_from(digits(text)?).ok()?;
            (1..=Threads::MOST).contains(&number).then_some(number)
        };
        let (Some(min), Some(max)) = (bound(min), bound(max)) else { return Err(Mistake::default()) };
        if min > max {
            let nearest = Threads { min: max, max: min }.to_string();
            return Err(Mistake::expected("the minimum first, then the maximum").near(Some(nearest)));
        }
        Ok(Threads { min, max })
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_or_one_number() {
        assert_eq!("1:5".parse(), Ok(Threads { min: 1, max: 5 }));
        assert_eq!("4".parse(), Ok(Threads { min: 4, max: 4 }));
        for wrong in ["", "0", "0:3", "1:513", "1:", ":3", "a:b", "1:2:3", "-1:3", "70000"] {
            assert_eq!(wrong.parse::<Threads>(), Err(Mistake::default()), "{wrong}");
        }
        assert_eq!("5:1".parse::<Threads>().map_err(|m| m.nearest), Err(Some("1:5".into())));
    }
}
