//! Reads a file of `firebrick record` as traffic: whole requests with their times, and what came in response.
//!
//! Contract: the file is outside bytes. A line that cannot be sent as it is (no JSON, an invalid field, a body that was
//! not kept) is counted and left out. A last line without its end, as of an interrupted recording, counts as such.

use std::collections::HashMap;
use std::io::{BufRead, Read};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use text::route;

use super::access_log::is_safe;
use crate::recorded::{Expected, Group, MOST_GROUPS, Recorded};

/// The beginning of the first line of such a file; keys are in alphabetical order or the kind comes first.
const KIND: &str = "\"kind\":\"firebrick record\"";
/// The longest line: a body of 256 KiB, escaped, and the fields.
const LONGEST_LINE: u64 = 4 << 20;
/// Fields of the connection, or that the load generator sets. Without `Accept-Encoding` the server does not compress, so that bodies
/// can be compared.
const LEFT_OUT: [&str; 13] = [
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "upgrade",
    "keep-alive",
    "te",
    "trailer",
    "expect",
    "accept-encoding",
    "http2-settings",
    "proxy-connection",
    "firebrick-timing",
];

/// The requests of a recording.
#[derive(Debug, Default)]
pub struct RecordedRequests {
    /// In the order in which they arrived.
    pub requests: Vec<RecordedRequest>,
    /// The time of each request, relative to the first, not decreasing.
    pub times: Vec<Duration>,
    /// The recorded responses, parallel to `requests`.
    pub recorded: Recorded,
    /// Requests left out because their methods are not safe.
    pub unsafe_ones: u64,
    /// Requests left out because their bodies were not kept whole.
    pub cut: u64,
    /// Requests left out because they had no response, or became tunnels.
    pub without_response: u64,
    pub unreadable: u64,
    /// Requests with secrets, which are masked; such fields are left out.
    pub masked: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedRequest {
    pub method: String,
    /// Path and query.
    pub target: String,
    pub fields: Vec<(String, String)>,
    pub body: Bytes,
}

#[derive(Deserialize)]
struct Line {
    at_us: u64,
    method: String,
    target: String,
    #[serde(default)]
    fields: Vec<(String, String)>,
    /// Names of fields with secrets; also `path`, `query` and `body`.
    #[serde(default)]
    masked: Vec<String>,
    status: u16,
    length: Option<u64>,
    took_us: u64,
    sha256: Option<String>,
    coding: Option<String>,
    route: Option<String>,
    #[serde(default)]
    tunnel: bool,
    #[serde(default)]
    broken: bool,
    #[serde(default)]
    body_cut: bool,
    body: Option<String>,
    body_base64: Option<String>,
}

/// Returns whether a file that begins so is one of `firebrick record`.
pub fn is_recorded(beginning: &[u8]) -> bool {
    let line = beginning.split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.starts_with(b"{") && memchr::memmem::find(line, KIND.as_bytes()).is_some()
}

/// Reads a file; messages call it `name`. Unsafe methods are left out unless `all_methods`.
///
/// # Errors
/// The file cannot be read, or has no request to send.
pub fn recorded(name: &str, file: &mut dyn BufRead, all_methods: bool) -> Result<RecordedRequests, String> {
    let mut found = RecordedRequests::default();
    let mut groups = HashMap::new();
    let mut taken: Vec<(u64, RecordedRequest, Expected)> = Vec::new();
    let (mut line, mut number) = (Vec::new(), 0_u64);
    loop {
        line.clear();
        let length =
            file.take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(|why| format!("{name}: {why}"))?;
        if length == 0 {
            break;
        }
        number += 1;
        // The first line describes the recording, the last one its end.
        if number == 1 || line.starts_with(b"{\"done\"") {
            continue;
        }
        match serde_json::from_slice::<Line>(&line).ok().and_then(Line::checked) {
            Some(line) => take(line, all_methods, &mut found, &mut groups, &mut taken),
            None => found.unreadable += 1,
        }
    }
    taken.sort_by_key(|(at, ..)| *at);
    let first = taken.first().map_or(0, |(at, ..)| *at);
    for (at, request, expected) in taken {
        found.times.push(Duration::from_micros(at - first));
        found.requests.push(request);
        found.recorded.expected.push(expected);
    }
    if found.requests.is_empty() {
        let unsafe_ones = match found.unsafe_ones {
            0 => String::new(),
            count => format!("; --replay-unsafe sends the {count} with methods such as POST"),
        };
        return Err(format!("{name} has no request to send ({number} lines){unsafe_ones}"));
    }
    Ok(found)
}

fn take(
    line: Line,
    all_methods: bool,
    found: &mut RecordedRequests,
    groups: &mut HashMap<String, usize>,
    taken: &mut Vec<(u64, RecordedRequest, Expected)>,
) {
    let count = match &line {
        Line { tunnel: true, .. } | Line { broken: true, .. } | Line { status: 0..200, .. } => {
            &mut found.without_response
        }
        Line { body_cut: true, .. } => &mut found.cut,
        line if !all_methods && !is_safe(&line.method) => &mut found.unsafe_ones,
        _ => {
            let group = line.group(groups, &mut found.recorded.groups);
            found.recorded.groups[group].took.saturating_record(line.took_us.max(1));
            found.masked += u64::from(!line.masked.is_empty());
            let expected = line.expected(group);
            let at = line.at_us;
            taken.push((at, line.request(), expected));
            return;
        }
    };
    *count += 1;
}

impl Line {
    /// Returns the line if its request can be sent.
    fn checked(self) -> Option<Line> {
        let target = self.target.as_bytes();
        let good = text::is_token(self.method.as_bytes())
            && self.method != "CONNECT"
            && (target.starts_with(b"/") || target == b"*")
            && target.iter().all(u8::is_ascii_graphic)
            && self.fields.iter().all(|(name, value)| {
                text::is_token(name.as_bytes())
                    && !value.bytes().any(|byte| (byte < b' ' && byte != b'\t') || byte == 0x7f)
            })
            && self.body_base64.as_ref().is_none_or(|body| STANDARD.decode(body).is_ok());
        good.then_some(self)
    }

