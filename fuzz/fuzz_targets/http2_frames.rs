//! HTTP/2 connections: no bytes make the engine panic, open more streams than allowed or send more than the windows, whatever is
//! called in between. The first byte says how the rest is cut, and each piece's first byte what is called after it. Run with
//! `make fuzz FUZZ=http2_frames`.
#![no_main]

use bytes::Bytes;
use handler::Fields;
use http2::{Connection, ErrorCode, Event, Limits};
use libfuzzer_sys::fuzz_target;
use std::time::{Duration, Instant};

const MAX_STREAMS: u32 = 5;

fuzz_target!(|input: &[u8]| {
    let [cut, bytes @ ..] = input else { return };
    let mut now = Instant::now();
    let mut server = Connection::new(Limits { max_streams: MAX_STREAMS, ..Limits::default() }, now);
    let settings: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    if cut & 1 == 0 {
        server.receive(settings, now, &mut |_| panic!("an event")).expect("a preface");
    }
    let (mut streams, mut at) = (Vec::new(), 0);
    for piece in bytes.chunks(usize::from(cut >> 1) + 1) {
        let mut events = |event: Event<'_>| match event {
            Event::Request { stream, .. } | Event::Refused { stream, .. } => streams.push(stream),
            Event::Data { data, end, .. } => assert!(end || !data.is_empty()),
            _ => {}
        };
        if server.receive(piece, now, &mut events).is_err() {
            assert!(server.receive(b"x", now, &mut |_| panic!("an event after the end")).is_err());
            return;
        }
        assert!(server.streams() <= MAX_STREAMS as usize);
        let (call, size) = (piece[0], usize::from(piece[0]) << 8);
        now += Duration::from_millis(u64::from(call));
        at += 1;
        let Some(&stream) = streams.get(at % streams.len().max(1)) else { continue };
        match call % 12 {
            0 => server.credit(stream, size),
            1 | 2 => drop(server.head(stream, 200, &Fields::default(), b"date", Some(1), call & 16 != 0)),
            3 => {
                let room = server.room(stream);
                let rest = server.data(stream, Bytes::from(vec![0; size]), call & 16 != 0);
                assert!(rest.is_empty() || size - rest.len() == room);
            }
            4 => server.ready(stream),
            5 => {
                if let Some((next, most)) = server.next_sender() {
                    assert!(most > 0 && most <= server.room(next));
                    server.data_with(next, most, |text, most| {
                        text.resize(text.len() + most, 0);
                        call & 16 != 0
                    });
                }
            }
            6 => server.reset(stream, ErrorCode::CANCEL),
            7 => server.trailers(stream, &Fields::default()),
            8 => drop(server.check(now, &mut |_| {})),
            9 if call & 16 != 0 => server.drain(now),
            10 => server.discard(stream, now),
            _ => server.output().clear(),
        }
    }
});
