//! Tests RFC 9113 sections 8.1 to 8.3, rule by rule.

use crate::{Bomb, Expect, HeadLimits, Name, RequestHead, Section, SectionRefusal, is_field_value};
use proptest::prelude::*;

fn add(section: &mut Section, name: &str, value: &str, known: bool, limits: &HeadLimits) -> Result<(), Bomb> {
    let both = [name.as_bytes(), value.as_bytes()].concat();
    let (kind, good) = (Name::of(name.as_bytes()), is_field_value(value.as_bytes()));
    if known {
        return section.known(kind, &both, name.len(), good, limits);
    }
    let start = section.text().len();
    section.text().extend_from_slice(&both);
    section.decoded(kind, start, name.len(), good, limits)
}

fn judge_with(
    fields: &[(&str, &str)],
    end: bool,
    limits: &HeadLimits,
) -> Result<RequestHead, SectionRefusal> {
    let run = |known: bool| {
        let mut section = Section::request(0, 0);
        fields.iter().for_each(|(name, value)| add(&mut section, name, value, known, limits).unwrap());
        section.finish_request(end)
    };
    let (known, decoded) = (run(true), run(false));
    // The result is the same whether a field is from a table or not.
    assert_eq!(
        known.as_ref().map(lines).map_err(Clone::clone),
        decoded.as_ref().map(lines).map_err(Clone::clone)
    );
    known
}

fn judge(fields: &[(&str, &str)]) -> Result<RequestHead, SectionRefusal> {
    judge_with(fields, true, &HeadLimits::default())
}

fn lines(head: &RequestHead) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let spans = [head.method, head.scheme, head.authority, head.target, head.path, head.query, head.priority];
    let spans = spans.map(|span| text(span.slice(head.fields.text())));
    spans
        .into_iter()
        .chain(head.fields.iter().map(|(name, value)| format!("{}: {}", text(name), text(value))))
        .collect()
}

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "x.test"), (":path", "/a?b")];

fn get<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    GET.iter().chain(more).copied().collect()
}

#[test]
fn a_request() {
    let head = judge(&get(&[("accept", "*/*"), ("priority", "u=1"), ("x", ""), ("expect", "100-continue")]))
        .unwrap();
    let expected = [
        "GET",
        "https",
        "x.test",
        "/a?b",
        "/a",
        "b",
        "u=1",
        "host: x.test",
        "accept: */*",
        "priority: u=1",
        "x: ",
        "expect: 100-continue",
    ];
    assert_eq!(lines(&head), expected);
    assert_eq!((head.content_length, head.expect), (None, Expect::Continue));
    // Filters add fields without a new allocation.
    assert!(head.fields.text().len() < 200);
    let head = judge(&[(":path", "*"), (":method", "OPTIONS"), (":scheme", "HTTP"), ("host", "y")]).unwrap();
    assert_eq!(lines(&head), ["OPTIONS", "HTTP", "y", "*", "*", "", "", "host: y"]);
}

/// Fields, the status, and whether they are malformed.
type Case<'a> = (Vec<(&'a str, &'a str)>, u16, bool);

