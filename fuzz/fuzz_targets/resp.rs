//! Replies of Redis: no bytes make the parser panic, and how they are split changes nothing.
//! Run with `cargo +nightly fuzz run resp`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use script::redis::{Malformed, Parser};

/// How many replies there are and how long they are in Ruby's form, until something is wrong.
fn replies<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, Option<Malformed>) {
    let (mut parser, mut whole) = (Parser::default(), Vec::new());
    let mut tape = Default::default();
    for piece in pieces {
        parser.feed(piece);
        loop {
            match parser.next(&mut tape) {
                Ok(true) => whole.push(std::mem::take(&mut tape).as_bytes().to_vec()),
                Ok(false) => break,
                Err(malformed) => return (whole, Some(malformed)),
            }
        }
    }
    (whole, None)
}

fuzz_target!(|input: &[u8]| {
    let at_once = replies(std::iter::once(input));
    let (size, input) = input.split_first().map_or((1, input), |(size, _)| (usize::from(*size).max(1), input));
    assert_eq!(at_once, replies(input.chunks(size)));
});
