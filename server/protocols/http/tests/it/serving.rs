//! Tests the engine over real sockets: connections, framing of responses, bodies, connection ends.

use crate::support;

use http::Limits;
use std::net::Shutdown;
use std::time::Duration;
use support::{Server, get, post};

fn server() -> Server {
    Server::start(Limits::default())
}

#[test]
fn keep_alive_and_the_ways_to_end_it() {
    let server = server();
    let mut client = server.connect();
    for i in 0..3 {
        let answer = client.get(&format!("/n{i}?q"));
        assert_eq!((answer.status, answer.text()), (200, &*format!("/n{i}?q")));
        assert_eq!(answer.field("connection"), None);
        assert!(answer.field("date").is_some_and(|date| date.ends_with(" GMT")));
    }
    let answer = client.get("/close");
    assert_eq!((answer.field("connection"), answer.text()), (Some("close"), "bye"));
    assert!(client.is_closed());

    let mut client = server.connect();
    client.send("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").send(get("/b"));
    assert_eq!(client.read().field("connection"), Some("close"));
    assert!(client.is_closed());
    assert!(!server.has_noted("GET /b"));

    let mut client = server.connect();
    client.send("GET /a HTTP/1.0\r\n\r\n");
    assert_eq!(client.read().field("connection"), Some("close"));
    assert!(client.is_closed());
    let mut client = server.connect();
    client.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.read().field("connection"), Some("keep-alive"));
    assert!(client.is_silent());
    server.eventually("what a handler adds comes back", |s| s.has_noted("finished /a 200 3 added"));
}

