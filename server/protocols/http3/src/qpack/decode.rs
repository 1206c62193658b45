//! Decodes a field section (RFC 9204 section 4.5) into a checked [`Section`].

use super::table::{self, STATIC};
use crate::error::{Code, Error};
use fieldcode::{HeadLimits, Name, Section, decode_integer, huffman_decode, is_field_value};

const MALFORMED: Error =
    Error::Connection(Code::QpackDecompressionFailed, "a field section that cannot be decoded");

/// Decodes a complete encoded section into `section`.
///
/// # Errors
/// The section cannot be decoded, which ends the connection, or it is far beyond the limits.
pub(crate) fn decode(bytes: &[u8], section: &mut Section, limits: &HeadLimits) -> Result<(), Error> {
    let mut at = 0;
    let required = decode_integer(bytes, &mut at, 8).map_err(|_| MALFORMED)?;
    let delta = decode_integer(bytes, &mut at, 7).map_err(|_| MALFORMED)?;
    // With an empty dynamic table both are 0 (section 4.5.1); the sign of a delta of 0 would make the base negative.
    if required != 0 || delta != 0 || bytes[1] & 0x80 != 0 {
        return Err(Error::Connection(
            Code::QpackDecompressionFailed,
            "a reference to the dynamic table, which has no room",
        ));
    }
    while let Some(&first) = bytes.get(at) {
        let outcome = match first {
            // Indexed, static (section 4.5.2).
            0xc0.. => {
                let index = static_index(bytes, &mut at, 6)?;
                let (name, value) = STATIC[index];
                let start = section.text().len();
                section.text().extend_from_slice(name.as_bytes());
                section.text().extend_from_slice(value.as_bytes());
                section.decoded(table::kind(index), start, name.len(), true, limits)
            }
            // Literal with a name of the static table (section 4.5.4).
            0x50..=0x5f | 0x70..=0x7f => {
                let index = static_index(bytes, &mut at, 4)?;
                let name = STATIC[index].0;
                let start = section.text().len();
                section.text().extend_from_slice(name.as_bytes());
                let value = string(bytes, &mut at, 7, section.text())?;
                let good = is_field_value(&section.text()[value..]);
                section.decoded(table::kind(index), start, name.len(), good, limits)
            }
            // Literal with its own name (section 4.5.6).
            0x20..=0x3f => {
                let start = string(bytes, &mut at, 3, section.text())?;
                let value = string(bytes, &mut at, 7, section.text())?;
                let text = section.text();
                let (kind, good) = (Name::of(&text[start..value]), is_field_value(&text[value..]));
                section.decoded(kind, start, value - start, good, limits)
            }
            // The others refer to the dynamic table.
            _ => {
                return Err(Error::Connection(
                    Code::QpackDecompressionFailed,
                    "a reference to the dynamic table, which has no room",
                ));
            }
        };
        outcome
            .map_err(|_| Error::Connection(Code::ExcessiveLoad, "a field section far beyond the limits"))?;
    }
    Ok(())
}

fn static_index(bytes: &[u8], at: &mut usize, prefix: u32) -> Result<usize, Error> {
    let index = decode_integer(bytes, at, prefix).map_err(|_| MALFORMED)?;
    usize::try_from(index).ok().filter(|&index| index < STATIC.len()).ok_or(MALFORMED)
}

/// Appends a string whose length has a prefix of `prefix` bits, with the Huffman flag above it. Returns where
/// it begins in `text`.
fn string(bytes: &[u8], at: &mut usize, prefix: u32, text: &mut Vec<u8>) -> Result<usize, Error> {
    let huffman = bytes.get(*at).ok_or(MALFORMED)? & 1 << prefix != 0;
    let len = decode_integer(bytes, at, prefix).map_err(|_| MALFORMED)?;
    let end = usize::try_from(len).ok().and_then(|len| at.checked_add(len)).ok_or(MALFORMED)?;
    let coded = bytes.get(*at..end).ok_or(MALFORMED)?;
    *at = end;
    let start = text.len();
    if huffman {
        huffman_decode(coded, text).ok_or(MALFORMED)?;
    } else {
        text.extend_from_slice(coded);
    }
    Ok(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(bytes: &[u8]) -> Result<Section, Error> {
        let mut section = Section::request(100, 10);
        decode(bytes, &mut section, &HeadLimits::default()).map(|()| section)
    }

    #[test]
    fn a_request_of_the_static_table() {
        // GET https /, :authority "www.example.com" as in RFC 9204 appendix B, user-agent by its name, x-a by
        // a literal.
        let mut bytes = vec![0, 0, 0xd1, 0xd7, 0xc1, 0x50, 0x0f];
        bytes.extend_from_slice(b"www.example.com");
        bytes.extend_from_slice(&[0x5f, 0x50, 0x02]);
        bytes.extend_from_slice(b"ua");
        bytes.extend_from_slice(&[0x23]);
        bytes.extend_from_slice(b"x-a\x01b");
        let head = request(&bytes).unwrap().finish_request(true).unwrap();
        let text = head.fields.text();
        assert_eq!(head.method.slice(text), b"GET");
        assert_eq!(head.scheme.slice(text), b"https");
        assert_eq!(head.authority.slice(text), b"www.example.com");
        let fields: Vec<_> = head.fields.iter().collect();
        assert_eq!(fields, [(&b"host"[..], &b"www.example.com"[..]), (b"user-agent", b"ua"), (b"x-a", b"b")]);
    }

    #[test]
    fn what_needs_the_dynamic_table_ends_the_connection() {
        for bytes in [
            &[1, 0][..],
            &[0, 1],
            &[0, 0x80],
            &[0, 0, 0x80],
            &[0, 0, 0x10],
            &[0, 0, 0x40, 0],
            &[0, 0, 0x00, 0],
        ] {
            assert!(
                matches!(request(bytes), Err(Error::Connection(Code::QpackDecompressionFailed, _))),
                "{bytes:x?}"
            );
        }
    }

    #[test]
    fn truncated_and_impossible_sections() {
        for bytes in [
            &[][..],
            &[0],
            &[0, 0, 0xff],
            &[0, 0, 0xff, 0x40],
            &[0, 0, 0x50, 5, b'a'],
            &[0, 0, 0x23, b'a'],
            &[0, 0, 0x50, 0x81, 0],
        ] {
            assert!(
                matches!(request(bytes), Err(Error::Connection(Code::QpackDecompressionFailed, _))),
                "{bytes:x?}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(section) = request(&bytes) {
                let _ = section.finish_request(false);
            }
        }
    }
}
