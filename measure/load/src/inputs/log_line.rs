//! Parses one line of an access log, in any format that is common with Ruby servers.
//!
//! Supported: Apache's common and combined format (also the default of nginx and Firebrick), Firebrick's JSON and JSON
//! with similar names, and Heroku's router log.

use jiff::Timestamp;
use jiff::fmt::strtime;
use text::percent::pair;

/// The parts of a line about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogLine {
    /// The time of writing, which is the end of the request; microseconds since 1970.
    pub at_us: i64,
    /// Whether the time has fractions of a second.
    pub fine: bool,
    /// Duration of the request in microseconds; 0 if unknown.
    pub took_us: i64,
    /// A method such as `GET`.
    pub method: String,
    /// Path and query as sent.
    pub target: String,
}

/// Parses lines. Caches the last date, because neighbouring lines usually have the same one.
#[derive(Debug, Default)]
pub(super) struct LineReader {
    date: String,
    date_us: i64,
}

impl LineReader {
    /// Parses a line in any known format; `None` if the format is unknown.
    pub(super) fn read(&mut self, line: &str) -> Option<LogLine> {
        let line = line.trim();
        if line.starts_with('{') {
            return json(line);
        }
        if line.contains(" method=") && line.contains(" path=") {
            return router(line);
        }
        self.apache(line)
    }

    fn apache(&mut self, line: &str) -> Option<LogLine> {
        let (_, rest) = line.split_once('[')?;
        let (date, rest) = rest.split_once(']')?;
        let (request, rest) = quoted(rest.split_once('"')?.1)?;
        let (method, target) = request_line(&request)?;
        let at_us = self.date(date)?;
        Some(LogLine { at_us, fine: false, took_us: took(rest).unwrap_or(0), method, target })
    }

    /// Parses `10/Oct/2000:13:55:36 -0700`, or RFC 3339, which some configurations use.
    fn date(&mut self, text: &str) -> Option<i64> {
        if self.date != text || text.is_empty() {
            let apache =
                strtime::parse("%d/%b/%Y:%H:%M:%S %z", text).and_then(|broken| broken.to_timestamp());
            let found = apache.ok().or_else(|| text.parse::<Timestamp>().ok())?;
            self.date_us = found.as_microsecond();
            self.date = text.to_owned();
        }
        Some(self.date_us)
    }
}

/// Returns the unescaped text up to the closing quote, and the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut out = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        match *bytes.get(at)? {
            b'"' => return Some((String::from_utf8(out).ok()?, &text[at + 1..])),
            b'\\' => {
                let (byte, length) = escape(&bytes[at + 1..])?;
                out.push(byte);
                at += 1 + length;
            }
            byte => {
                out.push(byte);
                at += 1;
            }
        }
    }
}

/// Returns the byte that an escape stands for, and its length after the backslash: `\"`, `\\`, `\x22`.
fn escape(text: &[u8]) -> Option<(u8, usize)> {
    match *text.first()? {
        b'x' => Some((pair(&text[1..])?, 3)),
        byte @ (b'"' | b'\\') => Some((byte, 1)),
        _ => None,
    }
}

/// Parses `GET /path HTTP/1.1`.
fn request_line(text: &str) -> Option<(String, String)> {
    let (method, rest) = text.split_once(' ')?;
    let target = rest.rsplit_once(" HTTP/").map_or(rest, |(target, _)| target);
    checked(method, target)
}

/// Returns method and target if they can be sent. Removes the host of an absolute target (sent to proxies).
fn checked(method: &str, target: &str) -> Option<(String, String)> {
    let plain = !method.is_empty()
        && method.len() <= 20
        && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    if !plain || target.is_empty() {
        return None;
    }
    let target = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains(['/', '?']) => {
            rest.find('/').map_or("/", |slash| &rest[slash..])
        }
        _ => target,
    };
    let sendable = target.starts_with('/') || (target == "*" && method == "OPTIONS");
    // Logs contain the requests of scanners; only bytes that are valid in a request target are sent again.
    let clean = target.bytes().all(|byte| byte.is_ascii_graphic());
    (sendable && clean).then(|| (method.to_owned(), target.to_owned()))
}

/// Returns the duration. Firebrick's own formats end in seconds with four decimals: the total; or the total,
/// the time in the queue and the time in the app.
fn took(rest: &str) -> Option<i64> {
    let numbers: Vec<&str> = rest.split(' ').rev().take_while(|word| four_digits(word)).collect();
    let total = match numbers[..] {
        [total] | [_, _, total] => total,
        _ => return None,
    };
    total.parse::<f64>().ok().map(|seconds| (seconds * 1e6) as i64)
}

fn four_digits(word: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    word.split_once('.').is_some_and(|(whole, part)| digits(whole) && part.len() == 4 && digits(part))
}

fn json(line: &str) -> Option<LogLine> {
    let found: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).ok()?;
    let text = |names: &[&str]| names.iter().find_map(|name| found.get(*name)?.as_str());
    let time = text(&["time", "timestamp", "@timestamp", "time_iso8601"])?;
    let path = text(&["path", "uri", "request_uri"])?;
    let target = match text(&["query"]) {
        Some(query) if !query.is_empty() && !path.contains('?') => format!("{path}?{query}"),
        _ => path.to_owned(),
    };
    let (method, target) = checked(text(&["method", "request_method"])?, &target)?;
    let took = found.get("total_ms").and_then(serde_json::Value::as_f64).unwrap_or(0.0);
    let (at_us, fine) = moment(time)?;
    Some(LogLine { at_us, fine, took_us: microseconds(took), method, target })
}

/// Parses an RFC 3339 time; also returns whether it has fractions of a second.
fn moment(text: &str) -> Option<(i64, bool)> {
    let at = text.parse::<Timestamp>().ok()?;
    Some((at.as_microsecond(), text.contains('.')))
}

