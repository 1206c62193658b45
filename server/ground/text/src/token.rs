//! Tokens (RFC 9110 section 5.6.2): methods, names of fields, codings.

static TOKEN: [bool; 256] = alphanumeric_and(b"!#$%&'*+-.^_`|~");

/// Returns a table of ASCII letters, digits and `more`, indexed by byte.
pub const fn alphanumeric_and(more: &[u8]) -> [bool; 256] {
    let mut set = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        set[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < more.len() {
        set[more[at] as usize] = true;
        at += 1;
    }
    set
}

/// Returns whether a token may contain the byte.
#[inline]
pub fn is_token_byte(byte: u8) -> bool {
    TOKEN[byte as usize]
}

/// Returns the length of the token at the start.
#[inline]
pub fn token_len(bytes: &[u8]) -> usize {
    bytes.iter().position(|&byte| !is_token_byte(byte)).unwrap_or(bytes.len())
}

/// Returns whether all of it is one token.
#[inline]
pub fn is_token(bytes: &[u8]) -> bool {
    // Without a branch per byte.
    !bytes.is_empty() && bytes.iter().fold(true, |token, &byte| token & is_token_byte(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_no_separators() {
        assert!(is_token(b"!#$%&'*+-.^_`|~09azAZ"));
        for wrong in [&b""[..], b"a b", b"a:", b"a\0", b"\xe4", b"a/b", b"(", b"\""] {
            assert!(!is_token(wrong), "{wrong:?}");
        }
        assert_eq!(token_len(b"Host: x"), 4);
    }
}
