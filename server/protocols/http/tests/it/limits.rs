//! Tests limits on size and time over real sockets.

use crate::support;

use http::{Limits, Timeouts};
use std::time::{Duration, Instant};
use support::{Server, get, post};

const SHORT: Duration = Duration::from_millis(300);

#[test]
fn sizes_have_their_statuses() {
    let server = Server::start(Limits {
        max_uri: 50,
        max_header_bytes: 300,
        max_headers: 3,
        max_body: Some(10),
        ..Limits::default()
    });
    let chunked =
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n0\r\n\r\n";
    for (request, status) in [
        (get(&format!("/{}", "u".repeat(60))), 414),
        (format!("GET / HTTP/1.1\r\nHost: x\r\nA: {}\r\n\r\n", "v".repeat(400)), 431),
        (String::from("GET / HTTP/1.1\r\nHost: x\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n"), 431),
        (post("/echo", "01234567890"), 413),
        (
            String::from(
                "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n",
            ),
            413,
        ),
        (String::from(chunked), 413),
        (String::from("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n"), 413),
        (String::from("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"), 501),
        (String::from("BREW / HTTP/2.0\r\n\r\n"), 505),
        (String::from("\u{16}\u{3}\u{1}\u{2}"), 400),
        (String::from("nonsense\r\n"), 400),
    ] {
        let mut client = server.connect();
        client.send(&request).send(get("/smuggled"));
        let answer = client.read();
        assert_eq!((answer.status, answer.field("connection")), (status, Some("close")), "{request:?}");
        assert!(client.is_closed());
    }
    assert_eq!(server.connect().send(post("/echo", "0123456789")).read().status, 200);
    assert!(!server.has_noted("GET /smuggled"));
    let told = |server: &Server| {
        server.log.lock().unwrap().iter().filter(|line| line.starts_with("finished")).count()
    };
    server.eventually("each is told", |server| told(server) >= 12);
    assert_eq!(told(&server), 12, "once");
}

#[test]
fn a_refusal_reaches_a_client_that_is_still_sending() {
    let server = Server::start(Limits { max_body: Some(10), ..Limits::default() });
    let mut client = server.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n");
    for _ in 0..50 {
        client.send(vec![b'x'; 100_000]);
    }
    assert_eq!(client.read().status, 413);
}

#[test]
fn requests_per_connection() {
    let server = Server::start(Limits { max_requests_per_connection: Some(2), ..Limits::default() });
    let mut client = server.connect();
    assert_eq!(client.get("/a").field("connection"), None);
    assert_eq!(client.get("/b").field("connection"), Some("close"));
    assert!(client.is_closed());
    let mut client = server.connect();
    client.send(get("/c").repeat(2) + &get("/beyond"));
    assert_eq!((client.read().status, client.read().status), (200, 200));
    assert!(client.is_closed() && !server.has_noted("GET /beyond"));
    let server = Server::start(Timeouts { keep_alive: Duration::ZERO, ..Timeouts::default() });
    assert_eq!(server.connect().get("/a").field("connection"), Some("close"));
}

#[test]
fn underscores() {
    let text = "GET /a HTTP/1.1\r\nHost: x\r\nTransfer_Encoding: chunked\r\n\r\n";
    for allow_underscore_headers in [false, true] {
        let server = Server::start(Limits { allow_underscore_headers, ..Limits::default() });
        assert_eq!(server.connect().send(text).read().status, 200);
    }
}

#[test]
fn a_head_that_takes_too_long() {
    let server = Server::start(Timeouts { header: SHORT, keep_alive: SHORT, ..Timeouts::default() });
    let mut slow = server.connect();
    let start = Instant::now();
    slow.send("GET / HT");
    std::thread::sleep(SHORT / 2);
    slow.send("TP/1.1\r\n");
    assert_eq!(slow.read().status, 408);
    assert!(start.elapsed() >= SHORT, "not early");
    assert!(slow.is_closed());
    let mut silent = server.connect();
    assert!(silent.is_closed(), "who said nothing is told nothing");
    let mut idle = server.connect();
    assert_eq!(idle.get("/a").status, 200);
    assert!(idle.is_closed());
    server.eventually("none is left", |s| s.connections().open == 0);
}

#[test]
fn a_body_that_comes_too_slowly() {
    let rate =
        Timeouts { body_min_rate: Some(1000), body_grace: Duration::from_secs(1), ..Timeouts::default() };
    let server = Server::start(rate);
    let mut slow = server.connect();
    slow.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n");
    for _ in 0..3 {
        slow.send("x");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(slow.read().status, 408);
    assert!(slow.is_closed());
    let mut stopped = server.connect();
    stopped.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\nabc");
    assert_eq!(stopped.read().status, 408);
    let mut steady = server.connect();
    steady.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 15000\r\n\r\n");
    for _ in 0..15 {
        steady.send([b'x'; 1000]);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(steady.read().status, 200);
}

#[test]
fn a_client_that_takes_nothing() {
    let server = Server::start(Timeouts { send: SHORT, ..Timeouts::default() });
    for path in ["/endless", "/big", "/file-big"] {
        let mut client = server.connect();
        client.send(get(path).repeat(8));
        server.eventually("it is given up", |s| {
            s.log
                .lock()
                .unwrap()
                .iter()
                .any(|line| line.starts_with(&format!("finished {path} 200")) && line.ends_with("broken"))
        });
        drop(client);
    }
}
