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

#[cfg(test)]
mod tests {
    #[test]
    fn each_byte_has_two_digits() {
        assert_eq!(super::hex(&[0, 0x0a, 0xff]), "000aff");
        assert_eq!(super::hex(&[]), "");
    }
}
