//! Escapes text from clients.

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Escapes as Apache does inside quotes: `"` and `\` after a backslash, everything but printable ASCII as `\xhh`.
pub(super) fn apache(out: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0x20..=0x7e => out.push(byte),
            _ => out.extend_from_slice(&[
                b'\\',
                b'x',
                HEX[usize::from(byte >> 4)],
                HEX[usize::from(byte & 15)],
            ]),
        }
    }
}

/// Writes a JSON string with its quotes. Invalid UTF-8 becomes U+FFFD. Control characters, also those above
/// ASCII, and the two separators that some readers take for line ends are written as `\uhhhh`.
pub(crate) fn json(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for part in text.utf8_chunks() {
        part.valid().chars().for_each(|character| json_char(out, character));
        if !part.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    out.push(b'"');
}

fn json_char(out: &mut Vec<u8>, character: char) {
    match character {
        '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
        ' '..='~' => out.push(character as u8),
        '\u{0}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
            out.extend_from_slice(b"\\u");
            let code = character as usize;
            out.extend([12, 8, 4, 0].map(|shift| HEX[code >> shift & 15]));
        }
        _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn apache_text(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        apache(&mut out, text);
        out
    }

    fn json_text(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        json(&mut out, text);
        out
    }

    /// The slow inverse of [`apache`].
    fn unescape(text: &[u8]) -> Vec<u8> {
        match text {
            [b'\\', b'x', high, low, rest @ ..] => {
                let hex = String::from_utf8(vec![*high, *low]).unwrap();
                [vec![u8::from_str_radix(&hex, 16).unwrap()], unescape(rest)].concat()
            }
            [b'\\', byte, rest @ ..] | [byte, rest @ ..] => [vec![*byte], unescape(rest)].concat(),
            [] => Vec::new(),
        }
    }

    #[test]
    fn examples() {
        assert_eq!(apache_text(b"a\"b\\c\n\xc3\xa9\x7f"), br#"a\"b\\c\x0a\xc3\xa9\x7f"#);
        assert_eq!(json_text(b"a\"b\\c\n\xff\x7f"), "\"a\\\"b\\\\c\\u000a\u{fffd}\\u007f\"".as_bytes());
        assert_eq!(json_text("é\u{2028}".as_bytes()), "\"é\\u2028\"".as_bytes());
    }

    proptest! {
        #[test]
        fn apache_is_printable_and_loses_nothing(text: Vec<u8>) {
            let escaped = apache_text(&text);
            prop_assert!(escaped.iter().all(|byte| (0x20..0x7f).contains(byte)));
            prop_assert_eq!(unescape(&escaped), text);
        }

        #[test]
        fn json_is_json_and_has_no_control_bytes(text: Vec<u8>) {
            let escaped = json_text(&text);
            prop_assert!(escaped.iter().all(|&byte| byte >= 0x20));
            let read: String = serde_json::from_slice(&escaped).unwrap();
            prop_assert_eq!(read, String::from_utf8_lossy(&text));
        }
    }
}
