//! The coding that HPACK and QPACK share: any bytes are safe to decode, and encoding what was decoded gives the same text again. Run with
//! `make fuzz FUZZ=field_coding`.
#![no_main]

use fieldcode::{decode_integer, encode_integer, huffman_decode, huffman_encode, huffman_len};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut text = Vec::new();
    if huffman_decode(input, &mut text).is_some() {
        assert!(text.len() <= input.len() * 8 / 5);
        let mut coded = Vec::new();
        huffman_encode(&text, &mut coded);
        assert_eq!(coded, input);
        assert_eq!(coded.len(), huffman_len(&text));
    }
    let mut at = 0;
    if let Ok(value) = decode_integer(input, &mut at, 5) {
        let mut coded = Vec::new();
        encode_integer(&mut coded, input[0] & 0xe0, 5, value);
        // Zeros at the end are possible, so the shortest form may be shorter.
        assert!(coded.len() <= at);
        assert_eq!(decode_integer(&coded, &mut 0, 5), Ok(value));
    }
});
