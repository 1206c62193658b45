//! Tests the request parser against tables, a slow reference implementation, and httparse.

use crate::framing::Framing;
use crate::request_head::{RequestHead, RequestParser};
use fieldcode::{Expect, HeadLimits};
use handler::{Failure, Span, Version};
use proptest::prelude::*;

fn small_limits() -> HeadLimits {
    HeadLimits { max_header_bytes: 400, max_headers: 6, max_uri: 100, ..HeadLimits::default() }
}

/// The facts about a head, in comparable form.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Summary {
    version: Version,
    method: Vec<u8>,
    path: Vec<u8>,
    query: Vec<u8>,
    authority: Vec<u8>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    framing: Framing,
    expect: Expect,
    persistent: bool,
    end: usize,
}

/// A head, `None` if more bytes are needed, or a status.
type Outcome = Result<Option<Summary>, u16>;

fn summary(head: &RequestHead, text: &[u8], end: usize) -> Summary {
    let slice = |span: Span| span.slice(text).to_vec();
    Summary {
        version: head.line.version,
        method: slice(head.line.method),
        path: slice(head.line.path),
        query: slice(head.line.query),
        authority: slice(head.line.authority),
        fields: head.slots.iter().map(|&(name, value)| (slice(name), slice(value))).collect(),
        framing: head.framing,
        expect: head.expect,
        persistent: head.persistent,
        end,
    }
}

/// Feeds `text` in pieces that end at `cuts` and at its end.
fn parse_in_pieces(text: &[u8], cuts: &[usize], limits: &HeadLimits) -> Outcome {
    let mut parser = RequestParser::new();
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
    cuts.push(text.len());
    cuts.sort_unstable();
    for cut in cuts {
        if let Some(end) = parser.advance(&text[..cut], limits).map_err(|failure: Failure| failure.status)? {
            let start = parser.start();
            return Ok(Some(summary(&parser.finish(), &text[start..end], end)));
        }
    }
    Ok(None)
}

fn parse(text: &[u8]) -> Outcome {
    parse_in_pieces(text, &[], &HeadLimits::default())
}

/// The reference implementation: parses the whole text line by line and byte by byte, without state.
mod twin {
    use super::*;

    const TOKEN: &str = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

    fn token_byte(b: u8) -> bool {
        TOKEN.contains(b as char) && b < 128
    }

    fn value_ok(value: &[u8]) -> bool {
        value.iter().all(|&b| b == 9 || (32..127).contains(&b) || b >= 128)
    }

    fn lower(text: &[u8]) -> String {
        text.iter().map(|&b| (b as char).to_ascii_lowercase()).collect()
    }

    fn blanks_off(text: &str) -> &str {
        text.trim_matches([' ', '\t'])
    }

