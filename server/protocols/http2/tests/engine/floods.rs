//! Tests that actions which are cheap for a client and costly for the server are limited, and that each flood
//! has its name.

use crate::support::*;
use handler::Fields;
use http2::{ErrorCode, Flood, Limits};
use std::time::Duration;

/// Sends until the connection ends. Returns how often.
fn flood(expected: Flood, client: &mut Client, mut send: impl FnMut(&mut Client, u32)) -> u32 {
    for n in 0..200_000 {
        send(client, n);
        if let Err(error) = client.result {
            assert_eq!((error.code, error.flood), (ErrorCode::ENHANCE_YOUR_CALM, Some(expected)), "{error}");
            assert_eq!(error.reason, expected.name());
            client.assert_failed(ErrorCode::ENHANCE_YOUR_CALM, expected.name());
            return n;
        }
        client.seen.clear();
        client.streams.clear();
        if n % 10 == 0 && expected != Flood::Unread {
            client.frames();
        }
    }
    panic!("no end: {expected:?}");
}

#[test]
fn rapid_reset() {
    let mut client = Client::new();
    let n = flood(Flood::Resets, &mut client, |client, n| {
        client.headers(2 * n + 1, 5, &GET);
        client.send(&frame(3, 0, 2 * n + 1, &[0, 0, 0, 8]));
    });
    assert!((100..300).contains(&n));
    // Clients that do useful work may continue.
    let mut client = Client::new();
    for n in 0..2000 {
        client.headers(4 * n + 1, 5, &GET);
        client.send(&frame(3, 0, 4 * n + 1, &[0, 0, 0, 8]));
        let stream = client.get(4 * n + 3);
        client.respond(stream, b"useful");
        client.frames();
    }
    assert_eq!(client.result, Ok(()));
}

/// CVE-2025-8671: the client makes the server reset streams.
#[test]
fn made_you_reset() {
    for mistake in [frame(8, 0, 0, &[0; 4]), frame(2, 0, 0, &[0; 4]), frame(0, 1, 0, b"x")] {
        let mut client = Client::new();
        let n = flood(Flood::StreamErrors, &mut client, |client, n| {
            let id = 2 * n + 1;
            client.headers(id, 5, &GET);
            let mut bytes = mistake.clone();
            bytes[5..9].copy_from_slice(&id.to_be_bytes());
            client.send(&bytes);
        });
        assert!(n <= 100);
    }
    // Malformed requests with responses.
    let mut client = Client::new();
    let n = flood(Flood::StreamErrors, &mut client, |client, n| {
        client.headers(2 * n + 1, 5, &[("a", "b")]);
        if let Some(&stream) = client.streams.last() {
            client.respond(stream, b"bad");
        }
    });
    assert!(n <= 100);
}

#[test]
fn control_frames() {
    for (flood_kind, bytes, most) in [
        (Flood::Settings, frame(4, 0, 0, &[]), 50),
        (Flood::Settings, frame(4, 0, 0, &[0; 6 * 2730]), 2),
        (Flood::Settings, frame(4, 1, 0, &[]), 50),
        (Flood::Pings, frame(6, 0, 0, &[0; 8]), 300),
        (Flood::Pings, frame(6, 1, 0, &[0; 8]), 300),
        (Flood::Priorities, frame(2, 0, 5, &[0; 5]), 300),
        (Flood::Priorities, frame(16, 0, 0, &[0, 0, 0, 77]), 300),
        (Flood::WindowUpdates, frame(8, 0, 0, &[0, 0, 0, 1]), 4000),
        (Flood::Ignored, frame(99, 0, 0, &[]), 10_000),
    ] {
        let mut client = Client::new();
        let n = flood(flood_kind, &mut client, |client, _| client.send(&bytes));
        assert!(n <= most, "{flood_kind:?} {n}");
        // Sent slowly, it is no flood, unless a single frame is.
        if most < 10 {
            continue;
        }
        let mut client = Client::new();
        for _ in 0..most.min(1000) + 10 {
            client.now += Duration::from_secs(2);
            client.send(&bytes);
            client.frames();
        }
        assert_eq!(client.result, Ok(()), "{flood_kind:?}");
    }
}

