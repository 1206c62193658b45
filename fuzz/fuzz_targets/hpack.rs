//! Header sections of HTTP/2: a section that arrives whole means the same as one in two frames, no section makes the engine panic
//! or keep more than the limits, and a request has what it must have. The first byte says where to cut. Run with
//! `make fuzz FUZZ=hpack`.
#![no_main]

use fieldcode::HeadLimits;
use http2::{Connection, Event, Limits};
use libfuzzer_sys::fuzz_target;
use std::time::Instant;

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u32;
    [&len.to_be_bytes()[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
}

/// The text of the request, or the status of its refusal; `None`: the connection has ended.
fn judge(frames: &[Vec<u8>]) -> Option<Result<Vec<u8>, u16>> {
    let head = HeadLimits { max_header_bytes: 2000, max_headers: 10, ..HeadLimits::default() };
    let mut server = Connection::new(Limits { head, ..Limits::default() }, Instant::now());
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    frames.iter().for_each(|frame| bytes.extend_from_slice(frame));
    let mut judged = None;
    let result = server.receive(&bytes, Instant::now(), &mut |event| match event {
        Event::Request { head, .. } => {
            assert!(head.method.len > 0 && head.path.len > 0 && head.authority.len > 0);
            assert!(head.fields.len() <= 11 && head.fields.text().len() <= 4000);
            assert_eq!(head.fields.all("host").count(), 1);
            judged = Some(Ok(head.fields.text().to_vec()));
        }
        Event::Refused { failure, .. } => judged = Some(Err(failure.status)),
        _ => {}
    });
    result.ok().and(judged)
}

fuzz_target!(|input: &[u8]| {
    let [cut, block @ ..] = input else { return };
    let block = &block[..block.len().min(3000)];
    let (first, second) = block.split_at(usize::from(*cut) % (block.len() + 1));
    assert_eq!(judge(&[frame(1, 5, block)]), judge(&[frame(1, 1, first), frame(9, 4, second)]));
});
