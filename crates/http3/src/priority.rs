//! The `priority` field (RFC 9218 section 4): of its members only the urgency matters here, because QUIC sends streams of the same
//! urgency in turns.

/// Urgency of a request that says nothing, or nothing valid.
const DEFAULT: u8 = 3;

/// The urgency in the value of a `priority` field: 0 (first) to 7.
pub fn urgency(value: &[u8]) -> u8 {
    let members = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    // The last member of a name counts (RFC 9651 section 4.2.2).
    let mut last = members.filter_map(|member| match member {
        [b'u', b'=', digit @ b'0'..=b'7'] | [b'u', b'=', digit @ b'0'..=b'7', b';', ..] => Some(digit - b'0'),
        [b'u', b'=', ..] => Some(DEFAULT),
        _ => None,
    });
    last.next_back().unwrap_or(DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::urgency;

    #[test]
    fn urgencies() {
        for (value, expected) in [
            ("", 3),
            ("u=0", 0),
            ("i, u=7", 7),
            ("u=1;x, i", 1),
            ("u=9", 3),
            ("u=1,u=5", 5),
            ("x=u=1", 3),
            ("u", 3),
            ("u=-1", 3),
        ] {
            assert_eq!(urgency(value.as_bytes()), expected, "{value}");
        }
    }
}
