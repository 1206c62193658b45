//! Tests backends that send invalid responses: the result for the client, and for the next request.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]

use crate::support;

use std::time::Duration;
use support::{Backend, Front};

/// The result that the client sees.
#[derive(Debug, Clone, Copy)]
enum Seen {
    /// A whole response.
    Whole(u16, &'static str),
    /// A whole response, after which the connection to the backend may be used again.
    Kept(u16, &'static str),
    /// A response that visibly breaks off.
    Broken(u16, &'static str),
    /// The proxy's error or a broken response, depending on how many bytes arrived with the head.
    Either,
    /// The proxy's error, and the reason in the log.
    Error(u16, &'static str),
}
use Seen::{Broken, Either, Error, Kept, Whole};

/// A backend's action after it has read a request; then it closes.
enum Does {
    Send(Vec<u8>),
    Wait(u64),
    /// Keeps the connection, and answers another request on it.
    Hold,
    Reset,
}

fn send(text: impl AsRef<[u8]>) -> Vec<Does> {
    vec![Does::Send(text.as_ref().to_vec())]
}

/// Sends, and keeps the connection open.
fn hold(text: impl AsRef<[u8]>) -> Vec<Does> {
    vec![Does::Send(text.as_ref().to_vec()), Does::Hold]
}

/// Sends in two parts, and keeps the connection open.
fn late(first: &str, second: &str) -> Vec<Does> {
    vec![Does::Send(first.into()), Does::Wait(100), Does::Send(second.into()), Does::Hold]
}

fn drip(text: &str, millis: u64) -> Vec<Does> {
    text.bytes().flat_map(|byte| [Does::Send(vec![byte]), Does::Wait(millis)]).collect()
}

fn ok(rest: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{rest}")
}

#[allow(clippy::too_many_lines, reason = "a table")]
fn cases() -> Vec<(&'static str, &'static str, Vec<Does>, Seen)> {
    let chunked = "Transfer-Encoding: chunked\r\n\r\n";
    let many = |line: &str, n: usize| ok(&line.repeat(n));
    vec![
        // Bytes that are not an HTTP/1 response.
        ("garbage", "GET", hold("\x16\x03\x01\x02garbage"), Error(502, "not those of an HTTP/1 response")),
        ("HTTP/0.9", "GET", send("<html>hello</html>"), Error(502, "not those of an HTTP/1 response")),
        (
            "blank lines first",
            "GET",
            hold(format!("\r\n{}", ok("\r\n"))),
            Error(502, "not those of an HTTP/1 response"),
        ),
        ("lower case", "GET", hold("http/1.1 200 OK\r\n\r\n"), Error(502, "not those of an HTTP/1 response")),
        ("HTTP/2.0", "GET", hold("HTTP/2.0 200 OK\r\n\r\n"), Error(502, "not those of an HTTP/1 response")),
        ("HTTP/1.2", "GET", hold("HTTP/1.2 200 OK\r\n\r\n"), Error(502, "version")),
        ("status 99", "GET", hold("HTTP/1.1 99 X\r\n\r\n"), Error(502, "three digits")),
        ("status 1000", "GET", hold("HTTP/1.1 1000 X\r\n\r\n"), Error(502, "three digits")),
        ("status 099", "GET", hold("HTTP/1.1 099 X\r\n\r\n"), Error(502, "three digits")),
        ("status abc", "GET", hold("HTTP/1.1 abc X\r\n\r\n"), Error(502, "three digits")),
        ("no status", "GET", hold("HTTP/1.1\r\n\r\n"), Error(502, "version")),
        // Heads.
        (
            "an endless status line",
            "GET",
            hold(format!("HTTP/1.1 200 {}", "x".repeat(40_000))),
            Error(502, "max_response_head"),
        ),
        (
            "an endless field",
            "GET",
            hold(ok(&format!("A: {}", "x".repeat(40_000)))),
            Error(502, "max_response_head"),
        ),
        ("too many fields", "GET", hold(many("A: b\r\n", 300)), Error(502, "more than 256")),
        ("a folded field", "GET", hold(ok("A: b\r\n c\r\n\r\n")), Error(502, "folded")),
        ("bare LF", "GET", hold("HTTP/1.1 200 OK\nContent-Length: 0\n\n"), Error(502, "without CR")),
        ("a blank before the colon", "GET", hold(ok("A : b\r\n\r\n")), Error(502, "field name")),
        ("NUL in a value", "GET", hold(ok("A: b\0c\r\n\r\n")), Error(502, "control byte")),
        ("CR in a value", "GET", hold(ok("A: b\rc\r\n\r\n")), Error(502, "control byte")),
        ("a field without a name", "GET", hold(ok(": b\r\n\r\n")), Error(502, "without a name")),
        ("a slow head", "GET", drip(&ok("A: bcdefghijklmnopqrst\r\n\r\n"), 50), Error(504, "read_timeout")),
        ("an end inside the head", "GET", send(ok("A: b")), Error(502, "inside the response head")),
        // Lengths.
        (
            "two lengths",
            "GET",
            hold(ok("Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!")),
            Error(502, "more than one"),
        ),
        (
            "a list of lengths",
            "GET",
            hold(ok("Content-Length: 5, 5\r\n\r\nhello")),
            Error(502, "not a number"),
        ),
        ("a negative length", "GET", hold(ok("Content-Length: -1\r\n\r\n")), Error(502, "not a number")),
        (
            "a huge length",
            "GET",
            hold(ok("Content-Length: 99999999999999999999\r\n\r\n")),
            Error(502, "not a number"),
        ),
        ("a signed length", "GET", hold(ok("Content-Length: +5\r\n\r\nhello")), Error(502, "not a number")),
        (
            "a length and chunks",
            "GET",
            hold(ok("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
            Error(502, "with Transfer-Encoding"),
        ),
        (
            "chunked not last",
            "GET",
            hold(ok("Transfer-Encoding: chunked, gzip\r\n\r\n")),
            Error(502, "chunked not last"),
        ),
        (
            "another coding",
            "GET",
            hold(ok("Transfer-Encoding: gzip\r\n\r\n")),
            Error(502, "other than chunked"),
        ),
        (
            "chunks in HTTP/1.0",
            "GET",
            hold(format!("HTTP/1.0 200 OK\r\n{chunked}0\r\n\r\n")),
            Error(502, "in HTTP/1.0"),
        ),
        // Bodies.
        ("an early end", "GET", send(ok("Content-Length: 10\r\n\r\nhello")), Broken(200, "hello")),
        (
            "a reset",
            "GET",
            vec![Does::Send(ok("Content-Length: 10\r\n\r\nhello").into()), Does::Wait(50), Does::Reset],
            Broken(200, "hello"),
        ),
        (
            "a reset after the head",
            "GET",
            vec![Does::Send(ok("Content-Length: 10\r\n\r\n").into()), Does::Reset],
            Broken(200, ""),
        ),
        ("silence in the body", "GET", hold(ok("Content-Length: 10\r\n\r\nhello")), Broken(200, "hello")),
        ("a bad chunk size", "GET", hold(ok(&format!("{chunked}5\r\nhello\r\nxyz\r\n"))), Either),
        ("a bad chunk end", "GET", hold(ok(&format!("{chunked}5\r\nhelloX"))), Either),
        (
            "a huge chunk size",
            "GET",
            hold(ok(&format!("{chunked}5\r\nhello\r\n11111111111111111\r\n"))),
            Either,
        ),
        (
            "chunks that overflow",
            "GET",
            hold(ok(&format!("{chunked}5\r\nhello\r\nffffffffffffffff\r\n"))),
            Either,
        ),
        ("an endless extension", "GET", hold(ok(&format!("{chunked}5;{}", "x".repeat(40_000)))), Either),
        ("an end between chunks", "GET", send(ok(&format!("{chunked}5\r\nhello\r\n"))), Broken(200, "hello")),
        (
            "an end before the last CRLF",
            "GET",
            send(ok(&format!("{chunked}5\r\nhello\r\n0\r\n"))),
            Broken(200, "hello"),
        ),
        ("endless trailers", "GET", hold(ok(&format!("{chunked}0\r\n{}", "A: b\r\n".repeat(9000)))), Either),
        (
            "a reset in a body until close",
            "GET",
            vec![Does::Send(ok("\r\nhello").into()), Does::Wait(50), Does::Reset],
            Broken(200, "hello"),
        ),
        (
            "bytes behind the body",
            "GET",
            hold(ok("Content-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond")),
            Whole(200, "hello"),
        ),
        (
            "bytes behind chunks",
            "GET",
            hold(ok(&format!("{chunked}5\r\nhello\r\n0\r\n\r\nmore"))),
            Whole(200, "hello"),
        ),
        (
            "bytes behind streamed chunks",
            "GET",
            late(&ok(&format!("{chunked}5\r\nhello\r\n")), "0\r\n\r\nHTTP/1.1 200 OK\r\n"),
            Whole(200, "hello"),
        ),
        (
            "bytes behind a streamed body",
            "GET",
            late(&ok("Content-Length: 7\r\n\r\nhello"), "!!HTTP/1.1 200 OK\r\n"),
            Whole(200, "hello!!"),
        ),
        (
            "a second answer later",
            "GET",
            vec![
                Does::Send(ok("Content-Length: 5\r\n\r\nhello").into()),
                Does::Wait(20),
                Does::Send(ok("Content-Length: 6\r\n\r\nsecond").into()),
                Does::Hold,
            ],
            Whole(200, "hello"),
        ),
        // Bodies where none is allowed.
        (
            "204 with a body",
            "GET",
            hold("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello"),
            Whole(204, ""),
        ),
        (
            "304 with a length",
            "GET",
            hold("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
            Kept(304, ""),
        ),
        ("HEAD with a body", "HEAD", hold(ok("Content-Length: 5\r\n\r\nhello")), Whole(200, "")),
        // Informational responses.
        (
            "101 that nobody asked for",
            "GET",
            hold("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"),
            Error(502, "101"),
        ),
        (
            "endless 1xx",
            "GET",
            hold("HTTP/1.1 100 Continue\r\n\r\n".repeat(200)),
            Error(502, "informational"),
        ),
        (
            "100, then an answer",
            "GET",
            hold(format!("HTTP/1.1 100 Continue\r\n\r\n{}", ok("Content-Length: 2\r\n\r\nhi"))),
            Kept(200, "hi"),
        ),
        // No response.
        ("an end without an answer", "GET", vec![], Error(502, "without an answer")),
        ("a reset without an answer", "GET", vec![Does::Reset], Error(502, "test: http://127.0.0.1:")),
        ("no answer", "GET", vec![Does::Hold], Error(504, "read_timeout")),
        // Unusual but valid responses.
        ("until close", "GET", send(ok("\r\nhello")), Whole(200, "hello")),
        ("HTTP/1.0", "GET", send("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello"), Whole(200, "hello")),
        ("no reason", "GET", hold("HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello"), Kept(200, "hello")),
        ("in many pieces", "GET", drip(&ok("Content-Length: 5\r\n\r\nhello"), 1), Whole(200, "hello")),
        (
            "chunks with trailers",
            "GET",
            hold(ok(&format!("{chunked}5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n"))),
            Kept(200, "hello"),
        ),
    ]
}

#[test]
fn hostile_backends_are_contained() {
    let threads: Vec<_> = cases()
        .into_iter()
        .map(|(name, method, does, seen)| {
            let thread = std::thread::Builder::new().name(name.into());
            thread.spawn(move || contained(name, method, does, seen)).unwrap()
        })
        .collect();
    let failed = threads.into_iter().filter_map(|thread| thread.join().err()).count();
    assert_eq!(failed, 0, "cases failed");
}

/// One backend that misbehaves once, and a request after it that must get its own answer on the client's connection.
fn contained(name: &str, method: &str, does: Vec<Does>, seen: Seen) {
    let backend = Backend::start(move |c| {
        if c.number > 0 {
            while c.head().is_some() {
                c.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nown");
            }
            return;
        }
        c.head();
        for one in &does {
            match one {
                Does::Send(bytes) => drop(c.send(bytes)),
                Does::Wait(millis) => std::thread::sleep(Duration::from_millis(*millis)),
                Does::Reset => c.reset(),
                Does::Hold => {
                    c.stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
                    if c.head().is_some() {
                        c.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nreused");
                    }
                }
            }
        }
    });
    let front = Front::to(&[&backend]);
    let mut client = front.connect();
    client.send(format!("{method} /odd HTTP/1.1\r\nHost: x\r\n\r\n"));
    let answer = client.read_to(method);
    let log = || front.log.lock().unwrap().join("; ");
    match seen {
        Whole(status, body) | Kept(status, body) => {
            assert!(
                answer.whole && answer.status == status && answer.text() == body,
                "{name}: {answer:?}; {}",
                log()
            );
            assert_eq!(log(), "", "{name}");
        }
        Broken(status, body) => {
            assert!(
                !answer.whole && answer.status == status && answer.text() == body,
                "{name}: {answer:?}; {}",
                log()
            );
            assert!(front.has_noted("50"), "{name}: {}", log());
        }
        Either => {
            let refused = answer.whole && answer.status == 502;
            assert!(refused || (!answer.whole && answer.status == 200), "{name}: {answer:?}");
            assert!(front.has_noted("502 test: "), "{name}: {}", log());
        }
        Error(status, reason) => {
            assert!(answer.whole && answer.status == status, "{name}: {answer:?}; {}", log());
            assert!(front.has_noted(reason), "{name}: {}", log());
        }
    }
    std::thread::sleep(Duration::from_millis(60));
    let mut client = if matches!(seen, Broken(..) | Either) { front.connect() } else { client };
    let next = client.get("/next");
    let expected = if matches!(seen, Kept(..)) { "reused" } else { "own" };
    assert_eq!((next.status, &*next.text()), (200, expected), "{name}, then; {}", log());
}
