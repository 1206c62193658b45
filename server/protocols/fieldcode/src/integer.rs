//! Encodes and decodes integers with a prefix of 1 to 8 bits (RFC 7541 section 5.1, RFC 9204 section 4.1.1).

/// The most bytes after the prefix: 63 bits, as RFC 9204 requires at least 62.
const MAX_MORE: u32 = 9;

/// Why there is no integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntegerError {
    /// The integer continues after the last byte.
    Incomplete,
    /// The integer has more than 63 bits, or is written with more bytes than such a number needs.
    TooLarge,
}

/// Decodes the integer that begins at `*at` in the lowest `prefix` bits (1 to 8) of a byte, and moves `*at` behind it.
///
/// # Errors
/// The integer is incomplete, or larger than 63 bits.
#[inline]
pub fn decode_integer(bytes: &[u8], at: &mut usize, prefix: u32) -> Result<u64, IntegerError> {
    let &first = bytes.get(*at).ok_or(IntegerError::Incomplete)?;
    *at += 1;
    let most = (1u64 << prefix) - 1;
    let value = u64::from(first) & most;
    if value < most { Ok(value) } else { decode_more(bytes, at, value) }
}

fn decode_more(bytes: &[u8], at: &mut usize, mut value: u64) -> Result<u64, IntegerError> {
    for i in 0..MAX_MORE {
        let &byte = bytes.get(*at).ok_or(IntegerError::Incomplete)?;
        *at += 1;
        value += u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return if value >> 63 == 0 { Ok(value) } else { Err(IntegerError::TooLarge) };
        }
    }
    Err(IntegerError::TooLarge)
}

/// Appends an integer whose first byte has `flags` above its `prefix` bits (1 to 8).
#[inline]
pub fn encode_integer(to: &mut Vec<u8>, flags: u8, prefix: u32, value: u64) {
    let most = (1u64 << prefix) - 1;
    if value < most {
        to.push(flags | value as u8);
        return;
    }
    to.push(flags | most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        to.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    to.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 7541 appendix C.1.
    #[test]
    fn examples_of_the_rfc() {
        for (value, prefix, coded) in
            [(10, 5, &[0x0a][..]), (1337, 5, &[0x1f, 0x9a, 0x0a]), (42, 8, &[0x2a]), (31, 5, &[0x1f, 0])]
        {
            let mut to = Vec::new();
            encode_integer(&mut to, 0, prefix, value);
            assert_eq!(to, coded);
            assert_eq!(decode_integer(coded, &mut 0, prefix), Ok(value));
        }
    }

    #[test]
    fn overflows_and_ends() {
        assert_eq!(decode_integer(&[], &mut 0, 5), Err(IntegerError::Incomplete));
        assert_eq!(decode_integer(&[0x1f, 0x80], &mut 0, 5), Err(IntegerError::Incomplete));
        let mut long = [0xff; 20];
        assert_eq!(decode_integer(&long, &mut 0, 7), Err(IntegerError::TooLarge));
        long[1..].fill(0x80);
        assert_eq!(decode_integer(&long, &mut 0, 7), Err(IntegerError::TooLarge));
        // 2^63 - 1 and beyond.
        let mut most = vec![0xffu8; 10];
        most[9] = 0x7f;
        assert_eq!(decode_integer(&most, &mut 0, 8), Err(IntegerError::TooLarge));
        most.clear();
        encode_integer(&mut most, 0, 8, (1 << 63) - 1);
        assert_eq!(decode_integer(&most, &mut 0, 8), Ok((1 << 63) - 1));
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(bits in 0u32..63, noise: u64, prefix in 1u32..9, flags: u8, tail: [u8; 2]) {
            let value = noise & ((1 << bits) - 1) | 1 << bits >> 1;
            let flags = if prefix == 8 { 0 } else { flags >> prefix << prefix };
            let mut coded = Vec::new();
            encode_integer(&mut coded, flags, prefix, value);
            let len = coded.len();
            for cut in 0..len {
                prop_assert_eq!(decode_integer(&coded[..cut], &mut 0, prefix), Err(IntegerError::Incomplete));
            }
            coded.extend_from_slice(&tail);
            let mut at = 0;
            prop_assert_eq!(decode_integer(&coded, &mut at, prefix), Ok(value));
            prop_assert_eq!(at, len);
            prop_assert_eq!(u32::from(coded[0]) >> prefix << prefix, u32::from(flags));
        }

        #[test]
        fn any_bytes_are_safe(bytes: Vec<u8>, prefix in 1u32..9) {
            let mut at = 0;
            let result = decode_integer(&bytes, &mut at, prefix);
            prop_assert!(at <= bytes.len() && at <= 10);
            prop_assert!(result.is_err() || at > 0);
        }
    }
}
