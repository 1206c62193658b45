//! Percent-encoded text (RFC 3986 section 2.1).

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, PercentEncode, percent_encode};
use std::borrow::Cow;

/// Encodes everything but unreserved characters (RFC 3986 section 2.3): for one segment of a path.
pub const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes everything but the characters of a path (RFC 3986 section 3.3).
pub const PATH: &AsciiSet = &SEGMENT
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@')
    .remove(b'/');

/// Encodes only bytes that are not visible ASCII: for text that is encoded already.
pub const INVISIBLE: &AsciiSet = &CONTROLS.add(b' ');

/// Encodes the bytes of `set`, and all that are not ASCII, as `%XX`. The result is text, or an iterator of parts.
pub fn encode<'a>(bytes: &'a [u8], set: &'static AsciiSet) -> PercentEncode<'a> {
    percent_encode(bytes, set)
}

/// Decodes each `%xx`. A `%` without two hexadecimal digits behind it stays.
pub fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    percent_encoding::percent_decode(text).into()
}

/// Decodes each `%xx`; `None` if a `%` is not followed by two hexadecimal digits.
pub fn decode_strict(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    is_well_formed(text).then(|| decode(text))
}

/// Returns whether each `%` has two hexadecimal digits behind it.
pub fn is_well_formed(text: &[u8]) -> bool {
    let mut parts = text.split(|&byte| byte == b'%');
    parts.next();
    parts.all(|behind| pair(behind).is_some())
}

/// Returns the value of the two hexadecimal digits at the start.
pub fn pair(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    u8::try_from(digit(0)? << 4 | digit(1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_stray_percent_sign_stays_or_is_an_error() {
        for (text, lenient, strict) in [
            ("a%20b%2Fc%2f", "a b/c/", Some("a b/c/")),
            ("100%", "100%", None),
            ("%4", "%4", None),
            ("%+4", "%+4", None),
            ("%zz%41", "%zzA", None),
            ("%%41", "%A", None),
            ("%2541", "%41", Some("%41")),
            ("", "", Some("")),
        ] {
            assert_eq!(decode(text.as_bytes()), lenient.as_bytes(), "{text}");
            assert_eq!(decode_strict(text.as_bytes()).as_deref(), strict.map(str::as_bytes), "{text}");
        }
        assert_eq!((pair(b"fF0"), pair(b"f"), pair(b"+1")), (Some(255), None, None));
    }

    #[test]
    fn a_set_names_the_bytes_that_are_encoded() {
        let all: Vec<u8> = (0..=255).collect();
        let kept = |set| {
            let is_kept = |byte: &&u8| encode(std::slice::from_ref(*byte), set).to_string().len() == 1;
            String::from_utf8(all.iter().filter(is_kept).copied().collect()).expect("ASCII")
        };
        let letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~";
        assert_eq!(kept(SEGMENT), format!("-.{letters}"));
        assert_eq!(
            kept(PATH),
            "!$&'()*+,-./0123456789:;=@ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~"
        );
        assert_eq!(kept(INVISIBLE), (b'!'..=b'~').map(char::from).collect::<String>());
    }

    proptest! {
        #[test]
        fn encoded_bytes_are_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            let text = encode(&bytes, SEGMENT).to_string();
            let decoded = decode_strict(text.as_bytes());
            prop_assert_eq!(decoded.as_deref(), Some(&bytes[..]));
        }

        #[test]
        fn any_text_is_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            let decoded = decode(&bytes);
            prop_assert!(decoded.len() <= bytes.len());
            prop_assert!(decode_strict(&bytes).is_none_or(|strict| strict == decoded));
        }
    }
}