#[test]
fn malformed_requests() {
    let long = "x".repeat(33);
    let changed = |name: &str, value: Option<&'static str>| -> Vec<(&str, &str)> {
        GET.iter()
            .filter_map(|&(n, v)| if n == name { value.map(|value| (n, value)) } else { Some((n, v)) })
            .collect()
    };
    let with = |more: &[(&'static str, &'static str)]| get(more);
    let cases: Vec<Case<'_>> = vec![
        // 8.3.1: all but :authority are required, once, before other fields.
        (changed(":method", None), 400, true),
        (changed(":scheme", None), 400, true),
        (changed(":path", None), 400, true),
        (changed(":authority", None), 400, true),
        (changed(":path", Some("")), 400, true),
        (changed(":path", Some("a")), 400, true),
        (changed(":path", Some("*")), 400, true),
        (changed(":path", Some("/a b")), 400, true),
        (changed(":path", Some("/a#b")), 400, true),
        (changed(":path", Some("http://x/")), 400, true),
        (changed(":method", Some("")), 400, true),
        (changed(":method", Some("G T")), 400, true),
        (changed(":method", Some("CONNECT")), 400, true),
        (changed(":scheme", Some("")), 400, true),
        (changed(":scheme", Some("ftp")), 400, true),
        (changed(":authority", Some("")), 400, true),
        (changed(":authority", Some("u@x")), 400, true),
        (changed(":authority", Some("x/y")), 400, true),
        (with(&[(":path", "/")]), 400, true),
        (with(&[(":method", "GET")]), 400, true),
        (with(&[(":scheme", "https")]), 400, true),
        (with(&[(":authority", "x.test")]), 400, true),
        (with(&[(":status", "200")]), 400, true),
        (with(&[(":protocol", "websocket")]), 400, true),
        (with(&[(":", "")]), 400, true),
        (
            vec![(":method", "GET"), ("a", "b"), (":scheme", "https"), (":authority", "x"), (":path", "/")],
            400,
            true,
        ),
        // Also after one that is dropped.
        (
            vec![(":method", "GET"), ("a_b", "b"), (":scheme", "https"), (":authority", "x"), (":path", "/")],
            400,
            true,
        ),
        // 8.2.1: names and values.
        (with(&[("A", "")]), 400, true),
        (with(&[("a b", "")]), 400, true),
        (with(&[("a:", "")]), 400, true),
        (with(&[("", "")]), 400, true),
        (with(&[("a", "b\n")]), 400, true),
        (with(&[("a", "b\rc")]), 400, true),
        (with(&[("a", "b\0c")]), 400, true),
        (with(&[("a", " b")]), 400, true),
        (with(&[("a", "b\t")]), 400, true),
        // 8.2.2: fields about connections.
        (with(&[("connection", "close")]), 400, true),
        (with(&[("keep-alive", "1")]), 400, true),
        (with(&[("proxy-connection", "x")]), 400, true),
        (with(&[("transfer-encoding", "chunked")]), 400, true),
        (with(&[("upgrade", "x")]), 400, true),
        (with(&[("te", "gzip")]), 400, true),
        (with(&[("te", "trailers, gzip")]), 400, true),
        // 8.3.1: Host.
        (with(&[("host", "y.test")]), 400, true),
        (with(&[("host", "x.test"), ("host", "x.test")]), 400, true),
        (with(&[("host", "")]), 400, true),
        // 8.1.1: the length.
        (with(&[("content-length", "1")]), 400, true),
        (with(&[("content-length", "+0")]), 400, true),
        (with(&[("content-length", "")]), 400, true),
        (with(&[("content-length", "0, 0")]), 400, true),
        (with(&[("content-length", "0"), ("content-length", "0")]), 400, true),
        // Not malformed.
        (vec![(":method", "CONNECT"), (":authority", "x:1")], 501, false),
        (GET.iter().map(|&(n, v)| (n, if n == ":method" { &long } else { v })).collect(), 501, false),
    ];
    for (fields, status, malformed) in cases {
        let refusal = judge(&fields).expect_err(&format!("{fields:?}"));
        assert_eq!(
            (refusal.failure.status, refusal.malformed),
            (status, malformed),
            "{fields:?}: {refusal:?}"
        );
    }
}

#[test]
fn well_formed_ones() {
    for more in [
        &[("te", "Trailers")][..],
        &[("host", "X.TEST")],
        &[("content-length", "0")],
        &[("x", "\u{e9}")],
        &[("trailer", "x")],
        &[("expect", "100-continue"), ("expect", "100-continue")],
    ] {
        let head = judge(&get(more)).unwrap();
        assert_eq!(head.fields.all("host").count(), 1);
    }
    let head = judge_with(&get(&[("content-length", "5")]), false, &HeadLimits::default()).unwrap();
    assert_eq!(head.content_length, Some(5));
    assert_eq!(judge(&get(&[("expect", "gold")])).unwrap().expect, Expect::Unknown);
}