    fn host_ok(text: &str) -> bool {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((host, port)) if host.parse::<std::net::Ipv6Addr>().is_ok() => ("ok", port),
                _ => return false,
            },
            None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
        };
        let mut bytes = host.bytes();
        let mut name_ok = !host.is_empty();
        while let Some(b) = bytes.next() {
            name_ok &= match b {
                b'%' => {
                    bytes.next().is_some_and(|b| b.is_ascii_hexdigit())
                        && bytes.next().is_some_and(|b| b.is_ascii_hexdigit())
                }
                _ => b.is_ascii_alphanumeric() || "-._~!$&'()*+,;=".contains(b as char),
            };
        }
        let digits = port.strip_prefix(':');
        let port_ok = port.is_empty()
            || digits.is_some_and(|d| {
                d.bytes().all(|b| b.is_ascii_digit())
                    && (d.is_empty()
                        || d.trim_start_matches('0').len() < 6
                            && d.trim_start_matches('0').parse().unwrap_or(0) < 65_536)
            });
        name_ok && port_ok && text.is_ascii()
    }

    /// Returns the method's length, if the line is long enough.
    fn method(line: &[u8]) -> Result<Option<usize>, u16> {
        for (i, &b) in line.iter().enumerate() {
            match b {
                b' ' if i > 0 => return Ok(Some(i)),
                b if !token_byte(b) => return Err(400),
                _ if i >= 32 => return Err(501),
                _ => {}
            }
        }
        Ok(None)
    }

    pub(super) fn parse(text: &[u8], limits: &HeadLimits) -> Outcome {
        let mut start = 0;
        while text[start..].starts_with(b"\r\n") && start < 16 {
            start += 2;
        }
        match text.get(start) {
            None => return Ok(None),
            Some(b'\r') if text.len() == start + 1 => return Ok(None),
            Some(&b) if !token_byte(b) => return Err(400),
            _ => {}
        }
        let head = &text[start..];
        let mut found = Summary {
            version: Version::Http11,
            method: vec![],
            path: vec![],
            query: vec![],
            authority: vec![],
            fields: vec![],
            framing: Framing::Length(0),
            expect: Expect::Nothing,
            persistent: true,
            end: 0,
        };
        let (mut at, mut hosts, mut length, mut chunked, mut tokens, mut count) =
            (0, vec![], None, false, vec![], 0);
        for number in 0.. {
            let complete = head[at..].iter().position(|&b| b == b'\n');
            let line = &head[at..complete.map_or(head.len(), |n| at + n + 1)];
            let size = at + line.len() + usize::from(complete.is_none());
            let mut bound = (limits.max_header_bytes, 431);
            if number == 0
                && let Some(n) = method(line)?
            {
                bound = bound.min((limits.max_uri + n + 12, 414));
            }
            if size > bound.0 {
                return Err(bound.1);
            }
            if complete.is_none() {
                return Ok(None);
            }
            at += line.len();
            let Some(line) = line.strip_suffix(b"\r\n") else { return Err(400) };
            if number == 0 {
                request_line(line, &mut found)?;
                continue;
            }
            if line.is_empty() {
                break;
            }
            count += 1;
            if count > limits.max_headers {
                return Err(431);
            }
            let colon = line.iter().position(|&b| b == b':').ok_or(400u16)?;
            let (name, mut value) = (&line[..colon], &line[colon + 1..]);
            if name.is_empty() || !name.iter().all(|&b| token_byte(b)) {
                return Err(400);
            }
            while let Some(rest) = value.strip_prefix(b" ").or(value.strip_prefix(b"\t")) {
                value = rest;
            }
            while let Some(rest) = value.strip_suffix(b" ").or(value.strip_suffix(b"\t")) {
                value = rest;
            }
            if !value_ok(value) {
                return Err(400);
            }
            if name.contains(&b'_') {
                continue;
            }
            found.fields.push((name.to_vec(), value.to_vec()));
            let text = lower(value);
            match lower(name).as_str() {
                "host" => {
                    hosts.push(value.to_vec());
                    if hosts.len() > 1
                        || !(host_ok(&text) || text.is_empty() && found.version == Version::Http10)
                    {
                        return Err(400);
                    }
                }
                "content-length" => {
                    let number = text.trim_start_matches('0');
                    let number = if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
                        None
                    } else if number.is_empty() {
                        Some(0)
                    } else {
                        number.parse::<u64>().ok()
                    };
                    if number.is_none() || length.is_some() {
                        return Err(400);
                    }
                    length = number;
                }
                "transfer-encoding" => {
                    let codings: Vec<&str> = text.split(',').map(blanks_off).collect();
                    if found.version == Version::Http10 || chunked {
                        return Err(400);
                    }
                    chunked = text == "chunked";
                    if !chunked {
                        let named = codings.iter().all(|c| !c.is_empty() && c.bytes().all(token_byte));
                        let earlier = codings[..codings.len() - 1].contains(&"chunked");
                        return Err(if named && !earlier { 501 } else { 400 });
                    }
                }
                "expect" if text.split(',').any(|e| blanks_off(e) != "100-continue") => {
                    found.expect = Expect::Unknown
                }
                "expect" if found.expect == Expect::Nothing && found.version == Version::Http11 => {
                    found.expect = Expect::Continue
                }
                "connection" => tokens.extend(text.split(',').map(|t| blanks_off(t).to_string())),
                _ => {}
            }
        }
        if hosts.is_empty() && found.version == Version::Http11 || chunked && length.is_some() {
            return Err(400);
        }
        if found.authority.is_empty() {
            found.authority = hosts.pop().unwrap_or_default();
        } else {
            let named = found.fields.iter_mut().filter(|(name, _)| lower(name) == "host");
            named.for_each(|(_, value)| *value = found.authority.clone());
        }
        found.framing = if chunked { Framing::Chunked } else { Framing::Length(length.unwrap_or(0)) };
        let has = |token: &str| tokens.iter().any(|t| t == token);
        found.persistent = !has("close") && (found.version == Version::Http11 || has("keep-alive"));
        found.end = start + at;
        Ok(Some(found))
    }

    fn request_line(line: &[u8], found: &mut Summary) -> Result<(), u16> {
        let words: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
        if method(line)?.is_none() || words.len() < 3 {
            return Err(400);
        }
        let version = words[2..].join(&b' ');
        found.version = match &version[..] {
            b"HTTP/1.1" => Version::Http11,
            b"HTTP/1.0" => Version::Http10,
            v if v.len() == 8
                && v.starts_with(b"HTTP/")
                && v[5].is_ascii_digit()
                && v[6] == b'.'
                && v[7].is_ascii_digit() =>
            {
                return Err(505);
            }
            _ => return Err(400),
        };
        found.method = words[0].to_vec();
        if words[0] == b"CONNECT" {
            return Err(501);
        }
        let target = words[1];
        if target.is_empty() || target.iter().any(|&b| b <= 32 || b == 127 || b == b'#') {
            return Err(400);
        }
        let low = lower(target);
        let mut rest = target.to_vec();
        if let Some(after) = low.strip_prefix("http://").or(low.strip_prefix("https://")) {
            let len = after.chars().position(|c| c == '/' || c == '?').unwrap_or(after.chars().count());
            let skipped = low.chars().count() - after.chars().count();
            let authority = &target[skipped..skipped + len];
            if !std::str::from_utf8(authority).is_ok_and(host_ok) {
                return Err(400);
            }
            found.authority = authority.to_vec();
            rest = target[skipped + len..].to_vec();
            if rest.first() != Some(&b'/') {
                rest.insert(0, b'/');
            }
        } else if target == b"*" && words[0] == b"OPTIONS" {
            found.path = b"*".to_vec();
            return Ok(());
        } else if target[0] != b'/' {
            return Err(400);
        }
        let mut halves = rest.splitn(2, |&b| b == b'?');
        found.path = halves.next().unwrap_or_default().to_vec();
        found.query = halves.next().unwrap_or_default().to_vec();
        Ok(())
    }
}

