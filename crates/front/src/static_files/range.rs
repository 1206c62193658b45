//! The Range field (RFC 9110 section 14.2), for one range of bytes. Pure.

/// What of a file is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Range {
    /// All of it: no range, one that we do not understand, or several at once, which need not be honoured.
    Full,
    /// From `first` to `last`, both included; inside of the file.
    Part { first: u64, last: u64 },
    /// Nothing that is there.
    Unsatisfiable,
}

/// Reads a field value for a file of `len` bytes.
pub(super) fn parse(value: &[u8], len: u64) -> Range {
    let Some((unit, set)) = value.trim_ascii().split_once_byte(b'=') else { return Range::Full };
    if !unit.eq_ignore_ascii_case(b"bytes") || set.contains(&b',') {
        return Range::Full;
    }
    let Some((first, last)) = set.trim_ascii().split_once_byte(b'-') else { return Range::Full };
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => part(first, last, len),
        (Some(first), None) if last.is_empty() => part(first, u64::MAX, len),
        (None, Some(count)) if first.is_empty() => match count.min(len) {
            0 => Range::Unsatisfiable,
            count => Range::Part { first: len - count, last: len - 1 },
        },
        _ => Range::Full,
    }
}

fn part(first: u64, last: u64, len: u64) -> Range {
    if first < len { Range::Part { first, last: last.min(len - 1) } } else { Range::Unsatisfiable }
}

/// Digits only; what is too large is as good as the largest.
fn number(digits: &[u8]) -> Option<u64> {
    let add = |sum: u64, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        Some(sum.saturating_mul(10).saturating_add(digit))
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

trait SplitOnce {
    fn split_once_byte(&self, at: u8) -> Option<(&[u8], &[u8])>;
}

impl SplitOnce for [u8] {
    fn split_once_byte(&self, at: u8) -> Option<(&[u8], &[u8])> {
        let place = self.iter().position(|&byte| byte == at)?;
        Some((&self[..place], &self[place + 1..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part_of_100(value: &str) -> Option<(u64, u64)> {
        match parse(value.as_bytes(), 100) {
            Range::Part { first, last } => Some((first, last)),
            Range::Full | Range::Unsatisfiable => None,
        }
    }

    #[test]
    fn single_ranges() {
        assert_eq!(part_of_100("bytes=0-0"), Some((0, 0)));
        assert_eq!(part_of_100("Bytes=10-19"), Some((10, 19)));
        assert_eq!(part_of_100("bytes=90-"), Some((90, 99)));
        assert_eq!(part_of_100("bytes=90-1000"), Some((90, 99)));
        assert_eq!(part_of_100("bytes=-5"), Some((95, 99)));
        assert_eq!(part_of_100("bytes=-500"), Some((0, 99)));
        assert_eq!(part_of_100("bytes=1-99999999999999999999999"), Some((1, 99)));
    }

    #[test]
    fn nothing_that_is_there() {
        for value in ["bytes=100-", "bytes=100-200", "bytes=-0", "bytes=99999999999999999999999-"] {
            assert_eq!(parse(value.as_bytes(), 100), Range::Unsatisfiable, "{value}");
        }
        assert_eq!([parse(b"bytes=0-", 0), parse(b"bytes=-1", 0)], [Range::Unsatisfiable; 2]);
    }

    #[test]
    fn what_is_not_understood_is_ignored() {
        let odd = [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=5-4",
            "bytes=0-1,2-3",
            "lines=0-1",
            "bytes=0x1-2",
            "bytes=+1-2",
            "bytes=1 - 2",
            "bytes=--1",
            "bytes=1-2-3",
            "bytes =0-1",
        ];
        for value in odd {
            assert_eq!(parse(value.as_bytes(), 100), Range::Full, "{value}");
        }
    }

    proptest! {
        #[test]
        fn parts_are_inside(value in "bytes=[0-9a-]{0,8}", len in 0_u64..5_000) {
            if let Range::Part { first, last } = parse(value.as_bytes(), len) {
                prop_assert!(first <= last && last < len);
            }
        }

        #[test]
        fn any_bytes_are_read(value: Vec<u8>, len: u64) {
            if let Range::Part { first, last } = parse(&value, len) {
                prop_assert!(first <= last && last < len);
            }
        }

        #[test]
        fn well_formed_ranges_mean_what_they_say(first in 0_u64..200, count in 1_u64..200, len in 1_u64..200) {
            let last = first + count - 1;
            let wanted: Vec<u64> = (first..=last).filter(|&byte| byte < len).collect();
            let found: Vec<u64> = match parse(format!("bytes={first}-{last}").as_bytes(), len) {
                Range::Part { first, last } => (first..=last).collect(),
                Range::Unsatisfiable => Vec::new(),
                Range::Full => panic!("it is well-formed"),
            };
            prop_assert_eq!(found, wanted);
        }
    }
}
