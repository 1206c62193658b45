//! Streams of HTTP/3: no input makes a codec panic, and none means something else when it comes in two pieces. The first
//! byte says where to cut, the second which kind of stream it is. Run with `make fuzz FUZZ=http3_streams`.
#![no_main]

use bytes::Bytes;
use fieldcode::HeadLimits;
use http3::{Error, Event, RequestStream, UniStream};
use libfuzzer_sys::fuzz_target;

/// Whether there was a head, the body, and the verdict.
fn request(pieces: [&[u8]; 2]) -> (bool, Vec<u8>, Result<(), Error>) {
    let limits = HeadLimits { max_header_bytes: 2000, max_headers: 20, ..HeadLimits::default() };
    let (mut stream, mut head, mut body) = (RequestStream::default(), false, Vec::new());
    let mut events = |event| match event {
        Event::Request(_) => head = true,
        Event::Data(data) => {
            assert!(!data.is_empty());
            body.extend_from_slice(&data);
        }
    };
    let result = stream
        .receive(Bytes::copy_from_slice(pieces[0]), false, &limits, &mut events)
        .and_then(|()| stream.receive(Bytes::copy_from_slice(pieces[1]), true, &limits, &mut events));
    (head, body, result)
}

fuzz_target!(|input: &[u8]| {
    let [cut, kind, text @ ..] = input else { return };
    let cut = usize::from(*cut) % (text.len() + 1);
    let (first, second) = text.split_at(cut);
    if kind % 2 == 0 {
        let whole = request([text, &[]]);
        let split = request([first, second]);
        assert_eq!(whole.2, split.2);
        if whole.2.is_ok() {
            assert_eq!((whole.0, whole.1), (split.0, split.1));
        }
    } else {
        let (mut whole, mut split) = (UniStream::default(), UniStream::default());
        assert_eq!(whole.receive(text), split.receive(first).and_then(|()| split.receive(second)));
    }
});