#[test]
fn a_kept_body_is_sent_like_any_other() {
    let server = server();
    let mut client = server.connect();
    for path in ["/kept", "/kept-with-more", "/kept-large"] {
        let long = if path == "/kept-large" { 100_000 } else { 3 };
        for _ in 0..3 {
            let answer = client.get(path);
            assert_eq!((answer.status, answer.text()), (200, &*"k".repeat(long)), "{path}");
            assert_eq!(answer.field("content-length"), Some(&*long.to_string()));
            assert_eq!(answer.field("x-more").is_some(), path == "/kept-with-more");
            assert_eq!(
                (answer.field("content-type"), answer.field("connection")),
                (Some("text/plain"), None)
            );
            assert!(answer.field("date").is_some_and(|date| date.ends_with(" GMT")));
        }
    }
    client.send(get("/kept") + &get("/kept-large") + &get("/kept"));
    assert_eq!(
        [client.read().text().len(), client.read().text().len(), client.read().text().len()],
        [3, 100_000, 3]
    );
    client.send("HEAD /kept HTTP/1.1\r\nHost: x\r\n\r\n");
    let head = client.read_head();
    assert_eq!(head.field("content-length"), Some("3"));
    client.send("GET /kept HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!(client.read().field("connection"), Some("close"));
    assert!(client.is_closed());
    let mut client = server.connect();
    client.send("GET /kept HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.read().field("connection"), Some("keep-alive"));
    server
        .eventually("the bytes of the body are counted", |s| s.has_noted("finished /kept-large 200 100000"));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = server();
    let mut client = server.connect();
    let mut all = get("/slow") + &post("/echo", "one");
    all += "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ntwo\r\n0\r\nX-T: t\r\n\r\n\r\n\r\n";
    all += &(0..300).map(|i| get(&format!("/p{i}"))).collect::<String>();
    client.send(all);
    assert_eq!(client.read().text(), "slow");
    assert_eq!(client.read().text(), "one");
    assert_eq!(client.read().text(), "two");
    for i in 0..300 {
        assert_eq!(client.read().text(), format!("/p{i}?"));
    }
    assert!(client.is_silent());
}

#[test]
fn requests_in_single_bytes() {
    let server = server();
    let mut client = server.connect();
    let chunked =
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
    for text in [post("/echo", "body"), String::from(chunked)] {
        for byte in text.bytes() {
            client.send([byte]);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(client.read().text(), "body");
    assert_eq!(client.read().text(), "abc");
}

#[test]
fn framing_of_responses() {
    every_framing(&server());
}

/// Encryption may hold bytes back when the socket is full; all of them must be flushed.
#[test]
fn framing_of_responses_over_a_transport_that_holds_bytes_back() {
    let server = Server::start_holding(Limits::default());
    every_framing(&server);
    let mut client = server.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.read_head().status, 100);
    assert_eq!(client.send("hello").read().text(), "hello");
    client.send(get("/tunnel")).send("early ");
    assert_eq!(client.read_head().status, 101);
    client.send("late").stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.read_to_end(), b"EARLY LATE(end)");
}

fn every_framing(server: &Server) {
    let mut client = server.connect();
    for (path, body, length) in [
        ("/stream", "onetwothree", None),
        ("/stream-6", "onetwo", Some("6")),
        ("/file", "file", Some("4")),
        ("/wrong-length", "hello", Some("5")),
        ("/205", "", Some("0")),
    ] {
        let answer = client.get(path);
        assert_eq!((answer.text(), answer.field("content-length")), (body, length), "{path}");
        assert_eq!(answer.field("transfer-encoding").is_some(), length.is_none(), "{path}");
    }
    let answer = client.get("/stream-mixed");
    assert_eq!(answer.body, [&b"<23456"[..], &vec![b'y'; 30_000], b">"].concat());
    assert_eq!(client.get("/big").body.len(), 3 << 20);
    assert_eq!(client.get("/file-big").body.len(), 3 << 20);
    for status in [204, 304] {
        let answer = client.get(&format!("/{status}"));
        assert_eq!((answer.status, answer.field("content-length")), (status, None));
    }
    let answer = client.get("/filtered");
    assert_eq!(
        (answer.field("transfer-encoding"), answer.field("keep-alive"), answer.field("date")),
        (None, None, Some("mine"))
    );
    assert_eq!(client.get("/split").status, 500);
    let mut client = server.connect();
    assert_eq!(client.get("/bad-name").status, 500);
    assert_eq!(server.connect().get("/150").status, 500);
    assert!(client.is_silent());
}

#[test]
fn what_an_app_has_coded_in_chunks_is_not_coded_twice() {
    let server = server();
    let mut client = server.connect();
    let answer = client.get("/precoded");
    assert_eq!((answer.text(), answer.field("content-length")), ("onetwo", None));
    let answer = client.get("/precoded-bytes");
    assert_eq!((answer.text(), answer.field("content-length")), ("one", Some("3")));
    client.send("GET /precoded HTTP/1.0\r\n\r\n");
    assert_eq!(client.read().text(), "onetwo");
    assert_eq!(server.connect().get("/not-precoded").status, 500);
}

#[test]
fn head_requests_have_no_body() {
    let server = server();
    let mut client = server.connect();
    for (path, length) in [
        ("/a", Some("3")),
        ("/stream", None),
        ("/stream-6", Some("6")),
        ("/file", Some("4")),
        ("/head", Some("77")),
        ("/200-empty", None),
    ] {
        client.send(format!("HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        let answer = client.read_head();
        assert_eq!((answer.status, answer.field("content-length")), (200, length), "{path}");
        assert!(client.is_silent(), "{path}");
    }
}

#[test]
fn a_body_that_breaks_off_can_be_told_from_a_complete_one() {
    let server = server();
    let mut client = server.connect();
    client.send(get("/stream-long"));
    assert_eq!(client.read().text(), "onet", "what is too much is cut");
    assert!(client.is_closed());
    let mut client = server.connect();
    client.send(get("/stream-short"));
    assert!(client.read_to_end().ends_with(b"one"));
    let mut client = server.connect();
    client.send(get("/stream-broken"));
    assert!(client.read_to_end().ends_with(b"3\r\none\r\n"), "no last chunk");
    let mut client = server.connect();
    client.send(get("/file-short"));
    assert!(client.read_to_end().ends_with(b"short"));
    let mut client = server.connect();
    client.send("GET /stream-broken HTTP/1.0\r\n\r\n");
    let mut bytes = Vec::new();
    let error =
        std::io::Read::read_to_end(&mut client.stream, &mut bytes).expect_err("a reset instead of an end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let mut client = server.connect();
    client.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.read().text(), "onetwothree");
    server.eventually("the ends are told", |s| s.has_noted("finished /stream-short 200 3 broken"));
}

#[test]
fn request_bodies() {
    let server = server();
    let mut client = server.connect();
    let large = "z".repeat(700_000);
    assert_eq!(client.send(post("/echo", &large)).read().text(), large);
    let answer = client.send(post("/spool", &large)).read();
    assert_eq!((answer.field("x-spooled"), answer.text()), (Some("yes"), &*large));
    let answer = client.send(post("/spool", "more than ten")).read();
    assert_eq!((answer.field("x-spooled"), answer.text()), (Some("yes"), "more than ten"));
    assert_eq!(client.send(post("/echo", "")).read().text(), "");
    let chunks: String = (0..200).map(|_| format!("400\r\n{}\r\n", "c".repeat(1024))).collect();
    client.send(format!(
        "POST /spool HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"
    ));
    assert_eq!(client.read().body.len(), 200 * 1024);
    // Unread bodies: a short one is discarded, a long one ends the connection.
    let smuggled = get("/smuggled").repeat(50);
    assert_eq!(client.send(post("/a", &smuggled)).read().text(), "/a?");
    let unread = "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(unread).send("5\r\nabcde\r\n0\r\n\r\n");
    assert_eq!(client.read().text(), "/a?");
    assert_eq!(client.get("/b").text(), "/b?");
    client.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\nabc");
    assert_eq!(client.read().field("connection"), Some("close"));
    assert!(client.is_closed());
    assert_eq!(server.connect().send(post("/no-temp-dir", "abc")).read().status, 500);
    assert!(server.log.lock().unwrap().iter().any(|line| line.contains("/nonexistent/spool")));
    assert!(!server.has_noted("GET /smuggled"));
}

#[test]
fn a_broken_body_is_refused_and_nothing_after_it_is_read() {
    let server = server();
    let head = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    for coded in ["5\n", "g\r\n", "5\r\n123456", "0\r\nX : b\r\n\r\n"] {
        let mut client = server.connect();
        client.send(head).send(coded).send(get("/smuggled"));
        let answer = client.read();
        assert_eq!((answer.status, answer.field("connection")), (400, Some("close")), "{coded:?}");
        assert!(client.is_closed());
    }
    let mut client = server.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read().status, 400);
    assert!(!server.has_noted("GET /smuggled"));
}

#[test]
fn expect_continue() {
    let server = server();
    let mut client = server.connect();
    let head = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    client.send(head);
    assert_eq!(client.read_head().status, 100);
    assert_eq!(client.send("hello").read().text(), "hello");
    assert_eq!(client.send(format!("{head}hello")).read().status, 200, "none for a body that is there");
    client.send(head.replace("/echo", "/a"));
    let answer = client.read();
    assert_eq!(
        (answer.status, answer.field("connection")),
        (200, Some("close")),
        "nobody knows whether the body comes"
    );
    assert!(client.is_closed());
    let mut client = server.connect();
    client.send(head.replace("100-continue", "magic")).send("hello");
    assert_eq!(client.read().status, 417);
    assert!(client.is_closed());
}

#[test]
fn interim_responses() {
    let server = server();
    let mut client = server.connect();
    client.send(get("/early"));
    let hints = client.read_head();
    assert_eq!((hints.status, hints.field("link")), (103, Some("</a.css>; rel=preload")));
    assert_eq!(client.read().text(), "after hints");
    client.send("GET /early HTTP/1.0\r\n\r\n");
    assert_eq!(client.read_head().status, 200, "HTTP/1.0 has none");
}

#[test]
fn departures() {
    let server = server();
    let mut client = server.connect();
    client.send(get("/gone?once"));
    server.eventually("the request is handled", |s| s.has_noted("GET /gone"));
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read().text(), "late", "half of the client still reads");
    assert!(server.has_noted("HalfClosed"));

    let client = server.connect();
    let mut client = client;
    client.send(get("/gone")).send(get("/pipelined"));
    server.eventually("the request is handled", |s| {
        s.log.lock().unwrap().iter().filter(|l| *l == "GET /gone").count() == 2
    });
    let socket = reset_on_drop(&client.stream);
    socket.unwrap();
    drop(client);
    server.eventually("the reset is noticed behind pipelined bytes", |s| s.has_noted("Gone"));
}

/// Makes closing the stream a reset.
fn reset_on_drop(stream: &std::net::TcpStream) -> std::io::Result<()> {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).map_err(Into::into)
}

#[test]
fn bytes_seen_while_waiting_are_not_lost_and_do_not_hide_the_end_behind_them() {
    let server = server();
    let mut client = server.connect();
    client.send(get("/gone?once"));
    server.eventually("the request is handled", |s| s.has_noted("GET /gone"));
    client.send(get("/after"));
    std::thread::sleep(Duration::from_millis(50));
    assert!(!server.has_noted("HalfClosed"), "bytes are no departure");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read().text(), "late");
    assert!(server.has_noted("HalfClosed"));
    assert_eq!(client.read().text(), "/after?");
    assert!(client.is_closed());
}