/// Generates lines that the parser handles specially, well-formed and malformed.
fn a_line() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        &b"Host: x"[..], b"Host: x:80", b"host:y", b"Host: ", b"Host: [::1]:8", b"Host: a@b", b"Host: x:99999", b"Content-Length: 5", b"content-length:0",
        b"Content-Length: 5, 5", b"Content-Length: +5", b"Content-Length: 99999999999999999999", b"Content_Length: 7",
        b"Transfer-Encoding: chunked", b"transfer-encoding: \tCHUNKED ", b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: chunked, gzip", b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: xchunked", b"Transfer-Encoding: ",
        b"Connection: close", b"Connection: Keep-Alive, x", b"Expect: 100-continue", b"Expect: 200-ok", b"X-A: b", b"X-A:",
        b"X-A : b", b" folded", b"\tfolded", b": b", b"X-A", b"X-Obs: caf\xe9", b"X-\xe9: b", b"X-A: b\x00", b"X-A: b\rc", b"X-A: \x7f",
        b"X-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ]);
    known.prop_map(<[u8]>::to_vec)
}

fn a_request_line() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        &b"GET / HTTP/1.1"[..], b"GET /a?b HTTP/1.1", b"POST /a HTTP/1.0", b"OPTIONS * HTTP/1.1", b"GET * HTTP/1.1", b"GET http://h/p?q HTTP/1.1",
        b"GET http://h HTTP/1.1", b"GET http://h?q HTTP/1.0", b"GET ftp://h/ HTTP/1.1", b"CONNECT h:1 HTTP/1.1", b"GET / HTTP/2.0", b"GET / HTTP/1.10",
        b"GET  / HTTP/1.1", b"GET /a b HTTP/1.1", b"GET /#f HTTP/1.1", b"GET /\xff HTTP/1.1", b"GET", b"\x16\x03\x01", b"G(T / HTTP/1.1",
        b"GET /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa HTTP/1.1",
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJK / HTTP/1.1",
    ]);
    prop_oneof![3 => Just(b"GET / HTTP/1.1".to_vec()), 2 => known.prop_map(<[u8]>::to_vec)]
}