    /// Returns the number of the line's group: its route, otherwise its path without ids ([`text::route`]).
    fn group(&self, known: &mut HashMap<String, usize>, groups: &mut Vec<Group>) -> usize {
        let path = self.target.split('?').next().unwrap_or_default();
        let folded = || route::Buffer::default().of_path(path.as_bytes()).to_owned();
        let name = format!("{} {}", self.method, self.route.clone().unwrap_or_else(folded));
        if let Some(number) = known.get(&name) {
            return *number;
        }
        // The last one stands for all others.
        if groups.len() + 1 >= MOST_GROUPS {
            if groups.len() < MOST_GROUPS {
                groups.push(Group { name: "others".to_owned(), ..Group::default() });
            }
            return MOST_GROUPS - 1;
        }
        groups.push(Group { name: name.clone(), ..Group::default() });
        known.insert(name, groups.len() - 1);
        groups.len() - 1
    }

    fn expected(&self, group: usize) -> Expected {
        let is_masked = self.masked.iter().any(|name| name == "path");
        // A body in a coding depends on Accept-Encoding, which is not sent.
        let comparable = self.coding.is_none() && self.method != "HEAD" && !is_masked;
        let sha256 = self.sha256.as_deref().filter(|_| comparable).and_then(text::from_hex);
        let length = self.length.filter(|_| comparable);
        Expected { group, status: self.status, is_masked, length, sha256 }
    }

