//! Tests RFC 9113, section by section: the frames that a client may send, and those that end a stream or the
//! connection.

use crate::support::*;
use handler::Fields;
use http2::{ErrorCode, Limits};
use std::time::Duration;

#[test]
fn s3_4_preface() {
    let mut client = Client::raw(Limits::default());
    let frames = client.frames();
    assert_eq!((frames[0].kind, frames[0].flags, frames[0].stream), (4, 0, 0));
    // SETTINGS_ENABLE_CONNECT_PROTOCOL, SETTINGS_NO_RFC7540_PRIORITIES, and the connection's window.
    assert!(frames[0].payload.ends_with(&[0, 8, 0, 0, 0, 1, 0, 9, 0, 0, 0, 1]));
    assert_eq!((frames[1].kind, &frames[1].payload[..]), (8, &((4 << 20) - 65_535u32).to_be_bytes()[..]));
    client.send(PREFACE);
    assert!(client.server.is_receiving_frame());
    client.send(&frame(4, 0, 0, &[]));
    assert!(!client.server.is_receiving_frame());
    assert_eq!(client.frames(), [Frame { kind: 4, flags: 1, stream: 0, payload: vec![] }]);

    for bad in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rx", b"X"] {
        let mut client = Client::raw(Limits::default());
        client.send(bad);
        client.assert_failed(ErrorCode::PROTOCOL_ERROR, "a wrong preface");
    }
    for first in [frame(6, 0, 0, &[0; 8]), frame(4, 1, 0, &[]), frame(1, 5, 1, &block(&GET))] {
        let mut client = Client::raw(Limits::default());
        client.send(PREFACE);
        client.send(&first);
        client.assert_failed(ErrorCode::PROTOCOL_ERROR, "a first frame other than SETTINGS");
    }
}

