//! Pads encoded responses, so that their length tells less about their content.
//!
//! Why: a page that reflects a parameter beside a secret (a CSRF token) compresses better when the parameter
//! repeats the secret. An attacker who sees the lengths of TLS records finds the secret byte by byte (BREACH,
//! CVE-2013-3587). A random number of bytes, which decoders skip, multiplies the number of requests that the
//! attack needs.
//!
//! Contract: a decoder gives the same content with and without padding. The bytes lie in the extra field of
//! gzip (RFC 1952 section 2.3.1.1), in a skippable frame after the content (zstd, RFC 8878 section 3.1.2), in
//! a metadata meta-block (brotli, RFC 7932 section 9.2).

/// The number of bytes that an encoded response is padded with, 0 to 255.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Padding(u8);

impl Padding {
    /// No padding.
    pub const NONE: Padding = Padding(0);

    /// Returns padding of 1 to `most` bytes, each number equally likely; none if `most` is 0.
    pub fn random(most: u8) -> Padding {
        if most == 0 { Padding::NONE } else { Padding(fastrand::u8(1..=most)) }
    }

    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    #[cfg(test)]
    pub(super) fn of(bytes: u8) -> Padding {
        Padding(bytes)
    }

    fn bytes(self) -> impl Iterator<Item = u8> {
        (0..self.0).map(|_| 0)
    }
}

/// The fixed part of a gzip header: no name, no time, unknown system (RFC 1952 section 2.3).
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// The flag of a header with an extra field.
const GZIP_FEXTRA: u8 = 4;

/// Returns the extra field of a gzip header, without its length: one subfield.
pub(super) fn gzip_extra(padding: Padding) -> Option<Vec<u8>> {
    (!padding.is_none()).then(|| {
        let mut extra = vec![b'F', b'B', padding.0, 0];
        extra.extend(padding.bytes());
        extra
    })
}

pub(super) fn gzip_header(padding: Padding) -> Vec<u8> {
    let mut header = GZIP_HEADER.to_vec();
    if let Some(extra) = gzip_extra(padding) {
        header[3] |= GZIP_FEXTRA;
        header.extend_from_slice(&(extra.len() as u16).to_le_bytes());
        header.extend(extra);
    }
    header
}

/// Adds a skippable frame. It follows the content, so that a decoder that stops after one frame has everything.
pub(super) fn zstd_frame(padding: Padding, out: &mut Vec<u8>) {
    if !padding.is_none() {
        out.extend_from_slice(&0x184d_2a50_u32.to_le_bytes());
        out.extend_from_slice(&u32::from(padding.0).to_le_bytes());
        out.extend(padding.bytes());
    }
}

/// Adds a metadata meta-block to a stream that ends at a byte and is not finished. From the lowest bit:
/// ISLAST 0, MNIBBLES 11, a reserved 0, MSKIPBYTES 01, eight bits of MSKIPLEN - 1, and two bits to the end of
/// the byte.
pub(super) fn brotli_metadata(padding: Padding, out: &mut Vec<u8>) {
    if let Some(less) = padding.0.checked_sub(1) {
        let head = 0b01_0110_u16 | u16::from(less) << 6;
        out.extend_from_slice(&head.to_le_bytes());
        out.extend(padding.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_random_within_bounds() {
        let drawn: std::collections::BTreeSet<u8> = (0..2000).map(|_| Padding::random(32).0).collect();
        assert_eq!((drawn.first(), drawn.last()), (Some(&1), Some(&32)));
        assert!(Padding::random(0).is_none());
    }
}
