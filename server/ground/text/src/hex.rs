//! Hexadecimal digits of digests, fingerprints and secrets.

use std::fmt::Write;

/// Returns two lower-case digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads exactly two digits for each of `N` bytes, in either case.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    let mut bytes = [0; N];
    if digits.len() != 2 * N || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_byte_has_two_digits() {
        assert_eq!(super::hex(&[0, 0x0a, 0xff]), "000aff");
        assert_eq!(super::hex(&[]), "");
        assert_eq!(super::from_hex("000aFf"), Some([0, 0x0a, 0xff]));
        for wrong in ["", "000af", "000afg", "+00aff", "000aff0"] {
            assert_eq!(super::from_hex::<3>(wrong), None, "{wrong}");
        }
    }
}
