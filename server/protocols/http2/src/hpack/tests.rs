//! Tests RFC 7541 appendix C, and cases beyond it.

use super::{DecodeError, Decoder, Encoder};
use fieldcode::{HeadLimits, Name, Section, encode_integer, huffman_encode};
use handler::Fields;
use proptest::prelude::*;

fn bytes(hex: &str) -> Vec<u8> {
    let hex: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    hex.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<(), DecodeError> {
    decoder.decode(block, &mut Section::skipped(), &HeadLimits::default())
}

/// Checks the table after each block.
fn check(blocks: &[(&str, usize, &[&str])], table_size: u16) {
    let mut decoder = Decoder::with_table_size(table_size);
    for (block, size, fields) in blocks {
        assert_eq!(decode(&mut decoder, &bytes(block)), Ok(()));
        let fields: Vec<String> = fields.iter().map(ToString::to_string).collect();
        assert_eq!(decoder.facts(), (*size, fields), "{block}");
    }
}

#[test]
fn c2_literals() {
    check(
        &[(
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            55,
            &["custom-key: custom-header"],
        )],
        4096,
    );
    check(
        &[
            ("040c 2f73 616d 706c 652f 7061 7468", 0, &[]),
            ("1008 7061 7373 776f 7264 0673 6563 7265 74", 0, &[]),
            ("82", 0, &[]),
        ],
        4096,
    );
}

const AFTER_REQUESTS: [(usize, &[&str]); 3] = [
    (57, &[":authority: www.example.com"]),
    (110, &["cache-control: no-cache", ":authority: www.example.com"]),
    (164, &["custom-key: custom-value", "cache-control: no-cache", ":authority: www.example.com"]),
];

#[test]
fn c3_requests_without_huffman() {
    let blocks = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let blocks: Vec<_> =
        blocks.iter().zip(AFTER_REQUESTS).map(|(block, (size, table))| (*block, size, table)).collect();
    check(&blocks, 4096);
}

#[test]
fn c4_requests_with_huffman() {
    let blocks = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    let blocks: Vec<_> =
        blocks.iter().zip(AFTER_REQUESTS).map(|(block, (size, table))| (*block, size, table)).collect();
    check(&blocks, 4096);
}

const AFTER_RESPONSES: [(usize, &[&str]); 3] = [
    (
        222,
        &[
            "location: https://www.example.com",
            "date: Mon, 21 Oct 2013 20:13:21 GMT",
            "cache-control: private",
            ":status: 302",
        ],
    ),
    (
        222,
        &[
            ":status: 307",
            "location: https://www.example.com",
            "date: Mon, 21 Oct 2013 20:13:21 GMT",
            "cache-control: private",
        ],
    ),
    (
        215,
        &[
            "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
            "content-encoding: gzip",
            "date: Mon, 21 Oct 2013 20:13:22 GMT",
        ],
    ),
];

#[test]
fn c5_responses_without_huffman_evict() {
    let blocks = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ];
    let blocks: Vec<_> =
        blocks.iter().zip(AFTER_RESPONSES).map(|(block, (size, table))| (*block, size, table)).collect();
    check(&blocks, 256);
}

#[test]
fn c6_responses_with_huffman_evict() {
    let blocks = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    let blocks: Vec<_> =
        blocks.iter().zip(AFTER_RESPONSES).map(|(block, (size, table))| (*block, size, table)).collect();
    check(&blocks, 256);
}

#[test]
fn malformed_blocks() {
    for block in [
        "80",                       // the index 0
        "be",                       // an index beyond the tables
        "7f00",                     // the name at 63, beyond the tables
        "ff",                       // half an integer
        "ffffffffffffffffffffffff", // an integer without end
        "00",                       // no name
        "000161",                   // no value
        "00056162",                 // a string beyond the block
        "0081ff",                   // a name of padding only: 8 bits
        "3fe21f",                   // a table of 4097 bytes
        "823f00",                   // a table size after a field
    ] {
        let result = decode(&mut Decoder::new(), &bytes(block));
        assert!(matches!(result, Err(DecodeError::Malformed(_))), "{block}: {result:?}");
    }
}

