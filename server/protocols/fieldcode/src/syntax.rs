//! Defines character classes and small grammars (RFC 9110 section 5, RFC 3986).

use std::net::Ipv6Addr;
pub use text::{is_token, is_token_byte, token_len};

static REG_NAME: [bool; 256] = text::alphanumeric_and(b"-._~!$&'()*+,;=");

/// Returns whether a field value has no control byte but tabs; bytes above 127 are opaque (obs-text).
#[inline]
pub fn is_value(bytes: &[u8]) -> bool {
    // Values are short, so words are cheaper than vectors, which leave a rest of up to 15 bytes. The last word overlaps the one before.
    let (words, _) = bytes.as_chunks();
    match bytes.last_chunk() {
        Some(last) => words.iter().all(is_plain) && is_plain(last) || !bytes.iter().any(is_control),
        None => !bytes.iter().any(is_control),
    }
}

fn is_control(byte: &u8) -> bool {
    (*byte < b' ' && *byte != b'\t') || *byte == 0x7f
}

/// Returns whether none of the bytes is below a blank, nor 127.
#[inline]
fn is_plain(bytes: &[u8; 8]) -> bool {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES * 128;
    let word = u64::from_ne_bytes(*bytes);
    let deleted = word ^ (ONES * 0x7f);
    // A byte below `n` borrows from its high bit when `n` is subtracted. A borrow can reach only bytes above one that is found itself.
    let below = word.wrapping_sub(ONES * u64::from(b' ')) & !word;
    let zero = deleted.wrapping_sub(ONES) & !deleted;
    (below | zero) & HIGH == 0
}

/// Returns whether a request target has no control bytes, no blanks and no fragment; bytes above 127 are allowed.
#[inline]
pub fn is_target(bytes: &[u8]) -> bool {
    !bytes.iter().fold(false, |bad, &b| bad | (b <= b' ') | (b == 0x7f) | (b == b'#'))
}

/// Removes blanks around a value.
#[inline]
pub fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Parses digits and nothing else, within 64 bits.
pub fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, &b| {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

/// Returns whether the text is a host with an optional port: registered name, IPv4 or bracketed IPv6 address;
/// no user information.
pub fn is_authority(text: &[u8]) -> bool {
    let (host_ok, rest) = if let [b'[', inner @ ..] = text {
        let Some(end) = memchr::memchr(b']', inner) else { return false };
        (is_ipv6(&inner[..end]), &inner[end + 1..])
    } else {
        let end = memchr::memchr(b':', text).unwrap_or(text.len());
        (is_reg_name(&text[..end]), &text[end..])
    };
    host_ok
        && match rest {
            [] | [b':'] => true,
            [b':', port @ ..] => decimal(port).is_some_and(|port| port <= 65_535),
            _ => false,
        }
}

fn is_reg_name(mut name: &[u8]) -> bool {
    if name.is_empty() {
        return false;
    }
    if name.iter().all(|&b| REG_NAME[b as usize]) {
        return true;
    }
    while let [first, rest @ ..] = name {
        name = match (first, rest) {
            (b'%', [high, low, rest @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => rest,
            (&byte, rest) if REG_NAME[byte as usize] => rest,
            _ => return false,
        };
    }
    true
}

fn is_ipv6(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities() {
        for good in [
            "x",
            "x:80",
            "x:",
            "my_app.test:65535",
            "127.0.0.1",
            "[::1]",
            "[::1]:8080",
            "%41b",
            "a,b;c=d",
            "x:00080",
        ] {
            assert!(is_authority(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            ":80",
            "x y",
            "x/y",
            "u@x",
            "x:port",
            "x:99999",
            "x:80:80",
            "[::1",
            "[::1]x",
            "[x]",
            "[]",
            "x?y",
            "x#y",
            "x\\y",
            "%4",
            "%zz",
            "x:-1",
            "x:+1",
            "\u{e9}x",
            "[::1%25eth0]",
            "x\0",
        ] {
            assert!(!is_authority(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn decimals() {
        for (text, number) in [
            ("0", Some(0)),
            ("0003", Some(3)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("", None),
            ("+1", None),
            ("-0", None),
            ("1 ", None),
            ("0x1", None),
            ("1,1", None),
            ("1_0", None),
            ("\u{ff15}", None),
        ] {
            assert_eq!(decimal(text.as_bytes()), number, "{text}");
        }
    }

    #[test]
    fn values_and_targets() {
        for byte in 0..=255u8 {
            let text = [b'a', byte, b'b'];
            assert_eq!(is_value(&text), byte == b'\t' || (byte >= b' ' && byte != 0x7f), "{byte}");
            assert_eq!(is_target(&text), byte > b' ' && byte != 0x7f && byte != b'#', "{byte}");
        }
        for (len, at) in (0..40_usize).flat_map(|len| (0..len).map(move |at| (len, at))) {
            for byte in 0..=255u8 {
                let mut text = vec![b'~'; len];
                text[at] = byte;
                assert_eq!(is_value(&text), !is_control(&byte), "{byte} at {at} of {len}");
            }
        }
        assert_eq!(trim(b" \t a \t b\t "), b"a \t b");
        assert_eq!(trim(b" \t "), b"");
        assert!(
            is_token(b"!#$%&'*+-.^_`|~09azAZ") && !is_token(b"") && !is_token(b"a b") && !is_token(b"a:")
        );
    }
}