/// Generates heads that are mostly valid, sometimes with a changed byte.
fn a_head() -> impl Strategy<Value = Vec<u8>> {
    let end = prop_oneof![12 => Just(&b"\r\n"[..]), 1 => Just(&b"\n"[..]), 1 => Just(&b"\r"[..])];
    let lines = prop::collection::vec((a_line(), end.clone()), 0..8);
    let nasty = prop::sample::select(b"\0\r\n\t :;,#%/_\x7f\x80\xffaH1".to_vec());
    let change = prop::option::weighted(0.3, (any::<prop::sample::Index>(), nasty, 0..3u8));
    let blank = prop::sample::select(vec![&b""[..], b"", b"", b"\r\n", b"\r\n\r\n", b"\n", b"\r"]);
    (blank, a_request_line(), any::<bool>(), lines, change, any::<bool>()).prop_map(
        |(blank, first, host, lines, change, whole)| {
            let mut text = [blank, &first, b"\r\n"].concat();
            if host {
                text.extend_from_slice(b"Host: x\r\n");
            }
            for (line, end) in lines {
                text.extend_from_slice(&line);
                text.extend_from_slice(end);
            }
            if whole {
                text.extend_from_slice(b"\r\nGET /next HTTP/1.1\r\n");
            }
            if let Some((index, byte, how)) = change {
                let at = index.index(text.len());
                match how {
                    0 => text[at] = byte,
                    1 => text.insert(at, byte),
                    _ => drop(text.remove(at)),
                }
            }
            text
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn the_parser_agrees_with_its_twin_however_the_bytes_come(text in a_head(), cuts in prop::collection::vec(any::<usize>(), 0..6)) {
        for limits in [HeadLimits::default(), small_limits()] {
            let expected = twin::parse(&text, &limits);
            prop_assert_eq!(parse_in_pieces(&text, &[], &limits), expected.clone());
            prop_assert_eq!(parse_in_pieces(&text, &cuts, &limits), expected);
        }
    }

    #[test]
    fn single_bytes_give_the_same(text in a_head()) {
        let every: Vec<usize> = (0..text.len()).collect();
        prop_assert_eq!(parse_in_pieces(&text, &every, &small_limits()), twin::parse(&text, &small_limits()));
    }

    #[test]
    fn any_bytes_at_all(text in prop::collection::vec(any::<u8>(), 0..300), cuts in prop::collection::vec(any::<usize>(), 0..4)) {
        prop_assert_eq!(parse_in_pieces(&text, &cuts, &small_limits()), twin::parse(&text, &small_limits()));
    }

    #[test]
    fn what_is_accepted_means_the_same_to_others(text in a_head()) {
        let Ok(Some(ours)) = parse(&text) else { return Ok(()) };
        prop_assume!(!text.windows(3).any(|three| three == b"://"), "their Host is not replaced");
        prop_assume!(!ours.path.iter().chain(&ours.query).any(|&b| b > 127));
        let mut slots = [httparse::EMPTY_HEADER; 32];
        let mut theirs = httparse::Request::new(&mut slots);
        let status = theirs.parse(&text);
        prop_assert_eq!(status, Ok(httparse::Status::Complete(ours.end)));
        prop_assert_eq!(theirs.method.map(str::as_bytes), Some(&ours.method[..]));
        let kept: Vec<_> = theirs.headers.iter().filter(|h| !h.name.contains('_')).map(|h| (h.name.as_bytes().to_vec(), h.value.to_vec())).collect();
        prop_assert_eq!(kept, ours.fields);
    }
}

fn with_fields(lines: &str) -> Outcome {
    parse(format!("POST / HTTP/1.1\r\nHost: x\r\n{lines}\r\n").as_bytes())
}

#[test]
fn framings() {
    for (lines, expected) in [
        ("", Ok(Framing::Length(0))),
        ("Content-Length: 0003\r\n", Ok(Framing::Length(3))),
        ("Transfer-Encoding: chunked\r\n", Ok(Framing::Chunked)),
        ("Transfer-Encoding:\t ChunKed \r\n", Ok(Framing::Chunked)),
        ("Content_Length: 9\r\nContent-Length: 3\r\n", Ok(Framing::Length(3))),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", Err(400)),
        ("Content-Length: 5, 5\r\n", Err(400)),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Err(400)),
        ("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", Err(400)),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Err(400)),
        ("Transfer-Encoding: gzip, chunked\r\n", Err(501)),
        ("Transfer-Encoding: gzip\r\n", Err(501)),
        ("Transfer-Encoding: chunked, gzip\r\n", Err(400)),
        ("Transfer-Encoding: chunked;q=1\r\n", Err(400)),
        ("Transfer-Encoding: \"chunked\"\r\n", Err(400)),
        ("Transfer-Encoding: \r\n", Err(400)),
        ("Transfer-Encoding: \u{b}chunked\r\n", Err(400)),
    ] {
        assert_eq!(with_fields(lines).map(|head| head.map(|h| h.framing)), expected.map(Some), "{lines:?}");
    }
    assert_eq!(parse(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), Err(400));
}