#[test]
fn table_sizes_change_at_the_start_of_a_block() {
    let mut decoder = Decoder::new();
    let field = "4001 6101 62";
    decode(&mut decoder, &bytes(field)).unwrap();
    assert_eq!(decoder.facts().0, 34);
    decode(&mut decoder, &bytes("20 3fe1 1f be")).unwrap_err();
    let mut decoder = Decoder::new();
    decode(&mut decoder, &bytes(field)).unwrap();
    // Nothing fits into 33 bytes, and a field that does not fit empties the table.
    decode(&mut decoder, &bytes(&format!("3f02 {field}"))).unwrap();
    assert_eq!(decoder.facts(), (0, vec![]));
}

/// A name may come from the entry that the field itself evicts.
#[test]
fn a_name_outlives_its_entry() {
    let mut decoder = Decoder::with_table_size(40);
    decode(&mut decoder, &bytes("4001 6101 62")).unwrap();
    decode(&mut decoder, &bytes("7e 0163")).unwrap();
    assert_eq!(decoder.facts(), (34, vec!["a: c".to_string()]));
}

#[test]
fn a_bomb_is_stopped_while_decoding() {
    let limits = HeadLimits { max_headers: 100, max_header_bytes: 64 << 10, ..HeadLimits::default() };
    let mut decoder = Decoder::new();
    // One field of 4,000 bytes, then references to it.
    let mut block = vec![0x40, 1, b'a'];
    encode_integer(&mut block, 0, 7, 4000);
    block.extend_from_slice(&[b'x'; 4000]);
    block.resize(16 << 10, 0xbe);
    let mut section = Section::request(100, 10);
    assert_eq!(decoder.decode(&block, &mut section, &limits), Err(DecodeError::Bomb));
    assert!(section.text().capacity() < 100 << 10);
    // Short fields are counted.
    let mut section = Section::request(100, 10);
    assert_eq!(Decoder::new().decode(&[0x90; 500], &mut section, &limits), Err(DecodeError::Bomb));
    let mut section = Section::request(100, 10);
    assert_eq!(Decoder::new().decode(&[0x90; 101], &mut section, &limits), Ok(()));
    assert_eq!(section.finish_request(true).map_err(|refusal| refusal.failure.status).err(), Some(431));
}

fn model_encode(fields: &[(Vec<u8>, Vec<u8>, u8)]) -> Vec<u8> {
    let mut block = Vec::new();
    let string = |block: &mut Vec<u8>, text: &[u8], huffman: bool| {
        if huffman {
            let mut coded = Vec::new();
            huffman_encode(text, &mut coded);
            encode_integer(block, 0x80, 7, coded.len() as u64);
            block.extend_from_slice(&coded);
        } else {
            encode_integer(block, 0, 7, text.len() as u64);
            block.extend_from_slice(text);
        }
    };
    for (name, value, how) in fields {
        block.push([0, 0x10, 0x40][usize::from(how % 3)]);
        string(&mut block, name, how & 4 != 0);
        string(&mut block, value, how & 8 != 0);
    }
    block
}

proptest! {
    #[test]
    fn any_block_is_safe(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..5)) {
        let mut decoder = Decoder::new();
        for block in blocks {
            let mut section = Section::request(0, 0);
            if decoder.decode(&block, &mut section, &HeadLimits::default()).is_err() { break }
            let _ = section.finish_request(true);
            prop_assert!(decoder.facts().0 <= 4096);
        }
    }

    /// The table keeps the newest fields that fit.
    #[test]
    fn the_table_is_a_queue(fields in prop::collection::vec(("[a-z]{1,40}", "[ -~]{0,300}", any::<u8>()), 0..60), size in 0u16..4096) {
        let mut decoder = Decoder::with_table_size(size);
        let fields: Vec<_> = fields.into_iter().map(|(n, v, how)| (n.into_bytes(), v.into_bytes(), how)).collect();
        let (mut model, mut used) = (Vec::new(), 0);
        for field in &fields {
            decode(&mut decoder, &model_encode(std::slice::from_ref(field))).unwrap();
            if field.2 % 3 == 2 {
                model.insert(0, field);
                used += field.0.len() + field.1.len() + 32;
                while used > usize::from(size) {
                    let Some(old) = model.pop() else { break };
                    used -= old.0.len() + old.1.len() + 32;
                }
            }
            let lines: Vec<String> = model.iter().map(|(name, value, _)| format!("{}: {}", name.escape_ascii(), value.escape_ascii())).collect();
            prop_assert_eq!(decoder.facts(), (used, lines));
        }
    }
}