#[test]
fn streams_end_with_their_client() {
    let server = server();
    for path in ["/endless", "/silent"] {
        let mut client = server.connect();
        client.send(get(path));
        client.read_head();
        reset_on_drop(&client.stream).unwrap();
        drop(client);
        server.eventually("the stream is dropped", |s| {
            s.log
                .lock()
                .unwrap()
                .iter()
                .any(|line| line.starts_with(&format!("finished {path} 200")) && line.ends_with("broken"))
        });
        assert!(server.has_noted("stream dropped"));
        server.log.lock().unwrap().clear();
    }
}

#[test]
fn tunnels() {
    let server = server();
    let mut client = server.connect();
    client.send(get("/tunnel")).send("early ");
    let head = client.read_head();
    assert_eq!(
        (head.status, head.field("connection"), head.field("upgrade")),
        (101, Some("Upgrade"), Some("shout"))
    );
    client.send("hello");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read_to_end(), b"EARLY HELLO(end)");
    let mut client = server.connect();
    client.send(get("/tunnel-raw")).send("abc");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read_to_end(), b"ABC(end)");
    let mut client = server.connect();
    client.send(get("/tunnel-200"));
    let head = client.read_head();
    assert_eq!((head.field("connection"), head.field("content-length")), (Some("close, Upgrade"), None));
    let big = "m".repeat(2 << 20);
    let mut writer = client.stream.try_clone().unwrap();
    let sending = big.clone();
    let thread = std::thread::spawn(move || {
        std::io::Write::write_all(&mut writer, sending.as_bytes()).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    assert_eq!(client.read_to_end(), (big.to_ascii_uppercase() + "(end)").as_bytes());
    thread.join().unwrap();
    server.eventually("a hijack is told", |s| s.has_noted("finished /tunnel 101 16 hijacked"));
    server.eventually("also without a head", |s| s.has_noted("finished /tunnel-raw 0 8 hijacked"));
}

#[test]
fn a_panic_ends_its_connection_only() {
    let server = server();
    let mut bystander = server.connect();
    assert_eq!(bystander.get("/a").status, 200);
    let mut client = server.connect();
    client.send(get("/panic"));
    assert!(client.is_closed());
    assert_eq!(bystander.get("/b").status, 200);
    server.eventually("it is told, once", |s| s.has_noted("finished /panic 0 0 broken"));
    server.eventually("it is not counted any more", |s| s.connections().open == 1);
}

#[test]
fn draining_ends_idle_connections_at_once_and_others_after_their_response() {
    let server = server();
    let (mut idle, mut busy) = (server.connect(), server.connect());
    assert_eq!(idle.get("/a").status, 200);
    busy.send(get("/slow"));
    server.eventually("one is active", |s| s.connections().active == 1 && s.connections().open == 2);
    server.drain();
    assert!(idle.is_closed());
    let answer = busy.read();
    assert_eq!((answer.text(), answer.field("connection")), ("slow", Some("close")));
    assert!(busy.is_closed());
    drop(busy);
    server.eventually("none is left", |s| s.connections() == http::Connections::default());
}
