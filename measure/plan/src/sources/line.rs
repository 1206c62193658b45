//! Parses access log lines: the time when a line was written, and the duration of the request.
//!
//! Formats: Apache's common and combined with times at the end (Firebrick's, Rack's and Puma's: seconds; nginx's with
//! `$request_time`, `$upstream_response_time`; Apache's `%D`: whole microseconds), and Firebrick's JSON lines.

use std::ops::Range;

use serde::Deserialize;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Line<'a> {
    /// The minute of writing, such as `20/Nov/2026:16:09` or `2026-11-20T16:09`.
    pub minute: &'a str,
    /// Seconds of that minute.
    pub second: u32,
    pub zone: &'a str,
    /// Time in the app in milliseconds: `Some(0)` if the request did not reach the app.
    pub app_ms: Option<f64>,
    /// Total time in milliseconds.
    pub total_ms: Option<f64>,
}

/// Parses a line; `None` if its format is unknown.
pub(super) fn read(text: &str) -> Option<Line<'_>> {
    let text = text.trim();
    if text.starts_with('{') { json(text) } else { apache(text) }
}

#[derive(Deserialize)]
struct Json<'a> {
    #[serde(borrow)]
    time: &'a str,
    app_ms: Option<f64>,
    total_ms: Option<f64>,
}

fn json(text: &str) -> Option<Line<'_>> {
    let json: Json<'_> = serde_json::from_str(text).ok()?;
    let time = json.time;
    let (minute, seconds) = (time.get(..16)?, time.get(16..19)?);
    let second = seconds.strip_prefix(':')?.parse().ok()?;
    let zone = time.get(19..)?.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    Some(Line { minute, second, zone, app_ms: sane(json.app_ms), total_ms: sane(json.total_ms) })
}

fn apache(text: &str) -> Option<Line<'_>> {
    let open = text.find('[')?;
    let time = text.get(open + 1..)?.split_once(']')?.0;
    // 20/Nov/2026:16:09:01 +0000
    let (minute, seconds) = (time.get(..17)?, time.get(17..20)?);
    let second = seconds.strip_prefix(':')?.parse().ok()?;
    let zone = time.get(20..)?.trim_start();
    let times = trailing(text.get(open..)?);
    let at = |index: usize| times.get(index).copied();
    // Firebrick's combined: total, queue, app. nginx: total, upstream.
    let (total_ms, app_ms) = match times.len() {
        0 => (None, None),
        1 => (at(0), None),
        2 => (at(0), at(1)),
        n => (at(n - 3), at(n - 1)),
    };
    Some(Line { minute, second, zone, app_ms: sane(app_ms), total_ms: sane(total_ms) })
}

/// Returns the times at the end of a line, in milliseconds: after the last quoted field, or after status and length.
fn trailing(text: &str) -> Vec<f64> {
    let Some(quote) = text.rfind('"') else { return Vec::new() };
    let words: Vec<&str> = text[quote + 1..].split_whitespace().collect();
    // Status and length follow the request line and are not times.
    let is_status =
        |word: &str| word.len() == 3 && word.bytes().all(|b| b.is_ascii_digit()) || word == "HIJACKED";
    let skipped = if words.first().is_some_and(|word| is_status(word)) { 2 } else { 0 };
    // nginx may name them: rt=0.012 urt="0.011".
    words
        .iter()
        .skip(skipped)
        .filter_map(|word| duration(word.rsplit_once('=').map_or(word, |(_, value)| value)))
        .collect()
}

/// Parses seconds with a decimal point, or whole microseconds; returns milliseconds.
fn duration(word: &str) -> Option<f64> {
    let digits = |range: Range<usize>| {
        word.get(range).is_some_and(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    let factor = match word.find('.') {
        Some(point) if digits(0..point) && digits(point + 1..word.len()) => 1_000.0,
        None if digits(0..word.len()) => 0.001,
        _ => return None,
    };
    word.parse::<f64>().ok().map(|number| number * factor)
}

/// Rejects invalid times, from clocks that were set back or fields without a value.
fn sane(ms: Option<f64>) -> Option<f64> {
    ms.filter(|ms| ms.is_finite() && *ms >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn times(text: &str) -> (Option<f64>, Option<f64>) {
        let line = read(text).unwrap_or_else(|| panic!("{text}"));
        (line.total_ms.map(f64::round), line.app_ms.map(f64::round))
    }

    const START: &str = r#"127.0.0.1 - - [20/Nov/2026:16:09:01 +0000] "GET /a HTTP/1.1" 200 12"#;

    #[test]
    fn common_formats() {
        let line = read(&format!("{START} 0.0120"))
            .map(|line| (line.minute.to_owned(), line.second, line.zone.to_owned()));
        assert_eq!(line, Some(("20/Nov/2026:16:09".to_owned(), 1, "+0000".to_owned())));
        assert_eq!(times(START), (None, None));
        assert_eq!(times(&format!("{START} 0.0120")), (Some(12.0), None));
        let combined = format!(r#"{START} "-" "curl/7.88 [en] 1.5""#);
        assert_eq!(times(&combined), (None, None));
        assert_eq!(times(&format!("{combined} 0.0300 0.0100 0.0200")), (Some(30.0), Some(20.0)));
        assert_eq!(times(&format!("{combined} 0.030")), (Some(30.0), None));
        assert_eq!(times(&format!("{combined} 0.030 0.020")), (Some(30.0), Some(20.0)));
        assert_eq!(times(&format!("{combined} rt=0.030 urt=-")), (Some(30.0), None));
        assert_eq!(times(&format!("{combined} 30000")), (Some(30.0), None));
        assert_eq!(times(r#"- - - [20/Nov/2026:16:09:01 +0000] "-" 400 - 0.0010"#), (Some(1.0), None));
    }

    #[test]
    fn json_lines() {
        let text = r#"{"time":"2026-11-20T16:09:01.123Z","method":"GET","path":"/","status":200,"queue_ms":1.0,"app_ms":20.5,"total_ms":22.0,"worker":0}"#;
        let line = read(text).unwrap();
        assert_eq!(
            (line.minute, line.second, line.zone, line.app_ms, line.total_ms),
            ("2026-11-20T16:09", 1, "Z", Some(20.5), Some(22.0))
        );
        assert!(read(r#"{"time":"yesterday"}"#).is_none());
        assert!(read("{").is_none());
    }

    proptest! {
        #[test]
        fn any_text_is_accepted_or_rejected(text in "\\PC{0,80}", tail in "[0-9. \"=-]{0,40}") {
            let _ = read(&text);
            let _ = read(&format!("{START}{tail}"));
            let _ = read(&format!("[{text}"));
            let _ = read(&format!(r#"{{"time":"{text}"}}"#));
        }
    }
}