/// Frames that end the connection, after a request on stream 1 whose body is open and one on stream 3 that is
/// half-closed.
#[test]
fn connection_errors() {
    use ErrorCode as E;
    let max = 0x7fff_ffffu32.to_be_bytes();
    let cases: Vec<(&str, Vec<u8>, ErrorCode)> = vec![
        ("4.2 too large", frame(1, 4, 5, &[0; 16385]), E::FRAME_SIZE_ERROR),
        ("4.2 too large DATA", frame(0, 0, 1, &[0; 16385]), E::FRAME_SIZE_ERROR),
        ("4.2 too large of an unknown type", frame(99, 0, 1, &[0; 16385]), E::FRAME_SIZE_ERROR),
        ("4.3 malformed block", frame(1, 5, 5, &[0x80]), E::COMPRESSION_ERROR),
        ("4.3 interrupted", [frame(1, 1, 5, &block(&GET)), frame(0, 0, 1, b"x")].concat(), E::PROTOCOL_ERROR),
        (
            "4.3 interrupted by unknown",
            [frame(1, 1, 5, &block(&GET)), frame(99, 0, 0, b"x")].concat(),
            E::PROTOCOL_ERROR,
        ),
        (
            "6.10 other stream",
            [frame(1, 1, 5, &block(&GET)), frame(9, 4, 7, b"")].concat(),
            E::PROTOCOL_ERROR,
        ),
        ("6.10 alone", frame(9, 4, 1, b""), E::PROTOCOL_ERROR),
        (
            "6.10 after the end",
            [frame(1, 5, 5, &block(&GET)), frame(9, 4, 5, b"")].concat(),
            E::PROTOCOL_ERROR,
        ),
        ("5.1 DATA idle", frame(0, 0, 5, b"x"), E::PROTOCOL_ERROR),
        ("5.1 DATA even", frame(0, 0, 2, b"x"), E::PROTOCOL_ERROR),
        ("5.1 RST idle", frame(3, 0, 5, &[0; 4]), E::PROTOCOL_ERROR),
        ("5.1 WINDOW_UPDATE idle", frame(8, 0, 5, &[0, 0, 0, 1]), E::PROTOCOL_ERROR),
        ("5.1.1 even", frame(1, 5, 6, &block(&GET)), E::PROTOCOL_ERROR),
        (
            "5.1.1 lower",
            [frame(1, 5, 9, &block(&GET)), frame(1, 5, 7, &block(&GET))].concat(),
            E::PROTOCOL_ERROR,
        ),
        ("6.1 stream 0", frame(0, 0, 0, b"x"), E::PROTOCOL_ERROR),
        ("6.1 padding", frame(0, 8, 1, &[2, 0]), E::PROTOCOL_ERROR),
        ("6.1 no padding", frame(0, 8, 1, &[]), E::FRAME_SIZE_ERROR),
        ("6.2 stream 0", frame(1, 5, 0, &block(&GET)), E::PROTOCOL_ERROR),
        ("6.2 padding", frame(1, 13, 5, &[5, 0x82]), E::PROTOCOL_ERROR),
        ("6.2 no priority", frame(1, 0x25, 5, &[0; 4]), E::FRAME_SIZE_ERROR),
        ("6.3 stream 0", frame(2, 0, 0, &[0; 5]), E::PROTOCOL_ERROR),
        ("6.3 size, idle", frame(2, 0, 5, &[0; 4]), E::FRAME_SIZE_ERROR),
        ("6.4 stream 0", frame(3, 0, 0, &[0; 4]), E::PROTOCOL_ERROR),
        ("6.4 size", frame(3, 0, 1, &[0; 3]), E::FRAME_SIZE_ERROR),
        ("6.5 stream", frame(4, 0, 1, &[]), E::PROTOCOL_ERROR),
        ("6.5 ACK with payload", frame(4, 1, 0, &[0; 6]), E::FRAME_SIZE_ERROR),
        ("6.5 size", frame(4, 0, 0, &[0; 5]), E::FRAME_SIZE_ERROR),
        ("6.5.2 push", frame(4, 0, 0, &[0, 2, 0, 0, 0, 2]), E::PROTOCOL_ERROR),
        ("6.5.2 window", frame(4, 0, 0, &[0, 4, 0x80, 0, 0, 0]), E::FLOW_CONTROL_ERROR),
        ("6.5.2 frame size", frame(4, 0, 0, &[0, 5, 0, 0, 0x3f, 0xff]), E::PROTOCOL_ERROR),
        ("6.5.2 frame size", frame(4, 0, 0, &[0, 5, 1, 0, 0, 0]), E::PROTOCOL_ERROR),
        ("9218 2.1", frame(4, 0, 0, &[0, 9, 0, 0, 0, 2]), E::PROTOCOL_ERROR),
        ("6.6 push promise", frame(5, 4, 1, &[0, 0, 0, 2]), E::PROTOCOL_ERROR),
        ("6.7 stream", frame(6, 0, 1, &[0; 8]), E::PROTOCOL_ERROR),
        ("6.7 size", frame(6, 0, 0, &[0; 7]), E::FRAME_SIZE_ERROR),
        ("6.8 stream", frame(7, 0, 1, &[0; 8]), E::PROTOCOL_ERROR),
        ("6.8 size", frame(7, 0, 0, &[0; 7]), E::FRAME_SIZE_ERROR),
        ("6.9 size", frame(8, 0, 0, &[0; 3]), E::FRAME_SIZE_ERROR),
        ("6.9 zero", frame(8, 0, 0, &[0; 4]), E::PROTOCOL_ERROR),
        ("6.9.1 overflow", frame(8, 0, 0, &max), E::FLOW_CONTROL_ERROR),
        (
            "6.9.2 overflow",
            [frame(8, 0, 1, &[0x7f, 0xff, 0, 0]), frame(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff])].concat(),
            E::FLOW_CONTROL_ERROR,
        ),
        ("9218 7.1 stream", frame(16, 0, 1, b"\0\0\0\x01u=1"), E::PROTOCOL_ERROR),
        ("9218 7.1 size", frame(16, 0, 0, b"\0\0\0"), E::FRAME_SIZE_ERROR),
        ("9218 7.1 zero", frame(16, 0, 0, b"\0\0\0\0u=1"), E::PROTOCOL_ERROR),
        ("9218 7.1 push", frame(16, 0, 0, b"\0\0\0\x02u=1"), E::PROTOCOL_ERROR),
    ];
    for (what, bytes, code) in cases {
        let mut client = Client::new();
        client.post(1);
        client.get(3);
        client.send(&bytes);
        client.assert_failed(code, what);
    }
}