#[test]
fn cookies_are_joined() {
    let head = judge(&get(&[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2"), ("cookie", "c=3"), ("z", "")]))
        .unwrap();
    assert_eq!(lines(&head)[7..], ["host: x.test", "cookie: a=1; b=2; c=3", "x: y", "z: "]);
    let head = judge(&get(&[("cookie", "a=1")])).unwrap();
    assert_eq!(lines(&head)[8..], ["cookie: a=1"]);
}

#[test]
fn underscores_are_dropped_unless_allowed() {
    let fields = get(&[("x_forwarded_for", "1"), ("content_length", "x"), ("a", "b")]);
    assert_eq!(lines(&judge(&fields).unwrap())[8..], ["a: b"]);
    let limits = HeadLimits { allow_underscore_headers: true, ..HeadLimits::default() };
    assert_eq!(judge_with(&fields, true, &limits).unwrap().fields.len(), 4);
}

#[test]
fn limits_apply_while_decoding() {
    let limits = HeadLimits { max_headers: 3, max_header_bytes: 400, max_uri: 10, ..HeadLimits::default() };
    let status = |fields: &[(&str, &str)]| {
        judge_with(fields, true, &limits).map_err(|r| (r.failure.status, r.malformed)).err()
    };
    assert_eq!(status(&get(&[("a", ""), ("b", ""), ("c", "")])), None);
    assert_eq!(status(&get(&[("a", ""), ("b", ""), ("c", ""), ("d", "")])), Some((431, false)));
    assert_eq!(status(&get(&[("a", &"x".repeat(400))])), Some((431, false)));
    assert_eq!(status(&[(":path", "/1234567890"), (":method", "x y")]), Some((414, false)));
    // Further fields are only counted, and an attack ends.
    let mut section = Section::request(0, 0);
    let mut added = 0;
    while add(&mut section, "name", &"v".repeat(60), true, &limits) == Ok(()) {
        added += 1;
        assert!(added < 100 && section.text().capacity() <= 400 + 160);
    }
    assert!(added <= 4 * 400 / 96);
}

#[test]
fn trailers() {
    for (name, value, good) in [
        ("x-sum", "1", true),
        ("x_y", "1", true),
        (":path", "/", false),
        ("X", "1", false),
        ("x", "\n", false),
        ("connection", "close", false),
    ] {
        let mut section = Section::trailers();
        add(&mut section, "first", "1", false, &HeadLimits::default()).unwrap();
        add(&mut section, name, value, false, &HeadLimits::default()).unwrap();
        assert_eq!(section.finish_trailers().is_ok(), good, "{name}");
    }
}

/// An Extended CONNECT for a WebSocket, with changed, removed (`None`) and more fields.
fn connect<'a>(
    changed: &[(&'a str, Option<&'a str>)],
    more: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    let usual =
        [(":method", "CONNECT"), (":protocol", "websocket")].into_iter().chain(GET[1..].iter().copied());
    let kept = usual.filter_map(|(name, value)| match changed.iter().find(|(n, _)| *n == name) {
        Some((_, value)) => value.map(|value| (name, value)),
        None => Some((name, value)),
    });
    kept.chain(more.iter().copied()).collect()
}

#[test]
fn an_extended_connect_is_a_get_with_a_protocol() {
    for (protocol, end) in [("websocket", false), ("WebSocket", true)] {
        let fields = connect(&[(":protocol", Some(protocol))], &[("sec-websocket-version", "13")]);
        let head = judge_with(&fields, end, &HeadLimits::default()).unwrap();
        assert!(head.websocket);
        assert_eq!(
            lines(&head),
            ["GET", "https", "x.test", "/a?b", "/a", "b", "", "host: x.test", "sec-websocket-version: 13"]
        );
    }
    let host = connect(&[(":authority", None)], &[("host", "y.test"), ("content-length", "0")]);
    let head = judge_with(&host, false, &HeadLimits::default()).unwrap();
    assert_eq!((head.content_length, lines(&head)[2].as_str()), (None, "y.test"));
    assert!(!judge(&GET).unwrap().websocket);
}

#[test]
fn malformed_extended_connects() {
    let cases: Vec<Case<'_>> = vec![
        // RFC 8441 section 4.
        (connect(&[(":scheme", None)], &[]), 400, true),
        (connect(&[(":path", None)], &[]), 400, true),
        (connect(&[(":authority", None)], &[]), 400, true),
        (connect(&[(":method", Some("GET"))], &[]), 400, true),
        (connect(&[(":method", Some("connect"))], &[]), 400, true),
        (connect(&[(":method", None)], &[]), 400, true),
        (connect(&[], &[(":protocol", "websocket")]), 400, true),
        (connect(&[(":protocol", Some(""))], &[]), 400, true),
        (connect(&[(":protocol", Some("a b"))], &[]), 400, true),
        (connect(&[(":path", Some("*"))], &[]), 400, true),
        (connect(&[(":scheme", Some("wss"))], &[]), 400, true),
        (connect(&[], &[("content-length", "1")]), 400, true),
        (connect(&[], &[("upgrade", "websocket")]), 400, true),
        (connect(&[], &[("x", ""), (":protocol", "websocket")]), 400, true),
        // RFC 9220 section 3.
        (connect(&[(":protocol", Some("connect-udp"))], &[]), 501, false),
        (connect(&[(":protocol", Some("webtransport"))], &[]), 501, false),
    ];
    for (fields, status, malformed) in cases {
        let refusal = judge_with(&fields, false, &HeadLimits::default()).expect_err(&format!("{fields:?}"));
        assert_eq!((refusal.failure.status, refusal.malformed), (status, malformed), "{fields:?}");
    }
}

proptest! {
    #[test]
    fn any_fields_are_safe(
        fields in prop::collection::vec((
            prop::sample::select(vec![":method", ":path", ":scheme", ":authority", ":protocol", "host", "cookie", "te", "content-length", "a", "A", "a_b", "priority", "expect"]),
            prop::sample::select(vec!["GET", "CONNECT", "websocket", "/", "/?", "https", "x", "trailers", "0", "", " ", "a b", "*", "OPTIONS"]),
        ), 0..12),
        end: bool,
    ) {
        let limits = HeadLimits { max_headers: 6, max_header_bytes: 300, ..HeadLimits::default() };
        if let Ok(head) = judge_with(&fields, end, &limits) {
            prop_assert!(head.fields.len() <= 7 && head.fields.all("host").count() == 1 && head.fields.all("cookie").count() <= 1);
            prop_assert!(head.method.len > 0 && head.path.len > 0 && head.authority.len > 0);
        }
    }
}
