//! Tests HTTP/3 over real sockets: the `h3` crate as the client, and clients that break rules.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]

use crate::support;

use settings::{Limits, Timeouts};
use std::time::{Duration, Instant};
use support::three::{exchange, get, request, start};

fn server() -> support::three::QuicServer {
    start(Limits::default())
}

#[test]
fn responses_of_all_kinds() {
    let quic = server();
    quic.with(async |quic| {
        let (mut requests, _connection, _endpoint) = quic.requests().await;
        let hello = get(&mut requests, "/hello?a=b").await;
        assert_eq!((hello.status, hello.text()), (200, "/hello?a=b"));
        assert_eq!(hello.field("content-length"), Some("10"));
        assert!(hello.field("date").is_some() && hello.field("connection").is_none());
        for (path, len) in
            [("/big", 3 << 20), ("/file-big", 3 << 20), ("/kept", 3), ("/kept-large", 100_000), ("/file", 4)]
        {
            let answer = get(&mut requests, path).await;
            assert_eq!((answer.status, answer.body.len()), (200, len), "{path}");
            assert_eq!(answer.field("content-length"), Some(len.to_string().as_str()), "{path}");
        }
        assert_eq!(get(&mut requests, "/kept-with-more").await.field("x-more"), Some("yes"));
        assert_eq!(get(&mut requests, "/stream").await.text(), "onetwothree");
        assert_eq!(get(&mut requests, "/stream-6").await.field("content-length"), Some("6"));
        assert_eq!(get(&mut requests, "/stream-mixed").await.body.len(), 1 + 5 + 30_000 + 1);
        assert_eq!(get(&mut requests, "/offers").await.body.len(), 60_010 * 400);
        assert_eq!(get(&mut requests, "/slow").await.text(), "slow");
        let filtered = get(&mut requests, "/filtered").await;
        assert_eq!(filtered.field("date"), Some("mine"));
        assert!(filtered.field("keep-alive").is_none() && filtered.field("transfer-encoding").is_none());
        for status in ["204", "304"] {
            let answer = get(&mut requests, &format!("/{status}")).await;
            assert_eq!((answer.status.to_string().as_str(), answer.body.len()), (status, 0));
        }
        assert_eq!(get(&mut requests, "/tunnel").await.status, 500, "nothing is upgraded");
        assert_eq!(get(&mut requests, "/split").await.status, 500);
        let head = exchange(&mut requests, request("HEAD", "/head"), b"").await;
        assert_eq!((head.status, head.field("content-length"), head.body.len()), (200, Some("77"), 0));
        for (path, length) in
            [("/kept", Some("3")), ("/big", Some("3145728")), ("/file", Some("4")), ("/stream", None)]
        {
            let head = exchange(&mut requests, request("HEAD", path), b"").await;
            assert_eq!((head.field("content-length"), head.body.len()), (length, 0), "HEAD {path}");
        }
    });
    quic.server.eventually("a log line", |server| server.has_noted("finished /hello 200 10 added"));
}

#[test]
fn bodies_of_requests() {
    let quic = start(Limits { max_body: Some(2_000_000), ..Limits::default() });
    quic.with(async |quic| {
        let (mut requests, _connection, _endpoint) = quic.requests().await;
        assert_eq!(exchange(&mut requests, request("POST", "/echo"), b"hello").await.text(), "hello");
        assert_eq!(exchange(&mut requests, request("POST", "/echo"), b"").await.text(), "");
        let large = vec![b'u'; 1_900_000];
        let spooled = exchange(&mut requests, request("POST", "/spool"), &large).await;
        assert_eq!((spooled.field("x-spooled"), spooled.body == large), (Some("yes"), true));
        let declared = http_types::Request::builder()
            .method("POST")
            .uri("https://localhost/echo")
            .header("content-length", "3000000")
            .body(())
            .unwrap();
        let mut stream = requests.send_request(declared).await.unwrap();
        assert_eq!(stream.recv_response().await.unwrap().status(), 413);
        let mut open = requests.send_request(request("POST", "/echo")).await.unwrap();
        // As much as the server takes: it refuses the rest.
        for _ in 0..40 {
            if open.send_data(vec![b'x'; 100_000].into()).await.is_err() {
                break;
            }
        }
        assert_eq!(open.recv_response().await.unwrap().status(), 413);
        let waiting = http_types::Request::builder()
            .method("POST")
            .uri("https://localhost/echo")
            .header("expect", "100-continue")
            .body(())
            .unwrap();
        let mut stream = requests.send_request(waiting).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        stream.send_data("late".into()).await.unwrap();
        stream.finish().await.unwrap();
    });
}

