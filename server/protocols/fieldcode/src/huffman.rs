//! Implements the Huffman code of RFC 7541 appendix B.
//!
//! Why tables made at compile time: the code is canonical (codes of one length follow each other in the order
//! of their symbols), so the lengths alone define it. A table of 11 bits gives one or two symbols per step;
//! longer codes, which are rare in header fields, are found by their length.
//!
//! Contract: the rest after the last symbol is at most 7 bits, all ones; the symbol EOS is an error (section 5.2).

/// The lengths of the codes of all bytes, in bits; the last one is EOS.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26, 30,
];
const EOS: u16 = 256;
const LONGEST: usize = 30;
/// The number of bits that one step looks at.
const STEP: u32 = 11;

/// The code, by length: the first code (in 30 bits, from the left) and the end, and where its symbols begin.
struct ByLength {
    /// Codes of this length or less are below this, left-aligned in 30 bits.
    limit: [u32; LONGEST + 1],
    first: [u32; LONGEST + 1],
    offset: [u16; LONGEST + 1],
    symbols: [u16; 257],
}

static BY_LENGTH: ByLength = by_length();
/// The code and length of each byte.
static CODES: [(u32, u8); 257] = codes();
/// First and second symbol, bits of the first one, bits of both (the same, if there is only one); all 0 for
/// longer codes.
static STEPS: [[u8; 4]; 1 << STEP] = steps();

const fn by_length() -> ByLength {
    let mut table = ByLength {
        limit: [0; LONGEST + 1],
        first: [0; LONGEST + 1],
        offset: [0; LONGEST + 1],
        symbols: [0; 257],
    };
    let (mut code, mut placed, mut length) = (0u32, 0, 1);
    while length <= LONGEST {
        table.first[length] = code << (LONGEST - length);
        table.offset[length] = placed as u16;
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] as usize == length {
                table.symbols[placed] = symbol as u16;
                placed += 1;
                code += 1;
            }
            symbol += 1;
        }
        table.limit[length] = code << (LONGEST - length);
        code <<= 1;
        length += 1;
    }
    table
}

const fn codes() -> [(u32, u8); 257] {
    let table = by_length();
    let mut codes = [(0, 0); 257];
    let mut length = 1;
    while length <= LONGEST {
        let mut code = table.first[length] >> (LONGEST - length);
        let end = if length == LONGEST { 257 } else { table.offset[length + 1] as usize };
        let mut at = table.offset[length] as usize;
        while at < end {
            codes[table.symbols[at] as usize] = (code, length as u8);
            code += 1;
            at += 1;
        }
        length += 1;
    }
    codes
}

const fn steps() -> [[u8; 4]; 1 << STEP] {
    let codes = codes();
    let mut steps = [[0; 4]; 1 << STEP];
    let mut first = 0;
    while first < 256 {
        let (code, bits) = codes[first];
        if bits as u32 <= STEP {
            let from = (code << (STEP - bits as u32)) as usize;
            let mut at = from;
            while at < from + (1 << (STEP - bits as u32)) {
                steps[at] = [first as u8, 0, bits, bits];
                at += 1;
            }
            let mut second = 0;
            while second < 256 {
                let (more, more_bits) = codes[second];
                let both = bits as u32 + more_bits as u32;
                if both <= STEP {
                    let from = from + ((more << (STEP - both)) as usize);
                    let mut at = from;
                    while at < from + (1 << (STEP - both)) {
                        steps[at] = [first as u8, second as u8, bits, both as u8];
                        at += 1;
                    }
                }
                second += 1;
            }
        }
        first += 1;
    }
    steps
}

/// Returns the symbol at the front of 64 bits, and its length.
fn symbol(bits: u64) -> (u16, u32) {
    let code = (bits >> (64 - LONGEST)) as u32;
    let mut length = 5;
    while code >= BY_LENGTH.limit[length] && length < LONGEST {
        length += 1;
    }
    let at = usize::from(BY_LENGTH.offset[length])
        + ((code - BY_LENGTH.first[length]) >> (LONGEST - length)) as usize;
    (BY_LENGTH.symbols[at], length as u32)
}

/// Appends the decoded bytes of `coded`: at most 1.6 times as many. Returns `None` (after appending anything)
/// if it is malformed: a wrong padding, or EOS.
pub fn huffman_decode(coded: &[u8], to: &mut Vec<u8>) -> Option<()> {
    let start = to.len();
    // The shortest code has 5 bits; each step may write one byte too many.
    to.resize(start + coded.len() * 8 / 5 + 2, 0);
    let text = &mut to[start..];
    let (mut len, mut at) = (0, 0);
    // The next bits from the left, and how many of them are there.
    let (mut bits, mut have) = (0u64, 0u32);
    loop {
        if let Some(eight) = coded.get(at..at + 8) {
            let mut next = [0; 8];
            next.copy_from_slice(eight);
            bits |= u64::from_be_bytes(next) >> have;
            at += ((63 - have) >> 3) as usize;
            have |= 56;
        } else {
            while have <= 56 && at < coded.len() {
                bits |= u64::from(coded[at]) << (56 - have);
                at += 1;
                have += 8;
            }
        }
        while have >= STEP {
            let [first, second, bits_first, bits_both] = STEPS[(bits >> (64 - STEP)) as usize];
            if bits_both > 0 {
                text[len] = first;
                text[len + 1] = second;
                len += 1 + usize::from(bits_both != bits_first);
                bits <<= bits_both;
                have -= u32::from(bits_both);
            } else if have < LONGEST as u32 {
                break;
            } else {
                let (symbol, length) = symbol(bits);
                if symbol == EOS {
                    return None;
                }
                text[len] = symbol as u8;
                len += 1;
                bits <<= length;
                have -= length;
            }
        }
        if at == coded.len() {
            break;
        }
    }
    // Fewer bits than the longest code: one symbol at a time. Missing bits read as ones, as if they were padding.
    while have > 0 {
        let rest = bits | u64::MAX >> have;
        let [first, _, length, _] = STEPS[(rest >> (64 - STEP)) as usize];
        let (symbol, length) = if length > 0 { (u16::from(first), u32::from(length)) } else { symbol(rest) };
        if length > have {
            if have > 7 || rest != u64::MAX {
                return None;
            }
            break;
        }
        text[len] = symbol as u8;
        len += 1;
        bits <<= length;
        have -= length;
    }
    to.truncate(start + len);
    Some(())
}

