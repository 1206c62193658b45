//! Sizes in bytes: `65536`, `64KiB`, `50m`, `512Mi`, `10MB`, `1.5GiB`, `1e6`.

use crate::number::{Decimal, exponent, split};
use crate::{Mistake, OrMistake};

/// The meaning of a unit of one letter, such as `k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Letter {
    /// 1024 bytes, as for nginx and systemd.
    Binary,
    /// 1000 bytes, as for load generators.
    Decimal,
}

const PREFIXES: &str = "kmgtp";

/// Reads a size. `KiB` and `Ki` are 1024 bytes, `kB` is 1000; case does not matter.
///
/// # Errors
/// The text is no size, or not a whole number of bytes below 2^64.
pub fn parse(text: &str, letter: Letter) -> Result<u64, Mistake> {
    let (number, rest) = split(text);
    let (power, unit) = exponent(rest).unwrap_or((1, rest));
    let factor = factor(&unit.to_ascii_lowercase(), letter).and_then(|factor| factor.checked_mul(power));
    let factor = factor.or_mistake()?;
    Decimal::read(number)?.times(factor).or_mistake()
}

fn factor(unit: &str, letter: Letter) -> Option<u64> {
    if ["", "b", "byte", "bytes"].contains(&unit) {
        return Some(1);
    }
    let power = PREFIXES.find(unit.chars().next()?)? as u32 + 1;
    match (&unit[1..], letter) {
        ("i" | "ib", _) | ("", Letter::Binary) => Some(1_024u64.pow(power)),
        ("b", _) | ("", Letter::Decimal) => Some(1_000u64.pow(power)),
        _ => None,
    }
}

/// Returns the shortest exact form: `64KiB`, `1000`.
pub fn exact(bytes: u64) -> String {
    const SCALES: [(u64, &str); 5] =
        [(1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match SCALES.iter().find(|(scale, _)| bytes >= *scale && bytes.is_multiple_of(*scale)) {
        Some((scale, name)) => format!("{}{name}", bytes / scale),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn size(text: &str) -> Option<u64> {
        parse(text, Letter::Binary).ok()
    }

    #[test]
    fn sizes_take_binary_and_decimal_units() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64KiB", 65_536),
            ("64 kib", 65_536),
            ("50m", 50 << 20),
            ("512Mi", 512 << 20),
            ("1g", 1 << 30),
            ("10MB", 10_000_000),
            ("1.5GiB", 3 << 29),
            ("1.5 kB", 1_500),
            ("512 bytes", 512),
            ("1e3", 1_000),
            ("1e3k", 1_024_000),
            ("1,024", 1_024),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        assert_eq!(
            ["10k", "10Ki", "10kB"].map(|text| parse(text, Letter::Decimal)),
            [10_000, 10_240, 10_000].map(Ok)
        );
        for wrong in [
            "",
            "KiB",
            "-1",
            "+1",
            "1.5",
            "1QB",
            "18446744073709551616",
            "99999999999TiB",
            "1 2",
            "1KB2",
            "µ",
            "1µ",
        ] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
        assert!(parse("1,5m", Letter::Binary).unwrap_err().expected.unwrap().contains("1.5 or 15"));
    }

    #[test]
    fn sizes_are_written_shortest() {
        assert_eq!([65_536, 1 << 30, 1_000, 0].map(exact), ["64KiB", "1GiB", "1000", "0"]);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(bytes in any::<u64>(), shift in 0..60u32) {
            for bytes in [bytes, bytes >> shift << shift] {
                prop_assert_eq!(size(&exact(bytes)), Some(bytes));
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,20}", near in "[0-9.,e]{1,8} ?[kmgtpbie]{0,4}") {
            let _ = (size(&text), size(&near));
        }
    }
}
