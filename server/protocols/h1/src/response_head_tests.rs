//! Tests response heads: tables of accepted and refused ones, and properties compared with httparse.

use crate::field::lists;
use crate::framing::Framing;
use crate::response_head::{ResponseHead as Head, ResponseParser as Parser};
use handler::Span;
use proptest::prelude::*;

const MAX: usize = 2000;

fn parse(text: &[u8], cuts: &[usize]) -> Result<Option<(usize, Head)>, &'static str> {
    let mut parser = Parser::new();
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
    cuts.push(text.len());
    cuts.sort_unstable();
    for cut in cuts {
        if let Some(end) = parser.advance(&text[..cut], MAX)? {
            return Ok(Some((end, parser.finish(text))));
        }
    }
    Ok(None)
}

fn head(text: &str) -> Head {
    let (end, head) = parse(text.as_bytes(), &[]).expect(text).expect("a complete head");
    assert_eq!(end, text.len());
    head
}

fn fields(text: &str) -> Vec<(String, String)> {
    let show = |span: Span| String::from_utf8_lossy(span.slice(text.as_bytes())).into_owned();
    head(text).slots.into_iter().map(|(name, value)| (show(name), show(value))).collect()
}

#[test]
fn accepted() {
    for (text, status, framing, persistent) in [
        ("HTTP/1.1 200 OK\r\n\r\n", 200, Framing::Close, true),
        ("HTTP/1.1 200\r\n\r\n", 200, Framing::Close, true),
        ("HTTP/1.1 200 \r\n\r\n", 200, Framing::Close, true),
        ("HTTP/1.1 404 N\u{e4}h\t!\r\n\r\n", 404, Framing::Close, true),
        ("HTTP/1.1 999 Linked In\r\n\r\n", 999, Framing::Close, true),
        ("HTTP/1.0 200 OK\r\n\r\n", 200, Framing::Close, false),
        (
            "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 3\r\n\r\n",
            200,
            Framing::Length(3),
            true,
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length:0007\r\n\r\n", 200, Framing::Length(7), true),
        (
            "HTTP/1.1 200 OK\r\nConnection: x, Close\r\nTransfer-Encoding: Chunked\r\n\r\n",
            200,
            Framing::Chunked,
            false,
        ),
        ("HTTP/1.1 100 Continue\r\n\r\n", 100, Framing::Close, true),
    ] {
        let head = head(text);
        assert_eq!((head.status, head.framing, head.persistent), (status, framing, persistent), "{text:?}");
    }
}

#[test]
fn refused() {
    for text in [
        "hello",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "http/1.1 200 OK\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/2 200\r\n\r\n",
        "HTTP/1.2 200 OK\r\n\r\n",
        "HTTP/1.10 200 OK\r\n\r\n",
        "HTTP/1 200 OK\r\n\r\n",
        "HTTP/1.1\r\n\r\n",
        "HTTP/1.1 \r\n\r\n",
        "HTTP/1.1\t200 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/1.1 99 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1 000 OK\r\n\r\n",
        "HTTP/1.1 1000 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 -200 OK\r\n\r\n",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/1.1 +20 OK\r\n\r\n",
        "HTTP/1.1 200OK\r\n\r\n",
        "HTTP/1.1 200\tOK\r\n\r\n",
        "HTTP/1.1 200 O\0K\r\n\r\n",
        "HTTP/1.1 200 O\rK\r\n\r\n",
        "HTTP/1.1 200 OK\n\n",
        "HTTP/1.1 200 OK\r\nA: b\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n\n",
        "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX A: b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX(A): b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551621\r\n\r\n",
        "HTTP/1.1 200 OK\r\n A: b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n\tc\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA\u{e4}: b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: \"chunked\"\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        assert!(parse(text.as_bytes(), &[]).is_err(), "{text:?}");
    }
}

#[test]
fn sizes_are_bounded() {
    let filler = "x".repeat(MAX);
    for text in [
        format!("HTTP/1.1 200 {filler}"),
        format!("HTTP/1.1 200 OK\r\nA: {filler}"),
        format!("HTTP/1.1 200 OK\r\n{}", "A: a longer value\r\n".repeat(MAX / 15)),
    ] {
        assert_eq!(parse(text.as_bytes(), &[]), Err("a head larger than max_response_head"));
    }
    let many = format!("HTTP/1.1 200 OK\r\n{}", "A:\r\n".repeat(257));
    assert_eq!(parse(many.as_bytes(), &[]), Err("more than 256 header fields"));
}

#[test]
fn hop_by_hop_fields_end_here() {
    let text = "HTTP/1.1 200 OK\r\nConnection: X-Mine, content-length\r\nX-Mine: 1\r\nKeep-Alive: timeout=5, max=9\r\nTE: a\r\n\
                Trailer: b\r\nUpgrade: h2c\r\nProxy-Connection: c\r\nProxy-Authenticate: d\r\nContent-Length: 4\r\nX-Other: e\r\n\r\n";
    assert_eq!(fields(text), [("Content-Length".into(), "4".into()), ("X-Other".into(), "e".into())]);
    assert_eq!(head(text).keep_alive, Some(5));
    let text = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    assert_eq!(fields(text), [("Upgrade".into(), "websocket".into())]);
    assert_eq!(head(text).upgrade.unwrap().slice(text.as_bytes()), b"websocket");
}

/// Generates pieces of valid and malformed heads.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 404\r\n",
        "HTTP/1.1 ",
        "HTTP/",
        "204 ",
        "\r\n",
        "\r",
        "\n",
        " ",
        "\t",
        ":",
        "\0",
        "Content-Length: 5\r\n",
        "Content-Length: ",
        "Transfer-Encoding: chunked\r\n",
        "Connection: close\r\n",
        "Connection: x-a\r\n",
        "X-A: b\r\n",
        "x",
        "\u{e4}",
        "Keep-Alive: timeout=3\r\n",
        "\r\n\r\n",
    ]);
    let tail = prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat().into_bytes());
    (any::<bool>(), tail).prop_map(|(begun, tail)| {
        let mut text = if begun { b"HTTP/1.1 200 OK\r\n".to_vec() } else { Vec::new() };
        text.extend(tail);
        text
    })
}