#[test]
fn lines_that_are_refused() {
    for text in [
        "\nGET / HTTP/1.1\r\n",
        "\rGET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\n",
        "GET / HTTP/1.1\r\nHost: x\n",
        "GET / HTTP/1.1\r\nHost: x\r\n\n",
        "GET / HTTP/1.1\r\nHost: x\r\n\rX\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\n c\r\n",
        "GET / HTTP/1.1\r\nHost : x\r\n",
        "GET / HTTP/1.1\r\n: x\r\n",
        "GET / HTTP/1.1\r\nX A: x\r\n",
        "GET / HTTP/1.1\r\nX\r\n",
        "GET / HTTP/1.1\r\nX: \0\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "\x16\x03\x01",
        "\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n",
    ] {
        assert_eq!(parse(text.as_bytes()), Err(400), "{text:?}");
    }
}

#[test]
fn sizes() {
    let limits = small_limits();
    let status = |text: &str| parse_in_pieces(text.as_bytes(), &[], &limits);
    assert!(matches!(status(&format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(99))), Ok(Some(_))));
    assert_eq!(status(&format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(100))), Err(414));
    assert_eq!(status(&format!("GET /{}", "a".repeat(120))), Err(414), "before the line is complete");
    let field = "A: b\r\n".repeat(5);
    assert!(matches!(status(&format!("GET / HTTP/1.1\r\nHost: x\r\n{field}\r\n")), Ok(Some(_))));
    assert_eq!(status(&format!("GET / HTTP/1.1\r\nHost: x\r\nB: c\r\n{field}\r\n")), Err(431));
    assert_eq!(status(&format!("GET / HTTP/1.1\r\nHost: x\r\nB: {}\r\n\r\n", "c".repeat(400))), Err(431));
    assert_eq!(
        status(&format!("GET / HTTP/1.1\r\nHost: x\r\nB: {}", "c".repeat(400))),
        Err(431),
        "before the line is complete"
    );
}

#[test]
fn the_authority_of_an_absolute_form_replaces_host() {
    let text = b"GET http://right.test:81/p HTTP/1.1\r\nHost: wrong.test\r\nX-A: wrong.test\r\n\r\n";
    let Ok(Some(head)) = parse(text) else { panic!("accepted") };
    assert_eq!(head.authority, b"right.test:81");
    let values: Vec<_> = head.fields.iter().map(|(_, value)| &value[..]).collect();
    assert_eq!(values, [&b"right.test:81"[..], b"wrong.test"]);
}

#[test]
fn persistence() {
    for (head, expected) in [
        ("HTTP/1.1\r\nHost: x\r\n", true),
        ("HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", false),
        ("HTTP/1.1\r\nHost: x\r\nConnection: a, CLOSE,\r\n", false),
        ("HTTP/1.0\r\n", false),
        ("HTTP/1.0\r\nConnection: Keep-Alive\r\n", true),
        ("HTTP/1.0\r\nConnection: keep-alive, close\r\n", false),
    ] {
        let parsed = parse(format!("GET / {head}\r\n").as_bytes());
        assert_eq!(parsed.map(|head| head.map(|h| h.persistent)), Ok(Some(expected)), "{head:?}");
    }
}