fn microseconds(ms: f64) -> i64 {
    (ms * 1e3).clamp(0.0, 1e15) as i64
}

/// Parses `2026-01-31T12:00:00.042+00:00 heroku[router]: at=info method=GET path="/" … connect=1ms
/// service=18ms status=200`.
fn router(line: &str) -> Option<LogLine> {
    let (at_us, fine) = line.split(' ').find_map(moment)?;
    let value = |name: &str| {
        let (_, rest) = line.split_once(name)?;
        match rest.strip_prefix('"') {
            Some(rest) => quoted(rest).map(|(text, _)| text),
            None => Some(rest.split(' ').next().unwrap_or(rest).to_owned()),
        }
    };
    let (method, target) = checked(&value(" method=")?, &value(" path=")?)?;
    let ms =
        |name: &str| value(name).and_then(|text| text.strip_suffix("ms")?.parse::<f64>().ok()).unwrap_or(0.0);
    let took_us = microseconds(ms(" connect=") + ms(" service="));
    Some(LogLine { at_us, fine, took_us, method, target })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(line: &str) -> Option<LogLine> {
        LineReader::default().read(line)
    }

    fn line(at_us: i64, fine: bool, took_us: i64, method: &str, target: &str) -> Option<LogLine> {
        Some(LogLine { at_us, fine, took_us, method: method.to_owned(), target: target.to_owned() })
    }

    #[test]
    fn known_formats() {
        let noon = 1_769_860_800_000_000;
        let date = "[31/Jan/2026:12:00:00 +0000]";
        for (text, wanted) in [
            (format!("192.0.2.1 - - {date} \"GET /a?b=1 HTTP/1.1\" 200 2326"), line(noon, false, 0, "GET", "/a?b=1")),
            (format!("192.0.2.1 - joe {date} \"GET /a HTTP/1.1\" 200 2326 1.0215"), line(noon, false, 1_021_500, "GET", "/a")),
            (
                format!("::1 - - {date} \"POST /a HTTP/1.1\" 200 - \"-\" \"Moz (\\\"x\\\") 1.0\" 0.5000 0.0012 0.0200"),
                line(noon, false, 500_000, "POST", "/a"),
            ),
            (
                format!("192.0.2.1 - - {date} \"GET http://h:80/a HTTP/1.1\" 404 9 \"-\" \"curl/7.88.1\""),
                line(noon, false, 0, "GET", "/a"),
            ),
            (format!("h - - {date} \"GET /\\x22q\\x22 HTTP/1.0\" 200 1"), line(noon, false, 0, "GET", "/\"q\"")),
            (
                "{\"time\":\"2026-01-31T12:00:00.042Z\",\"method\":\"GET\",\"path\":\"/a%20b\",\"query\":\"q=1\",\"total_ms\":1.5}".to_owned(),
                line(noon + 42_000, true, 1_500, "GET", "/a%20b?q=1"),
            ),
            (
                "2026-01-31T12:00:00.042000+00:00 heroku[router]: at=info method=GET path=\"/x?y=z\" host=a.example dyno=web.1 \
                 connect=1ms service=18ms status=200 bytes=13"
                    .to_owned(),
                line(noon + 42_000, true, 19_000, "GET", "/x?y=z"),
            ),
            (
                "<158>1 2026-01-31T12:00:00+00:00 host heroku router - at=info method=HEAD path=\"/\" service=18ms".to_owned(),
                line(noon, false, 18_000, "HEAD", "/"),
            ),
        ] {
            assert_eq!(read(&text), wanted, "{text}");
        }
    }

    #[test]
    fn lines_without_a_request() {
        for text in [
            "",
            "hello",
            "h - - [31/Jan/2026:12:00:00 +0000] \"-\" 400 16",
            "h - - [31/Foo/2026:12:00:00 +0000] \"GET / HTTP/1.1\" 200 1",
            "h - - [31/Jan/2026:12:00:00 +0000] \"GET /a b HTTP/1.1\" 400 1",
            "h - - [31/Jan/2026:12:00:00 +0000] \"\\x16\\x03\\x01\" 400 1",
            "h - - [31/Jan/2026:12:00:00 +0000] \"CONNECT h:443 HTTP/1.1\" 400 1",
            "h - - [31/Jan/2026:12:00:00 +0000] \"GET / HTTP/1.1",
            "{\"time\":\"noon\",\"method\":\"GET\",\"path\":\"/\"}",
            "{\"time\":\"2026-01-31T12:00:00Z\",\"method\":null,\"path\":null}",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_date_is_cached_with_its_text() {
        let mut reader = LineReader::default();
        let mut at = |date: &str| {
            reader.read(&format!("h - - [{date}] \"GET / HTTP/1.1\" 200 1")).map(|line| line.at_us)
        };
        let first = at("31/Jan/2026:12:00:00 +0000").unwrap();
        assert_eq!(at("31/Jan/2026:12:00:00 +0000"), Some(first));
        assert_eq!(at("31/Jan/2026:12:00:01 +0000"), Some(first + 1_000_000));
        assert_eq!(at("31/Jan/2026:13:00:00 +0100"), Some(first));
        assert_eq!(at("nonsense"), None);
    }

    proptest! {
        #[test]
        fn any_line_is_accepted_or_rejected(text in "(\\{\"time\":\"2026-01-31T12:00:00Z\",\"method\":\"GET\",\"path\":\"|h - - \\[31/Jan/2026:12:00:00 \\+0000\\] \"GET |a method=GET path=)?.{0,40}") {
            if let Some(line) = read(&text) {
                prop_assert!(line.target.bytes().all(|byte| byte.is_ascii_graphic()) && line.took_us >= 0);
            }
        }
    }
}
