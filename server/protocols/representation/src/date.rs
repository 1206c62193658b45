//! Dates of header fields (RFC 9110 section 5.6.7): of conditions, of kept responses.

use std::time::SystemTime;

/// Parses a date in one of the three formats. Letters may have any case, because some servers write names in
/// another one.
pub fn parse(value: &[u8]) -> Option<SystemTime> {
    let text = std::str::from_utf8(value).ok()?.trim();
    if let Ok(date) = httpdate::parse_http_date(text) {
        return Some(date);
    }
    let mut usual = String::with_capacity(text.len());
    let mut inside = false;
    for letter in text.chars() {
        usual.push(if inside { letter.to_ascii_lowercase() } else { letter.to_ascii_uppercase() });
        inside = letter.is_ascii_alphabetic();
    }
    let usual = usual.strip_suffix("Gmt").map(|start| format!("{start}GMT")).unwrap_or(usual);
    httpdate::parse_http_date(&usual).ok().or_else(|| with_right_weekday(&usual))
}

/// Parses a date with the wrong weekday, which is redundant.
fn with_right_weekday(text: &str) -> Option<SystemTime> {
    const SHORT: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    let written = SHORT.iter().find(|name| text.starts_with(*name))?;
    let rest = text[written.len()..].trim_start_matches(|letter: char| letter.is_ascii_lowercase());
    // The long names of RFC 850 are left out: their dates have two-digit years, and are parsed with any
    // weekday.
    let dates = SHORT.iter().map(|name| httpdate::parse_http_date(&format!("{name}{rest}")));
    dates.filter_map(Result::ok).next()
}

/// Formats a date in the preferred format.
pub fn format(date: SystemTime) -> String {
    httpdate::fmt_http_date(date)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn all_formats_in_any_case_are_read() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "sun, 06 nov 1994 08:49:37 gmt",
            "SUN, 06 NOV 1994 08:49:37 GMT",
            "Thu, 06 Nov 1994 08:49:37 GMT",
            "Thu Nov  6 08:49:37 1994",
        ] {
            assert_eq!(
                parse(text.as_bytes()).map(|date| date.duration_since(UNIX_EPOCH).unwrap().as_secs()),
                Some(784_111_777),
                "{text}"
            );
        }
    }

    #[test]
    fn other_texts_are_no_dates() {
        for text in [
            "",
            "0",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 AEST",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun 06 Nov 1994 08:49:37 GMT",
            "Sun, 06  Nov  1994 08:49:37 GMT",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08.49.37 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