/// Frames that end stream 1, whose body is open, or 3, which is half-closed, and leave the connection open.
#[test]
fn stream_errors() {
    use ErrorCode as E;
    let max = 0x7fff_ffffu32.to_be_bytes();
    let cases: Vec<(&str, Vec<u8>, u32, ErrorCode)> = vec![
        ("5.1 DATA half-closed", frame(0, 0, 3, b"x"), 3, E::STREAM_CLOSED),
        ("5.1 HEADERS half-closed", frame(1, 5, 3, &block(&GET)), 3, E::STREAM_CLOSED),
        ("5.3.1 depends on itself", frame(2, 0, 1, &[0, 0, 0, 1, 5]), 1, E::PROTOCOL_ERROR),
        (
            "5.3.1 HEADERS depend",
            frame(1, 0x25, 5, &[&[0x80, 0, 0, 5, 0][..], &block(&GET)].concat()),
            5,
            E::PROTOCOL_ERROR,
        ),
        ("6.3 size", frame(2, 0, 1, &[0; 4]), 1, E::FRAME_SIZE_ERROR),
        ("6.9 zero", frame(8, 0, 1, &[0; 4]), 1, E::PROTOCOL_ERROR),
        ("6.9.1 overflow", frame(8, 0, 1, &max), 1, E::FLOW_CONTROL_ERROR),
        ("8.1 trailers without the end", frame(1, 4, 1, &block(&[("x", "1")])), 1, E::PROTOCOL_ERROR),
        ("8.1 pseudo-fields in trailers", frame(1, 5, 1, &block(&[(":path", "/")])), 1, E::PROTOCOL_ERROR),
    ];
    for (what, bytes, stream, code) in cases {
        let mut client = Client::new();
        client.post(1);
        client.get(3);
        client.send(&bytes);
        assert_eq!((client.result, client.resets()), (Ok(()), vec![(stream, code)]), "{what}");
        let last = client.seen.last().unwrap();
        assert!(stream == 5 || *last == Seen::Reset { stream, code, by_client: false }, "{what}: {last:?}");
        // The connection continues, with its header tables.
        client.get(7);
    }
}

#[test]
fn ignored() {
    let mut client = Client::new();
    client.post(1);
    client.take();
    for bytes in [
        frame(99, 0xff, 0, b"unknown"),
        frame(99, 0, 1, b""),
        frame(2, 0, 1, &[0, 0, 0, 3, 9]),
        frame(2, 0, 77, &[0, 0, 0, 1, 9]),
        frame(4, 0, 0, &[0, 99, 0, 0, 0, 1]),
        frame(6, 1, 0, &[0; 8]),
        frame(8, 0xff, 1, &[0x80, 0, 0, 1]),
    ] {
        client.send(&bytes);
    }
    assert_eq!((client.result, client.take()), (Ok(()), vec![]));
    assert_eq!(client.frames().len(), 1, "the acknowledgement of SETTINGS");
    client.send(&frame(6, 0, 0, b"12345678"));
    assert_eq!(client.frames(), [Frame { kind: 6, flags: 1, stream: 0, payload: b"12345678".to_vec() }]);
}