#[test]
fn small_data() {
    for (data, most) in [(&b""[..], 100), (b"x", 20_000)] {
        let mut client = Client::new();
        client.post(1);
        let stream = client.streams[0];
        let n = flood(Flood::SmallData, &mut client, |client, _| {
            client.data(1, false, data);
            client.server.credit(stream, 1);
        });
        assert!(n <= most);
    }
    let mut client = Client::new();
    client.post(1);
    let n = flood(Flood::SmallData, &mut client, |client, _| {
        client.send(&frame(0, 8, 1, &[&[200][..], &[0; 200]].concat()))
    });
    assert!(n <= 100);
}

/// The messages of a WebSocket may be small, whether the app answers them or not. Frames without a byte are
/// no messages.
#[test]
fn small_messages_of_a_websocket() {
    let connect = [&[(":method", "CONNECT"), (":protocol", "websocket")][..], &GET[1..]].concat();
    for (message, is_flood) in [(&b"x"[..], false), (b"", true)] {
        let mut client = Client::new();
        client.headers(1, 4, &connect);
        let stream = client.streams[0];
        assert!(client.server.head(stream, 200, &Fields::default(), DATE, None, false));
        let mut sent = 0;
        while client.result.is_ok() && sent < 50_000 {
            client.data(1, false, message);
            client.server.credit(stream, message.len());
            client.frames();
            sent += 1;
        }
        assert_eq!(client.result.is_err(), is_flood, "{sent}");
    }
}

#[test]
fn header_sections() {
    let mut client = Client::new();
    client.send(&frame(1, 1, 1, &[]));
    assert!(flood(Flood::EmptyHeaders, &mut client, |client, _| client.send(&frame(9, 0, 1, &[]))) <= 20);
    // One byte at a time, and as much as fits.
    for piece in [vec![0x82], vec![0; 16_384]] {
        let mut client = Client::new();
        client.send(&frame(1, 1, 1, &piece));
        assert!(
            flood(Flood::Continuations, &mut client, |client, _| client.send(&frame(9, 0, 1, &piece))) <= 80
        );
    }
    // References to one large field.
    let mut client = Client::new();
    let mut block = vec![0x40, 1, b'a', 0x7f, 0xa1, 0x1e];
    block.extend([b'x'; 4000]);
    block.extend([0xbe; 12_000]);
    client.send(&frame(1, 5, 1, &block));
    assert_eq!(client.result.map_err(|error| error.flood), Err(Some(Flood::Headers)));
}

/// CVE-2026-49975: references to one field make large heads, which are held by closed windows.
#[test]
fn heads_of_open_streams_are_bounded() {
    let limits = Limits::default();
    let mut client = Client::with(limits.clone());
    let mut field = vec![0x40, 1, b'a', 0x7f, 0xa1, 0x1e];
    field.extend([b'x'; 4000]);
    client.send(&frame(1, 5, 1, &[block(&GET), field].concat()));
    let references = [block(&GET), vec![0xbe; 15]].concat();
    for id in 1..100 {
        client.send(&frame(1, 5, 2 * id + 1, &references));
    }
    let open = client.server.streams();
    assert!(open < 20 && client.resets().len() == 100 - open && client.result.is_ok(), "{open}");
    let streams = std::mem::take(&mut client.streams);
    streams.into_iter().for_each(|stream| assert!(client.respond(stream, b"").is_empty()));
    client.send(&frame(1, 5, 1001, &references));
    assert_eq!(client.server.streams(), 1);
}

/// CVE-2019-9512 and similar: answers that are never read.
#[test]
fn unread_answers() {
    let mut client = Client::new();
    let n = flood(Flood::Unread, &mut client, |client, n| {
        if n % 200 == 0 {
            client.now += Duration::from_secs(60);
        }
        client.send(&frame(6, 0, 0, &[0; 8]));
    });
    assert!(n <= 1000 && client.server.output().is_empty());
}

#[test]
fn streams_beyond_the_limit() {
    let mut client = Client::with(Limits { max_streams: 1, ..Limits::default() });
    client.post(1);
    assert!(flood(Flood::Ignored, &mut client, |client, n| client.headers(2 * n + 3, 5, &GET)) <= 1000);
}