    fn request(self) -> RecordedRequest {
        let Line { method, target, fields, masked, body, body_base64, .. } = self;
        let left_out = |name: &str| LEFT_OUT.iter().any(|known| name.eq_ignore_ascii_case(known));
        // Only parameters of the Referer are masked.
        let is_secret = |name: &str| name != "referer" && masked.iter().any(|one| one == name);
        let kept = fields.into_iter().filter(|(name, _)| !left_out(name) && !is_secret(name));
        let decoded = body_base64.and_then(|body| STANDARD.decode(body).ok());
        let body = decoded.or_else(|| body.map(String::into_bytes)).unwrap_or_default();
        RecordedRequest { method, target, fields: kept.collect(), body: body.into() }
    }
}

/// Reads any bytes; for fuzzing.
///
/// # Panics
/// The requests, times and responses do not fit each other.
pub(crate) fn fuzz(mut bytes: &[u8]) {
    let Ok(found) = recorded("fuzz", &mut bytes, true) else { return };
    assert!(found.times.is_sorted() && found.times.len() == found.requests.len());
    assert_eq!(found.recorded.expected.len(), found.requests.len());
    assert!(found.recorded.expected.iter().all(|one| one.group < found.recorded.groups.len()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAD: &str = "{\"began\":\"2026-01-01T00:00:00Z\",\"kind\":\"firebrick record\",\"version\":1}\n";

    fn read(lines: &[&str], all: bool) -> Result<RecordedRequests, String> {
        let text = format!("{HEAD}{}\n{{\"done\":{{}}}}\n", lines.join("\n"));
        assert!(is_recorded(text.as_bytes()));
        recorded("f", &mut text.as_bytes(), all)
    }

    #[test]
    fn requests_come_in_order_with_what_can_be_sent() {
        let get = r#"{"at_us":2000,"method":"GET","target":"/posts/7?q=1","fields":[["host","a"],["accept","*/*"],["cookie","s=*"],["referer","/?key=*"]],"masked":["cookie","referer"],"status":200,"length":5,"took_us":900}"#;
        let post = r#"{"at_us":1000,"method":"POST","target":"/posts","status":302,"length":0,"took_us":9,"body_base64":"aGk=","route":"posts#create"}"#;
        let found = read(&[get, post], true).unwrap();
        assert_eq!(found.times, [Duration::ZERO, Duration::from_millis(1)]);
        let names: Vec<&str> = found.recorded.groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["GET /posts/:id", "POST posts#create"]);
        assert_eq!((&found.requests[0].body[..], found.recorded.expected[0].status), (&b"hi"[..], 302));
        let fields = [("accept", "*/*"), ("referer", "/?key=*")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found.requests[1].fields, fields);
        assert_eq!((found.masked, found.recorded.expected[1].length), (1, Some(5)));
        let safe = read(&[get, post], false).unwrap();
        assert_eq!((safe.requests.len(), safe.unsafe_ones), (1, 1));
        assert!(read(&[post], false).unwrap_err().contains("--replay-unsafe sends the 1"));
    }

    #[test]
    fn a_masked_path_is_sent_and_compared_by_failures_only() {
        let digest = "0f".repeat(32);
        let line = format!(
            r#"{{"at_us":0,"method":"GET","target":"/reset/{}?q=1","masked":["path"],"status":200,"length":5,"took_us":1,"sha256":"{digest}"}}"#,
            "*".repeat(24)
        );
        let kept = line.replace("\"path\"", "").replace("/reset/", "/kept/");
        let found = read(&[&line, &kept], false).unwrap();
        assert_eq!(found.requests[0].target, format!("/reset/{}?q=1", "*".repeat(24)));
        assert_eq!((&*found.recorded.groups[0].name, found.masked), ("GET /reset/:id", 1));
        let [masked, whole] = &found.recorded.expected[..] else { panic!("two lines") };
        assert_eq!((masked.length, masked.sha256, whole.length), (None, None, Some(5)));
        let accepted = |one: &Expected| [200, 404, 500].map(|status| one.accepts(status));
        assert_eq!((accepted(masked), accepted(whole)), ([true, true, false], [true, false, false]));
        let digested = |one: &Expected| [200, 404].map(|status| one.has_digest_for(status));
        assert_eq!((digested(masked), digested(whole)), ([false, false], [true, false]));
    }

    #[test]
    fn lines_that_cannot_be_sent_are_counted() {
        let good = r#"{"at_us":0,"method":"GET","target":"/","status":200,"took_us":1}"#;
        let with = |from: &str, to: &str| good.replace(from, to);
        let lines = [
            good.to_owned(),
            with("\"/\"", "\"http://x/\""),
            with("GET", "GE T"),
            with("\"took_us\":1", "\"took_us\":1,\"fields\":[[\"a\",\"b\\r\\nc: d\"]]"),
            with("\"took_us\":1", "\"took_us\":1,\"tunnel\":true"),
            with("\"took_us\":1", "\"took_us\":1,\"body_cut\":true"),
            with("200", "0"),
            good[..30].to_owned(),
        ];
        let found = read(&lines.iter().map(String::as_str).collect::<Vec<_>>(), true).unwrap();
        assert_eq!((found.requests.len(), found.unreadable, found.without_response, found.cut), (1, 4, 2, 1));
    }

    #[test]
    fn groups_are_bounded() {
        let line = |n: usize| {
            format!("{{\"at_us\":0,\"method\":\"GET\",\"target\":\"/a{n}\",\"status\":200,\"took_us\":1}}")
        };
        let lines: Vec<String> = (0..2 * MOST_GROUPS).map(line).collect();
        let found = read(&lines.iter().map(String::as_str).collect::<Vec<_>>(), true).unwrap();
        assert_eq!(found.recorded.groups.len(), MOST_GROUPS);
        assert_eq!(found.recorded.groups[MOST_GROUPS - 1].name, "others");
    }

    proptest! {
        #[test]
        fn any_lines_are_read(text in "(\\{\"at_us\":[0-9]{1,3},\"method\":\"GET\",\"target\":\"/[a-z0-9/?]{0,5}\",\"status\":[0-9]{3},\"took_us\":1\\}|[ -~]{0,30}|\n){0,12}") {
            fuzz(format!("{HEAD}{text}").as_bytes());
        }
    }
}
