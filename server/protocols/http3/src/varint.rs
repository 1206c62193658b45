//! Encodes and decodes variable-length integers of QUIC (RFC 9000 section 16).

/// The largest number that fits: 2^62 - 1.
pub const MAX: u64 = (1 << 62) - 1;

/// Decodes the number at the start. Returns the number and its length in bytes; `None` if bytes are missing.
#[inline]
pub fn decode(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let len = 1usize << (first >> 6);
    let rest = bytes.get(1..len)?;
    let number = rest.iter().fold(u64::from(first & 0x3f), |number, &byte| number << 8 | u64::from(byte));
    Some((number, len))
}

/// Appends `number` in the shortest form. Numbers beyond [`MAX`] cannot be written and are a bug of the caller.
#[inline]
pub fn encode(text: &mut Vec<u8>, number: u64) {
    debug_assert!(number <= MAX);
    match number {
        0..=0x3f => text.push(number as u8),
        0x40..=0x3fff => text.extend_from_slice(&(number as u16 | 0x4000).to_be_bytes()),
        0x4000..=0x3fff_ffff => text.extend_from_slice(&(number as u32 | 0x8000_0000).to_be_bytes()),
        _ => text.extend_from_slice(&(number & MAX | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn examples_of_the_standard() {
        for (bytes, number) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ] {
            assert_eq!(decode(bytes), Some((number, bytes.len())));
            for cut in 0..bytes.len() {
                assert_eq!(decode(&bytes[..cut]), None);
            }
        }
    }

    proptest! {
        #[test]
        fn numbers_survive(number in 0..=MAX, behind in any::<u8>()) {
            let mut text = Vec::new();
            encode(&mut text, number);
            let len = text.len();
            text.push(behind);
            prop_assert_eq!(decode(&text), Some((number, len)));
        }
    }
}
