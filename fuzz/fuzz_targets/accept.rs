//! Accept, as the page of a maintenance reads it: no value makes the reader panic, and neither the order of the ranges, nor their case, nor
//! how they are spread over fields changes anything. Lines of the input are fields. Run with `make fuzz FUZZ=accept`.
#![no_main]

use handler::accept::prefers_json;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let read = prefers_json(input.split(|&byte| byte == b'\n'));
    let shouted = input.to_ascii_uppercase();
    assert_eq!(read, prefers_json(shouted.split(|&byte| byte == b'\n')));
    let mut ranges: Vec<&[u8]> = input.split(|byte| b"\n,".contains(byte)).collect();
    ranges.reverse();
    assert_eq!(read, prefers_json(ranges.iter().copied()));
});