/// Generates mostly valid heads. Heads made of pieces alone are rarely valid, so comparing only those would
/// test little.
fn heads() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![20 => 0x20..0x7fu8, 3 => Just(b'\t'), 3 => 0x80..=0xffu8, 1 => any::<u8>()];
    let value = prop::collection::vec(byte, 0..12);
    let name = prop_oneof![
        20 => "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,10}",
        2 => prop::sample::select(vec!["Connection", "Keep-Alive", "Upgrade", "TE", "Trailer"]).prop_map(String::from),
        1 => "[ -~]{0,4}",
    ];
    let line =
        prop::sample::select(vec!["HTTP/1.1 200 OK", "HTTP/1.0 404", "HTTP/1.1 204 ", "HTTP/1.1 103 a\tb"]);
    let blank = prop::sample::select(vec!["", " ", "\t ", "  "]);
    let field = (name, blank.clone(), value, blank);
    (line, prop::collection::vec(field, 0..6), prop::collection::vec(any::<u8>(), 0..4)).prop_map(
        |(line, fields, behind)| {
            let mut text = [line.as_bytes(), b"\r\n"].concat();
            for (name, before, value, after) in fields {
                text.extend(
                    [name.as_bytes(), b":", before.as_bytes(), &value, after.as_bytes(), b"\r\n"].concat(),
                );
            }
            text.extend(b"\r\n");
            text.extend(behind);
            text
        },
    )
}

#[test]
fn the_comparison_with_httparse_compares_something() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let accepted = (0..500)
        .filter(|_| matches!(parse(&heads().new_tree(&mut runner).unwrap().current(), &[]), Ok(Some(_))))
        .count();
    assert!((100..490).contains(&accepted), "{accepted} of 500");
}

fn is_for_one_hop(name: &[u8]) -> bool {
    let hop = ["connection", "keep-alive", "upgrade", "te", "trailer", "transfer-encoding"];
    hop.iter().any(|hop| name.eq_ignore_ascii_case(hop.as_bytes()))
}

/// Returns whether `Connection` names the field.
fn named(fields: &[(&[u8], &[u8])], name: &[u8]) -> bool {
    fields.iter().any(|(other, value)| other.eq_ignore_ascii_case(b"connection") && lists(value, name))
}

proptest! {
    #[test]
    fn any_split_gives_the_same(text in prop_oneof![pieces(), heads()], cuts in prop::collection::vec(any::<usize>(), 0..8)) {
        let every: Vec<usize> = (0..text.len()).collect();
        let whole = parse(&text, &[]);
        prop_assert_eq!(&parse(&text, &cuts), &whole);
        prop_assert_eq!(&parse(&text, &every), &whole);
    }

    #[test]
    fn any_bytes_give_the_same(text in prop::collection::vec(any::<u8>(), 0..80), cuts in prop::collection::vec(any::<usize>(), 0..8)) {
        prop_assert_eq!(parse(&text, &cuts), parse(&text, &[]));
    }

    #[test]
    fn what_is_accepted_httparse_accepts_with_the_same_fields(text in prop_oneof![1 => pieces(), 3 => heads()]) {
        if let Ok(Some((end, head))) = parse(&text, &[]) {
            let mut headers = [httparse::EMPTY_HEADER; 64];
            let mut judge = httparse::Response::new(&mut headers);
            prop_assert_eq!(judge.parse(&text), Ok(httparse::Status::Complete(end)));
            prop_assert_eq!(judge.code, Some(head.status));
            let theirs: Vec<_> = judge.headers.iter().map(|h| (h.name.as_bytes(), h.value)).collect();
            // Only hop-by-hop fields are missing; none is added, changed or moved.
            let hop = |name: &[u8]| is_for_one_hop(name) || named(&theirs, name);
            let expected = theirs.iter().filter(|(name, _)| !hop(name)).count();
            prop_assert_eq!(head.slots.iter().filter(|(name, _)| !hop(name.slice(&text))).count(), expected);
            let mut rest = theirs.iter();
            for (name, value) in &head.slots {
                let ours = (name.slice(&text), value.slice(&text));
                prop_assert!(rest.any(|theirs| *theirs == ours), "{:?} in order in {:?}", ours, theirs);
            }
        }
    }
}