#[test]
fn s5_1_closed_streams() {
    // Ended by both sides.
    for (bytes, code) in [
        (frame(0, 0, 1, b"x"), Some(ErrorCode::STREAM_CLOSED)),
        (frame(1, 5, 1, &block(&GET)), Some(ErrorCode::STREAM_CLOSED)),
        (frame(3, 0, 1, &[0; 4]), None),
        (frame(8, 0, 1, &[0, 0, 0, 1]), None),
        (frame(2, 0, 1, &[0; 5]), None),
    ] {
        let mut client = Client::new();
        let stream = client.get(1);
        assert!(client.respond(stream, b"body").is_empty() && client.server.is_idle());
        client.send(&bytes);
        assert_eq!(client.result.map_err(|error| error.code).err(), code);
    }
    // Reset by the client.
    let mut client = Client::new();
    let stream = client.post(1);
    client.send(&frame(3, 0, 1, &[0, 0, 0, 8]));
    assert_eq!(
        client.take().pop(),
        Some(Seen::Reset { stream: 1, code: ErrorCode::CANCEL, by_client: true })
    );
    assert!(!client.server.head(stream, 200, &handler::Fields::default(), DATE, None, true));
    client.frames();
    client.data(1, false, &[7; 1000]);
    assert_eq!(client.resets(), [(1, ErrorCode::STREAM_CLOSED)]);
    // Reset by the server: frames in flight are ignored, and still decoded.
    let mut client = Client::new();
    let stream = client.post(1);
    client.server.reset(stream, ErrorCode::CANCEL);
    client.data(1, false, b"late");
    client.send(&frame(1, 5, 1, &[0x40, 1, b'a', 1, b'b']));
    client.send(&frame(8, 0, 1, &[0, 0, 0, 1]));
    client.headers(3, 5, &GET);
    client.take();
    client.send(&frame(1, 5, 5, &[&block(&GET)[..], &[0xbe]].concat()));
    assert!(matches!(&client.take()[..], [Seen::Request { fields, .. }] if fields[1] == "a: b"));
    assert_eq!((client.result, client.resets()), (Ok(()), vec![(1, ErrorCode::CANCEL)]));
    // Also when many others have ended since.
    for id in 100..300 {
        let stream = client.get(2 * id + 1);
        client.respond(stream, b"");
    }
    client.headers(1, 5, &[("x", "1")]);
    assert_eq!(client.result, Ok(()));
}

#[test]
fn s5_1_2_concurrency() {
    let mut client = Client::with(Limits { max_streams: 2, ..Limits::default() });
    client.post(1);
    let second = client.post(3);
    client.headers(5, 4, &POST);
    assert_eq!(client.resets(), [(5, ErrorCode::REFUSED_STREAM)]);
    client.data(5, true, b"late");
    client.server.reset(second, ErrorCode::NO_ERROR);
    client.get(7);
    assert_eq!((client.result, client.server.streams()), (Ok(()), 2));
}

#[test]
fn s6_1_data_and_padding() {
    let mut client = Client::new();
    client.post(1);
    client.take();
    client.data(1, false, b"plain");
    client.send(&frame(0, 8, 1, b"\x03padded\0\0\0"));
    client.send(&frame(0, 9, 1, b"\x02\0\0"));
    let data = |data: &[u8], end| Seen::Data { stream: 1, data: data.to_vec(), end };
    assert_eq!(client.take(), [data(b"plainpadded", true)]);
    assert!(!client.server.is_receiving(client.streams[0]));
    // HEADERS with padding and priority.
    let padded = [&[4, 0, 0, 0, 1, 9][..], &block(&GET), &[0; 4]].concat();
    client.send(&frame(1, 0x2d, 3, &padded));
    assert!(matches!(&client.take()[..], [Seen::Request { stream: 3, end: true, .. }]));
}

