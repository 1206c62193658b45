//! PROXY headers: no input makes the parser panic, a verdict stays the same when more bytes arrive, and nothing behind the
//! header is taken. Run with `make fuzz FUZZ=proxy_protocol`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use net::proxy_protocol::{Accepted, ParsedHeader, parse};

fuzz_target!(|input: &[u8]| {
    let whole = parse(input, Accepted::Any);
    if let Ok(ParsedHeader::Complete(_, length)) = whole {
        assert!(length <= input.len());
        assert_eq!(parse(&input[..length], Accepted::Any), whole);
    }
    for end in 0..input.len() {
        let part = parse(&input[..end], Accepted::Any);
        assert!(part == Ok(ParsedHeader::Incomplete) || part == whole);
    }
});
