//! The number of requests after which a worker becomes the next template.

use crate::raw::Raw;
use text::Mistake;

/// One number per generation. The last one applies to all later generations, unless it is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReforkAfter(Vec<u64>);

impl ReforkAfter {
    /// Returns the number of requests that a worker must have served for the next refork after `done`
    /// reforks; `None`: no more reforks.
    pub fn threshold(&self, done: usize) -> Option<u64> {
        self.0.get(done).or(self.0.last()).copied().filter(|requests| *requests > 0)
    }

    /// Reads a number, a list of numbers, or `off`.
    ///
    /// # Errors
    /// The value is something else, or has a 0 that is not the last number.
    pub(crate) fn read(raw: &Raw) -> Result<ReforkAfter, Mistake> {
        if raw.text() == Some("off") || *raw == Raw::Switch(false) {
            return Ok(ReforkAfter::default());
        }
        let number = |part: &Raw| match part {
            Raw::Switch(false) => Ok(0),
            raw => raw.whole(text::count::parse),
        };
        let steps = raw.parts().iter().map(number).collect::<Result<Vec<u64>, Mistake>>()?;
        if steps.iter().rev().skip(1).any(|requests| *requests == 0) {
            return Err(Mistake::expected("0 only at the end, where it ends reforking"));
        }
        Ok(ReforkAfter(steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ReforkAfter, Mistake> {
        ReforkAfter::read(&Raw::Word(text.to_owned()))
    }

    #[test]
    fn each_generation_has_its_figure_and_the_last_one_repeats() {
        let after = read("50, 1000").unwrap();
        assert_eq!(
            [0, 1, 2, 99].map(|done| after.threshold(done)),
            [Some(50), Some(1000), Some(1000), Some(1000)]
        );
        let list = Raw::List(vec![Raw::Integer(50), Raw::Integer(1000)]);
        assert_eq!(ReforkAfter::read(&list), Ok(after));
        assert_eq!(ReforkAfter::read(&Raw::Integer(7)).unwrap().threshold(3), Some(7));
    }

    #[test]
    fn zero_at_the_end_ends_it() {
        let after = read("50,0").unwrap();
        assert_eq!([0, 1, 2].map(|done| after.threshold(done)), [Some(50), None, None]);
        let list = Raw::List(vec![Raw::Integer(50), Raw::Switch(false)]);
        assert_eq!(ReforkAfter::read(&list), Ok(after));
    }

    #[test]
    fn off_in_all_spellings() {
        for raw in [Raw::Switch(false), Raw::Integer(0), Raw::Text("off".to_owned()), Raw::List(vec![])] {
            assert_eq!(ReforkAfter::read(&raw).unwrap().threshold(0), None, "{raw:?}");
        }
        assert_eq!(["off", "0"].map(|text| read(text).unwrap().threshold(0)), [None, None]);
    }

    #[test]
    fn what_is_no_list_of_numbers_is_refused() {
        for wrong in ["x", "1,-2", "1.5", "0,5", "50,0,100"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(ReforkAfter::read(&Raw::Integer(-1)).is_err());
        assert!(ReforkAfter::read(&Raw::Switch(true)).is_err());
    }
}