#[test]
fn s6_9_windows_of_the_server() {
    let limits = Limits { stream_window: 65_535, connection_window: 100_000, ..Limits::default() };
    let mut client = Client::with(limits.clone());
    let stream = client.post(1);
    for _ in 0..3 {
        client.data(1, false, &[1; 16_000]);
    }
    assert!(client.frames().is_empty(), "nothing has been consumed");
    client.server.credit(stream, 32_000);
    assert!(client.frames().is_empty(), "not worth a frame");
    client.server.credit(stream, 99_999);
    let updates: Vec<(u32, u32)> = client.only(8).iter().map(|f| (f.stream, code(&f.payload).0)).collect();
    assert_eq!(updates, [(1, 48_000)]);
    // Unconsumed bytes of a stream are credited when it closes.
    for _ in 0..2 {
        client.data(1, false, &[1; 16_000]);
    }
    client.server.reset(stream, ErrorCode::CANCEL);
    assert_eq!(
        client.only(8).iter().map(|f| (f.stream, code(&f.payload).0)).collect::<Vec<_>>(),
        [(0, 80_000)]
    );

    // Beyond a stream's window, and beyond the connection's.
    let mut client = Client::with(limits.clone());
    client.post(1);
    client.post(3);
    for _ in 0..4 {
        client.data(1, false, &[1; 16_384]);
    }
    assert_eq!(client.resets(), [(1, ErrorCode::FLOW_CONTROL_ERROR)]);
    let mut client = Client::with(limits);
    client.post(1);
    client.post(3);
    for stream in [1, 3, 1, 3, 1, 3, 1] {
        client.data(stream, false, &[1; 16_000]);
    }
    client.assert_failed(ErrorCode::FLOW_CONTROL_ERROR, "the connection's window");
}

#[test]
fn s8_1_1_content_length() {
    let with_length = |length: &'static str| -> Vec<(&str, &str)> {
        POST.into_iter().chain([("content-length", length)]).collect()
    };
    let run = |sizes: &[usize], trailers: bool| {
        let mut client = Client::new();
        client.headers(1, 4, &with_length("10"));
        for (at, size) in sizes.iter().enumerate() {
            client.data(1, !trailers && at + 1 == sizes.len(), &vec![0; *size]);
        }
        if trailers {
            client.headers(1, 5, &[("x", "1")]);
        }
        assert_eq!(client.result, Ok(()));
        client.resets()
    };
    let wrong = [(1, ErrorCode::PROTOCOL_ERROR)];
    assert_eq!(run(&[4, 6], false), []);
    assert_eq!(run(&[10], true), []);
    assert_eq!(run(&[4, 6, 0], false), []);
    assert_eq!(run(&[4, 5], false), wrong);
    assert_eq!(run(&[11], false), wrong);
    assert_eq!(run(&[9], true), wrong);
}

#[test]
fn s8_1_1_malformed_requests_may_get_a_response() {
    let mut client = Client::new();
    client.headers(1, 5, &GET[1..]);
    assert_eq!(client.take(), [Seen::Refused { stream: 1, status: 400 }]);
    let stream = client.streams[0];
    client.respond(stream, b"400");
    let kinds: Vec<u8> = client.frames().iter().map(|frame| frame.kind).collect();
    assert_eq!((kinds, client.server.is_idle()), (vec![1, 0, 3], true));
    // Too large: not a violation, but the body is not wanted.
    let fields: Vec<(&str, &str)> = POST.into_iter().chain(std::iter::repeat_n(("a", "b"), 101)).collect();
    client.headers(3, 4, &fields);
    assert_eq!(client.take(), [Seen::Refused { stream: 3, status: 431 }]);
    client.data(3, false, b"ignored");
    client.respond(client.streams[1], b"431");
    assert_eq!(client.resets(), []);
    client.headers(3, 5, &[("x", "trailers are dropped, too")]);
    assert!(client.server.is_idle() && client.take().is_empty() && client.result.is_ok());
}

