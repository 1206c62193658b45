//! Request heads: no input makes the parser panic, and none means something else when it arrives in two pieces.
//! The first two bytes say where to cut. Run with `make fuzz FUZZ=h1_head`.
#![no_main]

use h1::{HeadLimits, judge_request_head};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [high, low, text @ ..] = input else { return };
    let cut = usize::from(u16::from_be_bytes([*high, *low])) % (text.len() + 1);
    let limits =
        HeadLimits { max_header_bytes: 2048, max_uri: 300, max_headers: 20, ..HeadLimits::default() };
    let whole = judge_request_head(text, &[], &limits).map_err(|failure| failure.status);
    let pieces = judge_request_head(text, &[cut], &limits).map_err(|failure| failure.status);
    assert_eq!(whole, pieces);
    if let Ok(Some(end)) = whole {
        assert!(text[..end].ends_with(b"\r\n\r\n"));
    }
});
