//! Percent-encodes text for `Location` fields and request targets.

/// Percent-encodes all bytes that are not visible ASCII, and `\`, `"`, `<` and `>`.
pub(super) fn visible(bytes: &[u8]) -> Vec<u8> {
    percent(bytes, |byte| byte.is_ascii_graphic() && !b"\\\"<>".contains(&byte))
}

/// Encodes a decoded path, or a part of one, for a path (or for a value in a query).
pub(super) fn encoded(path: &str, in_query: bool) -> Vec<u8> {
    let kept: &[u8] = if in_query { b"/:@-._~!$'()*,;" } else { b"/:@-._~!$&'()*+,;=" };
    percent(path.as_bytes(), |byte| byte.is_ascii_alphanumeric() || kept.contains(&byte))
}

fn percent(bytes: &[u8], keep: impl Fn(u8) -> bool) -> Vec<u8> {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = Vec::with_capacity(bytes.len());
    for &byte in bytes {
        if keep(byte) {
            out.push(byte);
        } else {
            out.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_kept_and_encoded() {
        assert_eq!(visible(b"/a%20b?c=d&\r\n\\\xff<>"), b"/a%20b?c=d&%0D%0A%5C%FF%3C%3E");
        assert_eq!(encoded("/a b?c#d%&=+\\/é", false), b"/a%20b%3Fc%23d%25&=+%5C/%C3%A9");
        assert_eq!(encoded("a&b=c+d", true), b"a%26b%3Dc%2Bd");
    }
}
