//! Sets of status codes: `200`, `200,300-399`, `2xx`.

/// Parses ranges of statuses, both ends included, for [`crate::scenario::Checks`].
///
/// # Errors
/// The wrong word, and a description of what is expected.
pub fn statuses(text: &str) -> Result<Vec<(u16, u16)>, String> {
    text.split(',').map(|word| range(word.trim())).collect()
}

fn range(word: &str) -> Result<(u16, u16), String> {
    let wrong = || format!("{word:?} is not a status: expected 200, 300-399 or 2xx, separated by commas");
    if let [class @ b'1'..=b'5', b'x' | b'X', b'x' | b'X'] = word.as_bytes() {
        let hundreds = u16::from(class - b'0') * 100;
        return Ok((hundreds, hundreds + 99));
    }
    let (from, to) = word.split_once('-').unwrap_or((word, word));
    let (from, to) = (code(from).ok_or_else(wrong)?, code(to).ok_or_else(wrong)?);
    if from > to {
        return Err(format!("{word:?} is reversed: expected {to}-{from}"));
    }
    Ok((from, to))
}

fn code(text: &str) -> Option<u16> {
    let text = text.trim();
    let digits = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok().filter(|code| (100..=999).contains(code)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sets() {
        assert_eq!(statuses("200,300-399, 2xx"), Ok(vec![(200, 200), (300, 399), (200, 299)]));
        assert_eq!(statuses("5XX"), Ok(vec![(500, 599)]));
        for text in ["", "200,", "20", "2000", "6xx", "2x", "399-300", "abc", "+20", "099", "200-"] {
            assert!(statuses(text).is_err(), "{text}");
        }
        assert!(statuses("399-300").unwrap_err().contains("300-399"));
    }

    proptest! {
        #[test]
        fn any_text_is_accepted_or_rejected(text in "[0-9xX, -]{0,20}") {
            for (from, to) in statuses(&text).unwrap_or_default() {
                prop_assert!((100..=999).contains(&from) && from <= to && to <= 999);
            }
        }
    }
}
