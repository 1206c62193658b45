//! Response heads of upstreams: no input makes the parser panic, and none means something else when it comes in two pieces.
//! The first two bytes say where to cut. Run with `make fuzz FUZZ=response_head`.
#![no_main]

use h1::judge_response_head;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [high, low, text @ ..] = input else { return };
    let cut = usize::from(u16::from_be_bytes([*high, *low])) % (text.len() + 1);
    let whole = judge_response_head(text, &[], 2048);
    assert_eq!(whole, judge_response_head(text, &[cut], 2048));
    if let Ok(Some(end)) = whole {
        assert!(end <= 2048 && text[..end].ends_with(b"\r\n\r\n"));
    }
});