/// Decodes a block as a peer would, with this crate's decoder.
fn lines(decoder: &mut Decoder, block: &[u8]) -> Vec<String> {
    // Decoded as requests, because responses would be refused. Names are not checked when every field is put
    // into the table.
    let mut section = Section::request(0, 0);
    decoder
        .decode(block, &mut section, &HeadLimits { allow_underscore_headers: true, ..HeadLimits::default() })
        .unwrap();
    String::from_utf8_lossy(section.text()).split('\n').map(str::to_string).collect()
}

#[test]
fn responses_are_encoded() {
    let mut encoder = Encoder::new();
    let date = b"Mon, 21 Oct 2013 20:13:21 GMT";
    let mut fields = Fields::default();
    fields.push(b"Content-Type", b"text/html");
    fields.push(b"X-One", b" 1 ");
    fields.push(b"Connection", b"close");
    fields.push(b"Transfer-Encoding", b"chunked");
    fields.push(b"Content-Length", b"7");
    fields.push(b"bad name", b"1");
    fields.push(b"x-bad", b"a\r\nb");
    let mut block = Vec::new();
    encoder.begin(&mut block);
    Encoder::status(&mut block, 200);
    assert!(!Encoder::fields(&mut block, &fields));
    encoder.date(&mut block, date);
    Encoder::content_length(&mut block, 1234);
    let expected = [
        &[0x88, 0x0f, 0x10, 9][..],
        b"text/html",
        &[0, 5],
        b"x-one",
        &[1],
        b"1",
        &[0x61, 29],
        date,
        &[0x0f, 0x0d, 4],
        b"1234",
    ]
    .concat();
    assert_eq!(block, expected);
    // The date again, then another one.
    block.clear();
    encoder.date(&mut block, date);
    assert_eq!(block, [0xbe]);
    block.clear();
    encoder.date(&mut block, b"Mon, 21 Oct 2013 20:13:22 GMT");
    assert_eq!(block[..2], [0x61, 29]);
    // A smaller table is announced, and not used if a date does not fit.
    for (size, first, date_bytes) in [(64, &[0x3f, 33][..], 32), (0, &[0x20], 32), (4096, &[], 32)] {
        block.clear();
        encoder.set_table_size(size);
        encoder.begin(&mut block);
        assert_eq!(block, first);
        block.clear();
        encoder.date(&mut block, date);
        encoder.date(&mut block, date);
        assert_eq!(block.len(), 2 * date_bytes, "{size}");
    }
    for status in [100, 103, 204, 206, 304, 400, 404, 500, 503, 999] {
        block.clear();
        Encoder::status(&mut block, status);
        assert!(block.len() == 1 || block[2..] == *status.to_string().as_bytes());
    }
}

#[test]
fn frozen_fields_are_encoded_once_and_compactly() {
    let mut fields = Fields::default();
    fields.push(b"Cache-Control", b"max-age=31536000, immutable");
    fields.push(b"X-Some_Thing", b"{}{}{}");
    fields.push(b"Set-Cookie", b"a=1");
    let fields = fields.freeze();
    let (mut block, mut again) = (Vec::new(), Vec::new());
    Encoder::fields(&mut block, &fields);
    Encoder::fields(&mut again, &fields);
    assert_eq!(block, again);
    let text = lines(&mut Decoder::new(), &block).concat();
    assert_eq!(text, "cache-controlmax-age=31536000, immutablex-some_thing{}{}{}set-cookiea=1");
    assert!(block.len() < text.len() - 13 - 10);
    assert_eq!(Name::of(b"x-some_thing"), Name::Underscore);
}
