//! Frames between front and worker: no bytes from the other side make a decoder panic or read beyond its payload.
//! Run with `make fuzz FUZZ=wire_frames`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::times::Times;
use wire::used::{Remarks, Used};
use wire::{Frame, FrameKind, frame, profile, request, response, route, traces};

fn decode(frame: &Frame<'_>) {
    match frame.header.kind {
        FrameKind::Request => {
            if let Ok(request) = request::Request::decode(frame.payload) {
                let size: usize = request.fields().map(|_| 1).sum();
                assert!(size <= frame.payload.len() && request.path().len() + request.query().len() <= frame.payload.len());
            }
        }
        FrameKind::Response => {
            if let Ok(response) = response::Response::decode(frame.payload) {
                assert!(response.fields().map(|(name, value)| name.len() + value.len()).sum::<usize>() <= frame.payload.len());
            }
        }
        FrameKind::Interim => {
            if let Ok(response) = response::Response::decode_interim(frame.payload) {
                assert_eq!(response.fields().count(), response.field_count());
            }
        }
        FrameKind::End => {
            if let Ok(times) = Times::decode(frame.payload) {
                assert_eq!(times.to_bytes(), frame.payload);
            }
        }
        FrameKind::Traces => {
            if let Ok(traces) = traces::decode(frame.payload) {
                assert!(traces.iter().map(|trace| 10 + 2 * trace.lines.len()).sum::<usize>() <= frame.payload.len());
            }
        }
        FrameKind::Ready => {
            if let Ok(ready) = frame::Ready::decode(frame.payload) {
                assert_eq!(ready.to_bytes(), frame.payload);
            }
        }
        FrameKind::Route => {
            if let Ok(name) = route::name(frame) {
                assert!(name.len() == frame.payload.len() && (1..=route::MOST).contains(&frame.header.route));
            }
        }
        FrameKind::Used => {
            if let Ok(used) = Used::decode(frame.payload) {
                assert_eq!(used.to_bytes()[..], frame.payload[..wire::used::LEN]);
                if let Ok(remarks) = Remarks::decode(frame.payload)
                    && frame.payload.len() > wire::used::LEN
                {
                    let end = wire::used::LEN + wire::used::REMARKS_LEN;
                    assert_eq!(remarks.to_bytes()[..], frame.payload[wire::used::LEN..end]);
                }
            }
        }
        FrameKind::Profile => assert!(profile::Records::new(frame.payload).count() <= frame.payload.len()),
        FrameKind::File => drop(frame::file_payload(frame.payload)),
        FrameKind::Offer | FrameKind::Taken => drop(frame::u64_payload(frame.payload)),
        _ => drop(frame::u32_payload(frame.payload)),
    }
}

fuzz_target!(|input: &[u8]| {
    let mut rest = input;
    while let Ok(Some((frame, used))) = Frame::cut(rest) {
        assert!(used >= frame::HEADER && used <= rest.len());
        decode(&frame);
        rest = &rest[used..];
    }
});