#[test]
fn the_rest_of_an_upload_is_dropped_within_bounds() {
    let quic = start(Limits { max_body: Some(1000), ..Limits::default() });
    quic.with(async |quic| {
        let (mut requests, _connection, _endpoint) = quic.requests().await;
        let declared = || {
            let request = http_types::Request::builder().method("POST").uri("https://localhost/echo");
            request.header("content-length", "3000000").body(()).unwrap()
        };
        for silent in [false, true] {
            let mut stream = requests.send_request(declared()).await.unwrap();
            assert_eq!(stream.recv_response().await.unwrap().status(), 413);
            while stream.recv_data().await.unwrap().is_some() {}
            // The response has arrived completely while the client is in the middle of its upload, which is
            // not stopped at once.
            let begun = Instant::now();
            tokio::time::sleep(Duration::from_millis(200)).await;
            if silent {
                tokio::time::sleep(Duration::from_secs(3)).await;
            } else {
                stream.send_data(vec![b'x'; 200_000].into()).await.unwrap();
                tokio::time::sleep(Duration::from_millis(200)).await;
                stream.send_data(vec![b'x'; 1000].into()).await.unwrap();
            }
            // More than the limit, or silence for too long.
            let stopped = loop {
                if let Err(error) = stream.send_data(vec![b'x'; 20_000].into()).await {
                    break error;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                assert!(begun.elapsed() < Duration::from_secs(10), "it is never stopped");
            };
            assert!(format!("{stopped:?}").contains("NO_ERROR"), "{stopped:?}");
            if !silent {
                assert!(begun.elapsed() < Duration::from_secs(2), "bytes are bounded as well as time");
            }
            assert_eq!(exchange(&mut requests, request("POST", "/echo"), b"next").await.text(), "next");
        }
    });
}

#[test]
fn streams_break_without_their_connection() {
    let quic = server();
    quic.with(async |quic| {
        let (mut requests, _connection, _endpoint) = quic.requests().await;
        for path in ["/panic", "/stream-broken", "/stream-short", "/stream-long", "/file-short"] {
            let mut stream = requests.send_request(request("GET", path)).await.unwrap();
            stream.finish().await.unwrap();
            let mut broke = false;
            match stream.recv_response().await {
                Ok(_) => loop {
                    match stream.recv_data().await {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(_) => {
                            broke = true;
                            break;
                        }
                    }
                },
                Err(_) => broke = true,
            }
            assert!(broke, "{path} looks complete");
            assert_eq!(get(&mut requests, "/alive").await.status, 200, "after {path}");
        }
    });
    quic.server.eventually("reports", |server| {
        ["finished /stream-broken 200 3 broken", "finished /panic 0 0 broken"]
            .iter()
            .all(|line| server.has_noted(line))
    });
}

#[test]
fn clients_that_go_away() {
    let quic = server();
    quic.with(async |quic| {
        let (mut requests, connection, endpoint) = quic.requests().await;
        let mut stream = requests.send_request(request("GET", "/gone")).await.unwrap();
        stream.finish().await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        stream.stop_sending(h3::error::Code::H3_REQUEST_CANCELLED);
        while !quic.server.has_noted("Gone") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut stream = requests.send_request(request("GET", "/endless")).await.unwrap();
        stream.finish().await.unwrap();
        stream.recv_response().await.unwrap();
        drop(stream);
        while !quic.server.has_noted("stream dropped") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut stream = requests.send_request(request("GET", "/endless")).await.unwrap();
        stream.finish().await.unwrap();
        stream.recv_response().await.unwrap();
        connection.close(0u32.into(), b"");
        endpoint.wait_idle().await;
    });
    quic.server.eventually("the end of the second stream", |server| {
        server.log.lock().unwrap().iter().filter(|line| *line == "stream dropped").count() == 2
    });
    quic.server.eventually("no connection", |server| server.connections().open == 0);
}

#[test]
fn many_streams_at_once() {
    let quic = server();
    quic.with(async |quic| {
        let (requests, _connection, _endpoint) = quic.requests().await;
        let streams = (0..500).map(|number| {
            let mut requests = requests.clone();
            tokio::task::spawn_local(async move {
                let answer = get(&mut requests, &format!("/number/{number}")).await;
                assert_eq!(answer.text(), format!("/number/{number}?"));
            })
        });
        for stream in streams.collect::<Vec<_>>() {
            stream.await.unwrap();
        }
    });
}

#[test]
fn draining_finishes_what_has_begun() {
    let quic = server();
    quic.with(async |quic| {
        let (mut requests, connection, _endpoint) = quic.requests().await;
        let mut slow = requests.send_request(request("GET", "/slow")).await.unwrap();
        slow.finish().await.unwrap();
        while !quic.server.has_noted("GET /slow") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        quic.server.drain();
        assert_eq!(slow.recv_response().await.unwrap().status(), 200);
        while slow.recv_data().await.unwrap().is_some() {}
        drop(slow);
        connection.closed().await;
    });
    quic.server.eventually("no connection", |server| server.connections().open == 0);
}

#[test]
fn idle_connections_end() {
    let keep_alive = Duration::from_millis(300);
    let quic = start(Timeouts { keep_alive, ..Timeouts::default() });
    quic.with(async |quic| {
        let (mut requests, connection, _endpoint) = quic.requests().await;
        assert_eq!(get(&mut requests, "/x").await.status, 200);
        connection.closed().await;
    });
}

#[test]
fn a_request_that_does_not_arrive_gets_408() {
    let quic = start(Timeouts { header: Duration::from_millis(200), ..Timeouts::default() });
    quic.with(async |quic| {
        let (_endpoint, connection, _control) = quic.raw().await;
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        send.write_all(&[1, 50, 0, 0]).await.unwrap();
        let head = receive.read_chunk(1000, true).await.unwrap().unwrap();
        assert!(head.bytes.windows(3).any(|window| window == b"408"), "{:?}", head.bytes);
    });
}

/// Violations of the connection's rules close it with the right code; the next connection is served.
#[test]
fn broken_rules_close_the_connection() {
    let quic = server();
    quic.with(async |quic| {
        // (unidirectional?, bytes, code)
        let cases: &[(bool, &[u8], u64)] = &[
            (true, &[0, 4, 0], 0x103),
            (true, &[1, 0], 0x103),
            (true, &[2, 0x3f, 0xe1, 0x1f], 0x201),
            (true, &[3, 0x81], 0x202),
            (false, &[0, 1, b'x'], 0x105),
            (false, &[4, 0], 0x105),
            (false, &[2, 0], 0x105),
            // Streams that must not exist, a second stream of a kind, invalid instructions.
            (true, &[2, 0x80], 0x201),
            (true, &[2, 0x40], 0x201),
            (true, &[2, 0x00], 0x201),
            (true, &[3, 0x00], 0x202),
            (true, &[3, 0x01], 0x202),
            // Frames of control streams and of HTTP/2 in a request, in every encoding of their type.
            (false, &[3, 1, 0], 0x105),
            (false, &[5, 1, 0], 0x105),
            (false, &[6, 0], 0x105),
            (false, &[7, 1, 0], 0x105),
            (false, &[8, 0], 0x105),
            (false, &[9, 0], 0x105),
            (false, &[0x0d, 1, 0], 0x105),
            (false, &[0x40, 0x04, 0], 0x105),
            (false, &[0x80, 0x0f, 0x07, 0x00, 1, 0], 0x105),
            (false, &[0x80, 0x0f, 0x07, 0x01, 1, 0], 0x105),
            // DATA after trailers, and a third field section.
            (false, &[1, 8, 0, 0, 0xd1, 0xd7, 0xc1, 0x50, 1, b'x', 1, 2, 0, 0, 0, 0], 0x105),
            (false, &[1, 8, 0, 0, 0xd1, 0xd7, 0xc1, 0x50, 1, b'x', 1, 2, 0, 0, 1, 2, 0, 0], 0x105),
            // References to an empty table: required insert count, base, indexed, names, post-base.
            (false, &[1, 2, 0, 1], 0x200),
            (false, &[1, 2, 0, 0x80], 0x200),
            (false, &[1, 3, 0, 0, 0x80], 0x200),
            (false, &[1, 3, 0, 0, 0x10], 0x200),
            (false, &[1, 4, 0, 0, 0x40, 0], 0x200),
            (false, &[1, 4, 0, 0, 0x00, 0], 0x200),
            // A string longer than its section, an integer that never ends, an index beyond the static table,
            // an empty section.
            (false, &[1, 4, 0, 0, 0x50, 9], 0x200),
            (false, &[1, 14, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], 0x200),
            (false, &[1, 4, 0, 0, 0xff, 0x24], 0x200),
            (false, &[1, 0], 0x200),
            (false, &[1, 2, 5, 0], 0x200),
            (false, &[1, 4, 0, 0, 0xff, 0x7f], 0x200),
        ];
        for (unidirectional, bytes, code) in cases {
            let (_endpoint, connection, _control) = quic.raw().await;
            // Kept alive: dropping it would end or reset the stream.
            let mut stream = if *unidirectional {
                connection.open_uni().await.unwrap()
            } else {
                connection.open_bi().await.unwrap().0
            };
            stream.write_all(bytes).await.unwrap();
            match connection.closed().await {
                quic::quinn::ConnectionError::ApplicationClosed(close) => {
                    assert_eq!(u64::from(close.error_code), *code, "{bytes:x?}");
                }
                other => panic!("{bytes:x?}: {other}"),
            }
        }
        // The control stream itself.
        for (bytes, code) in [
            (&[0, 7, 1, 0][..], 0x10a),
            (&[0, 0x21, 0], 0x10a),
            (&[0, 4, 2, 2, 0], 0x109),
            (&[0, 4, 4, 6, 0, 6, 0], 0x109),
            (&[0, 4, 1, 6], 0x106),
            (&[0, 4, 0, 4, 0], 0x105),
            (&[0, 4, 0, 0, 1, 0], 0x105),
            (&[0, 4, 0, 1, 1, 0], 0x105),
            (&[0, 4, 0, 5, 1, 0], 0x105),
            (&[0, 4, 0, 2, 0], 0x105),
            (&[0, 4, 0, 6, 0], 0x105),
            (&[0, 4, 0, 8, 0], 0x105),
            (&[0, 4, 0, 9, 0], 0x105),
            // GOAWAY and MAX_PUSH_ID of a wrong size and in the wrong direction; pushes that were not promised.
            (&[0, 4, 0, 7, 0], 0x106),
            (&[0, 4, 0, 7, 2, 0, 0], 0x106),
            (&[0, 4, 0, 7, 1, 4, 7, 1, 8], 0x108),
            (&[0, 4, 0, 0x0d, 1, 9, 0x0d, 1, 8], 0x108),
            (&[0, 4, 0, 3, 1, 0], 0x108),
            // PRIORITY_UPDATE without a stream, for a stream that is not a request's, beyond the limit, for a push.
            (&[0, 4, 0, 0x80, 0x0f, 0x07, 0x00, 0], 0x106),
            (&[0, 4, 0, 0x80, 0x0f, 0x07, 0x00, 1, 3], 0x108),
            (&[0, 4, 0, 0x80, 0x0f, 0x07, 0x00, 4, 0x80, 0x10, 0, 0], 0x108),
            (&[0, 4, 0, 0x80, 0x0f, 0x07, 0x01, 1, 0], 0x108),
            // A length beyond any memory.
            (&[0, 4, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 0x107),
            (&[0, 4, 0, 7, 0xbf, 0xff, 0xff, 0xff], 0x107),
        ] {
            let (_endpoint, connection) = quic.connect().await;
            let mut control = connection.open_uni().await.unwrap();
            control.write_all(bytes).await.unwrap();
            match connection.closed().await {
                quic::quinn::ConnectionError::ApplicationClosed(close) => {
                    assert_eq!(u64::from(close.error_code), code, "{bytes:x?}");
                }
                other => panic!("{bytes:x?}: {other}"),
            }
        }
        let (_endpoint, connection, mut control) = quic.raw().await;
        control.finish().unwrap();
        assert!(matches!(connection.closed().await, quic::quinn::ConnectionError::ApplicationClosed(close) if u64::from(close.error_code) == 0x104));
        // The other critical streams, ended and reset.
        for kind in [2, 3] {
            for ends in [true, false] {
                let (_endpoint, connection, _control) = quic.raw().await;
                let mut stream = connection.open_uni().await.unwrap();
                stream.write_all(&[kind]).await.unwrap();
                if ends {
                    stream.finish().unwrap();
                } else {
                    // The type has to arrive before the reset, which discards data in flight.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    stream.reset(0u32.into()).unwrap();
                }
                assert!(matches!(connection.closed().await, quic::quinn::ConnectionError::ApplicationClosed(close) if u64::from(close.error_code) == 0x104));
            }
        }
        for kind in [0, 2, 3] {
            let (_endpoint, connection, _control) = quic.raw().await;
            let mut streams = Vec::new();
            for _ in 0..2 {
                let mut stream = connection.open_uni().await.unwrap();
                let text: &[u8] = if kind == 0 { &[0, 4, 0] } else { &[kind] };
                stream.write_all(text).await.unwrap();
                streams.push(stream);
            }
            assert!(matches!(connection.closed().await, quic::quinn::ConnectionError::ApplicationClosed(close) if u64::from(close.error_code) == 0x103));
        }
        let (mut requests, connection, endpoint) = quic.requests().await;
        assert_eq!(get(&mut requests, "/alive").await.status, 200);
        connection.close(0x100u32.into(), b"");
        endpoint.wait_idle().await;
    });
    quic.server.eventually("no connection", |server| server.connections().open == 0);
}

/// Violations of a request's rules reset its stream or get a response; the connection continues.
#[test]
fn broken_requests_end_their_stream_only() {
    let quic = server();
    quic.with(async |quic| {
        let (_endpoint, connection, _control) = quic.raw().await;
        let get: &[u8] = &[1, 8, 0, 0, 0xd1, 0xd7, 0xc1, 0x50, 1, b'x'];
        for (bytes, code) in [
            (vec![], 0x10d),
            (vec![0x21, 3, 1, 2, 3], 0x10d),
            // No :scheme, :path and :authority.
            (vec![1, 3, 0, 0, 0xd1], 0x10e),
            // A pseudo-header field after a field.
            ([&[1, 14, 0, 0, 0xd1, 0xd7, 0xc1][..], b"\x23x-a\x01b", &[0x50, 1, b'x']].concat(), 0x10e),
            // A field name in upper case.
            ([&[1, 14, 0, 0, 0xd1, 0xd7, 0xc1, 0x50, 1, b'x'][..], b"\x23X-A\x01b"].concat(), 0x10e),
        ] {
            let (mut send, mut receive) = connection.open_bi().await.unwrap();
            send.write_all(&bytes).await.unwrap();
            send.finish().unwrap();
            match receive.read_to_end(1000).await {
                Err(quic::quinn::ReadToEndError::Read(quic::quinn::ReadError::Reset(reset))) => {
                    assert_eq!(u64::from(reset), code, "{bytes:x?}");
                }
                other => panic!("{bytes:x?}: {other:?}"),
            }
        }
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        send.write_all(get).await.unwrap();
        send.finish().unwrap();
        assert!(!receive.read_to_end(10_000).await.unwrap().is_empty(), "the connection goes on");
        // A stream that ends inside a frame is an error of the connection (RFC 9114 section 7.1).
        let (mut send, _receive) = connection.open_bi().await.unwrap();
        send.write_all(&[1, 8, 0, 0]).await.unwrap();
        send.finish().unwrap();
        assert!(matches!(connection.closed().await, quic::quinn::ConnectionError::ApplicationClosed(close) if u64::from(close.error_code) == 0x106));
    });
    quic.server.eventually("no connection", |server| server.connections().open == 0);
}

/// Of several large responses, the one whose priority the client has raised comes first; responses of equal
/// urgency come in the order of their requests.
#[test]
fn updates_of_priorities_order_responses() {
    let quic = server();
    quic.with(async |quic| {
        let (_endpoint, connection, mut control) = quic.raw().await;
        // u=1 for the third stream, which is not open yet; u=6 for the first one.
        control.write_all(&[0x80, 0x0f, 0x07, 0x00, 4, 8, b'u', b'=', b'1']).await.unwrap();
        control.write_all(&[0x80, 0x0f, 0x07, 0x00, 4, 0, b'u', b'=', b'6']).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut streams = Vec::new();
        for _ in 0..3 {
            let (mut send, receive) = connection.open_bi().await.unwrap();
            // GET https://x/kept-large
            let mut section = vec![0, 0, 0xd1, 0xd7, 0x50, 1, b'x', 0x51, 11];
            section.extend_from_slice(b"/kept-large");
            send.write_all(&[&[1, section.len() as u8][..], &section].concat()).await.unwrap();
            send.finish().unwrap();
            streams.push(receive);
        }
        let order = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let reading = streams.into_iter().enumerate().map(|(number, mut receive)| {
            let order = order.clone();
            tokio::task::spawn_local(async move {
                assert!(receive.read_to_end(1 << 20).await.unwrap().len() > 100_000);
                order.borrow_mut().push(number);
            })
        });
        for read in reading.collect::<Vec<_>>() {
            read.await.unwrap();
        }
        assert_eq!(*order.borrow(), [2, 1, 0]);
    });
}

#[test]
fn clients_that_leave_no_room_are_not_waited_for() {
    let quic = start(Timeouts { send: Duration::from_millis(200), ..Timeouts::default() });
    quic.with(async |quic| {
        let mut narrow = quic::quinn::TransportConfig::default();
        narrow.stream_receive_window(1000u32.into());
        let (_endpoint, connection) = quic.connect_with(narrow).await;
        let mut control = connection.open_uni().await.unwrap();
        control.write_all(&[0, 4, 0]).await.unwrap();
        // GET https://x/big and /kept-large.
        let mut unread = Vec::new();
        for path in [&b"/big"[..], b"/kept-large"] {
            let (mut send, receive) = connection.open_bi().await.unwrap();
            let mut section = vec![0, 0, 0xd1, 0xd7, 0x50, 1, b'x', 0x51, path.len() as u8];
            section.extend_from_slice(path);
            send.write_all(&[1, section.len() as u8]).await.unwrap();
            send.write_all(&section).await.unwrap();
            send.finish().unwrap();
            unread.push((send, receive));
        }
        let given_up = |path: &str| {
            let start = format!("finished {path} 200");
            let log = quic.server.log.lock().unwrap();
            log.iter().any(|line| line.starts_with(&start) && line.ends_with("broken"))
        };
        while !given_up("/big") || !given_up("/kept-large") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        quic.server.drain();
        connection.closed().await;
    });
    quic.server.eventually("no connection", |server| server.connections().open == 0);
}

#[test]
fn a_client_without_room_for_the_control_stream_is_refused() {
    let quic = server();
    quic.with(async |quic| {
        let mut none = quic::quinn::TransportConfig::default();
        none.max_concurrent_uni_streams(0u32.into());
        let (_endpoint, connection) = quic.connect_with(none).await;
        match connection.closed().await {
            quic::quinn::ConnectionError::ApplicationClosed(close) => {
                assert_eq!(u64::from(close.error_code), 0x103)
            }
            other => panic!("{other}"),
        }
    });
}