#[test]
fn rfc_8441_extended_connect() {
    const CONNECT: [(&str, &str); 5] = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":authority", "x.test"),
        (":path", "/"),
    ];
    let mut client = Client::new();
    // The engine takes the same value from clients, for which it has no meaning.
    client.setting(8, 1);
    client.headers(1, 4, &CONNECT);
    client.data(1, false, b"up");
    let stream = client.streams[0];
    assert!(client.server.head(stream, 200, &Fields::default(), DATE, None, false));
    assert!(client.server.data(stream, b"down"[..].into(), false).is_empty());
    client.data(1, true, b"");
    assert!(client.server.data(stream, b""[..].into(), true).is_empty());
    let seen = client.take();
    assert!(matches!(&seen[0], Seen::Request { stream: 1, end: false, .. }), "{seen:?}");
    assert_eq!(
        seen[1..],
        [
            // The end is an event of its own, which this list joins.
            Seen::Data { stream: 1, data: b"up".to_vec(), end: true }
        ]
    );
    assert!(client.server.is_idle() && client.result.is_ok());
    client.frames();
    // RFC 9113 section 8.5: nothing but DATA.
    for (stream, flags) in [(3, 4), (5, 5)] {
        client.headers(stream, 4, &CONNECT);
        client.take();
        client.headers(stream, flags, &[("x", "1")]);
        assert_eq!(client.resets(), [(stream, ErrorCode::PROTOCOL_ERROR)]);
        assert!(matches!(client.take()[..], [Seen::Reset { by_client: false, .. }]));
    }
    // Without the protocol it is a CONNECT as before.
    client.headers(7, 5, &[(":method", "CONNECT"), (":authority", "x.test:443")]);
    assert_eq!(client.take(), [Seen::Refused { stream: 7, status: 501 }]);
}

#[test]
fn s6_10_continuation() {
    let mut client = Client::new();
    let block = block(&GET);
    client.send(&frame(1, 1, 1, &block[..5]));
    assert!(client.server.is_receiving_frame());
    client.send(&frame(9, 0, 1, &block[5..20]));
    client.send(&frame(9, 4, 1, &block[20..]));
    assert!(matches!(&client.take()[..], [Seen::Request { stream: 1, end: true, .. }]));
    assert!(!client.server.is_receiving_frame());
}

#[test]
fn s6_8_goaway() {
    let mut client = Client::new();
    let first = client.post(1);
    client.server.drain(client.now);
    client.server.drain(client.now);
    let frames = client.frames();
    assert_eq!(frames.iter().map(|frame| frame.kind).collect::<Vec<_>>(), [7, 6]);
    assert_eq!(code(&frames[0].payload).0, 0x7fff_ffff);
    let second = client.get(3);
    client.send(&frame(6, 1, 0, &frames[1].payload));
    assert_eq!(code(&client.only(7)[0].payload).0, 3);
    client.headers(5, 5, &GET);
    client.headers(7, 4, &POST);
    client.data(7, true, b"late");
    assert_eq!(client.resets(), [(5, ErrorCode::REFUSED_STREAM), (7, ErrorCode::REFUSED_STREAM)]);
    client.data(1, true, b"");
    client.respond(first, b"1");
    assert!(!client.server.is_drained());
    client.respond(second, b"3");
    assert!(client.server.is_drained() && client.result.is_ok());

    // A client that does not answer, and one that closes by itself.
    let mut client = Client::new();
    client.server.drain(client.now);
    assert!(!client.server.is_drained());
    client.check(Duration::from_secs(2));
    assert_eq!(client.only(7).len(), 2);
    assert!(client.server.is_drained());
    let mut client = Client::new();
    client.send(&frame(7, 0, 0, &[0; 8]));
    assert_eq!(client.take(), [Seen::GoAway(ErrorCode::NO_ERROR)]);
    assert!(client.server.is_drained());
}

#[test]
fn deadlines() {
    let limits = Limits::default();
    let mut client = Client::raw(limits.clone());
    assert_eq!(client.server.deadline(), Some(client.start + limits.header_timeout));
    client.check(limits.header_timeout);
    client.assert_failed(ErrorCode::PROTOCOL_ERROR, "no preface");

    let mut client = Client::raw(limits.clone());
    client.send(PREFACE);
    client.send(&frame(4, 0, 0, &[]));
    client.check(limits.settings_timeout);
    client.assert_failed(ErrorCode::SETTINGS_TIMEOUT, "no acknowledgement");

    let mut client = Client::new();
    assert_eq!(client.server.deadline(), None);
    client.send(&frame(1, 1, 1, &block(&GET)));
    client.check(limits.header_timeout / 2);
    client.send(&frame(9, 0, 1, &block(&[("x", "y")])));
    client.check(limits.header_timeout / 2);
    client.assert_failed(ErrorCode::PROTOCOL_ERROR, "a section that takes too long");
}