/// Returns the number of bytes that [`huffman_encode`] appends for `text`.
pub fn huffman_len(text: &[u8]) -> usize {
    text.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum::<usize>().div_ceil(8)
}

/// Appends the code of `text`, padded with ones.
pub fn huffman_encode(text: &[u8], to: &mut Vec<u8>) {
    let (mut bits, mut have) = (0u64, 0u32);
    for &byte in text {
        let (code, length) = CODES[usize::from(byte)];
        bits = bits << length | u64::from(code);
        have += u32::from(length);
        while have >= 8 {
            have -= 8;
            to.push((bits >> have) as u8);
        }
    }
    if have > 0 {
        to.push((bits << (8 - have)) as u8 | 0xff >> have);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(coded: &[u8]) -> Option<Vec<u8>> {
        let mut text = b"before".to_vec();
        huffman_decode(coded, &mut text)?;
        assert!(text.starts_with(b"before") && text.len() - 6 <= coded.len() * 8 / 5);
        Some(text[6..].to_vec())
    }

    fn encode(text: &[u8]) -> Vec<u8> {
        let mut coded = Vec::new();
        huffman_encode(text, &mut coded);
        assert_eq!(coded.len(), huffman_len(text));
        coded
    }

    /// Decodes one bit at a time, from the list of codes, as a reference for the tables.
    fn reference(coded: &[u8]) -> Option<Vec<u8>> {
        let (mut text, mut code, mut length) = (Vec::new(), 0u32, 0u8);
        for bit in coded.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1)) {
            (code, length) = (code << 1 | u32::from(bit), length + 1);
            match CODES.iter().position(|&known| known == (code, length)) {
                Some(256) => return None,
                Some(symbol) => {
                    text.push(symbol as u8);
                    (code, length) = (0, 0);
                }
                None => {}
            }
        }
        (length < 8 && code == (1 << length) - 1).then_some(text)
    }

    /// RFC 7541 appendix C.4 and C.6.
    #[test]
    fn examples_of_the_rfc() {
        for (text, coded) in [
            ("www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
            ("no-cache", "a8eb10649cbf"),
            ("custom-key", "25a849e95ba97d7f"),
            ("custom-value", "25a849e95bb8e8b4bf"),
            ("302", "6402"),
            ("private", "aec3771a4b"),
            ("Mon, 21 Oct 2013 20:13:21 GMT", "d07abe941054d444a8200595040b8166e082a62d1bff"),
            ("https://www.example.com", "9d29ad171863c78f0b97c8e9ae82ae43d3"),
        ] {
            let bytes: Vec<u8> = (0..coded.len())
                .step_by(2)
                .map(|i| u8::from_str_radix(&coded[i..i + 2], 16).unwrap())
                .collect();
            assert_eq!(encode(text.as_bytes()), bytes, "{text}");
            assert_eq!(decode(&bytes).as_deref(), Some(text.as_bytes()));
        }
    }

    #[test]
    fn every_byte_has_a_code() {
        for byte in 0..=255 {
            assert_eq!(decode(&encode(&[byte])), Some(vec![byte]));
            assert_eq!(decode(&encode(&[byte; 40])), Some(vec![byte; 40]));
        }
        // RFC 7541 appendix B: the last codes.
        assert_eq!(CODES[22], (0x3fff_fffe, 30));
        assert_eq!(CODES[256], (0x3fff_ffff, 30));
    }

    #[test]
    fn padding_and_eos() {
        assert_eq!(decode(&[]), Some(vec![]));
        // "a" is 00011; the rest must be ones.
        assert_eq!(decode(&[0b0001_1111]), Some(b"a".to_vec()));
        for bad in [
            &[0b0001_1110][..],
            &[0b0001_1000],
            &[0b0001_1111, 0xff],
            &[0xff],
            &[0xff; 2],
            &[0xff; 3],
            &[0xff; 4],
            &[0xff; 5],
            &[0xff; 20],
        ] {
            assert_eq!(decode(bad), None, "{bad:x?}");
        }
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(text: Vec<u8>) {
            prop_assert_eq!(decode(&encode(&text)), Some(text));
        }

        #[test]
        fn decoding_undoes_encoding_of_usual_text(text in "[ -~]{0,200}") {
            prop_assert_eq!(decode(&encode(text.as_bytes())), Some(text.into_bytes()));
        }

        #[test]
        fn any_bytes_decode_as_they_do_bit_by_bit(coded in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xff), Just(0xfe)], 0..40)) {
            prop_assert_eq!(decode(&coded), reference(&coded));
        }
    }
}
