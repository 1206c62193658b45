//! Counts: `600`, `10_000`, `10,000`, `10k`, `1.5k`, `1M`, `1e3`.

use crate::number::{Decimal, exponent, split};
use crate::{Mistake, OrMistake};

/// Reads a whole number.
///
/// # Errors
/// The text is no whole number; `10m` is refused, because it may be thousands of a thousandth or millions.
pub fn parse(text: &str) -> Result<u64, Mistake> {
    let (number, rest) = split(text);
    if rest == "m" {
        return Err(Mistake::default().near(Some(format!("{number}M"))));
    }
    let (factor, rest) = exponent(rest).or_else(|| multiple(rest)).unwrap_or((1, rest));
    if !rest.is_empty() {
        return Err(Mistake::default());
    }
    Decimal::read(number)?.times(factor).or_mistake()
}

/// Splits `k` or `M` off the beginning.
pub(crate) fn multiple(rest: &str) -> Option<(u64, &str)> {
    let (factor, rest) = match rest.strip_prefix(['k', 'K']) {
        Some(rest) => (1_000, rest),
        None => (1_000_000, rest.strip_prefix('M')?),
    };
    Some((factor, rest.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_as_people_write_them() {
        for (text, number) in [
            ("0", 0),
            (" 600 ", 600),
            ("10_000", 10_000),
            ("10,000", 10_000),
            ("10k", 10_000),
            ("1.5 K", 1_500),
            ("1M", 1_000_000),
            ("1e3", 1_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(number), "{text}");
        }
        for text in
            ["", "-1", "+1", "1.5", "k", "1 2", "1G", "1e", "1e99", "18446744073709551616", "1__0", "1,00,0"]
        {
            assert_eq!(parse(text), Err(Mistake::default()), "{text}");
        }
        assert_eq!(parse("10m").unwrap_err().nearest.as_deref(), Some("10M"));
        assert_eq!(parse("1,5").unwrap_err().expected.as_deref(), Some("1.5 or 15: 1,5 may be either"));
    }

    proptest! {
        #[test]
        fn a_number_with_or_without_commas_is_read_back(number in any::<u64>()) {
            prop_assert_eq!(parse(&number.to_string()), Ok(number));
            prop_assert_eq!(parse(&crate::people::grouped(number)), Ok(number));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,20}", near in "[0-9.,_kMe ]{0,12}") {
            let _ = (parse(&text), parse(&near));
        }
    }
}
