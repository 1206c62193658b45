//! Replies of Redis: no bytes make the parser panic, and how they are split changes nothing.
//! Run with `make fuzz FUZZ=resp`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redis::{MalformedReply, Parser, Value, ValueSink};

/// The replies, until the bytes are malformed.
fn replies<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Option<Value>>, Option<MalformedReply>) {
    let (mut parser, mut replies, mut sink) = (Parser::new(32 << 20), Vec::new(), ValueSink::default());
    for piece in pieces {
        parser.feed(piece);
        loop {
            match parser.next(&mut sink) {
                Ok(true) => replies.push(std::mem::take(&mut sink).into_value()),
                Ok(false) => break,
                Err(malformed) => return (replies, Some(malformed)),
            }
        }
    }
    (replies, None)
}

fuzz_target!(|input: &[u8]| {
    let (size, input) = input.split_first().map_or((1, input), |(size, _)| (usize::from(*size).max(1), &input[1..]));
    let at_once = replies(std::iter::once(input));
    assert!(at_once.0.iter().all(Option::is_some), "a complete reply is a value");
    // Compared as text: a double may be NaN.
    assert_eq!(format!("{at_once:?}"), format!("{:?}", replies(input.chunks(size))));
});
