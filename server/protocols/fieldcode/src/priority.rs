//! Parses priorities of responses (RFC 9218).

/// The urgency of a response, and how it shares the connection with others of the same urgency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// 0 is the most urgent, 7 the least.
    pub urgency: u8,
    /// A part of the response is useful by itself: such responses are sent in turns.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Priority {
        Priority { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// Parses the value of a `priority` field or a PRIORITY_UPDATE frame. Unknown or malformed members count
    /// as absent (section 5).
    pub fn parse(value: &[u8]) -> Priority {
        let mut priority = Priority::default();
        for member in value.split(|&byte| byte == b',') {
            // Parameters of a member have no meaning.
            let member = member.split(|&byte| byte == b';').next().unwrap_or_default();
            match member.trim_ascii() {
                [b'u', b'=', urgency @ b'0'..=b'7'] => priority.urgency = urgency - b'0',
                b"i" | b"i=?1" => priority.incremental = true,
                b"i=?0" => priority.incremental = false,
                _ => {}
            }
        }
        priority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        for (value, urgency, incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i,u=1", 1, true),
            ("i=?1", 3, true),
            ("i, i=?0", 3, false),
            ("u=8", 3, false),
            ("u=-1", 3, false),
            ("u=55", 3, false),
            ("u=1;x=y, z=\"a\", i;q", 1, true),
            ("U=1", 3, false),
            (",,,", 3, false),
            ("i, u=7", 7, true),
            ("u=1;x, i", 1, true),
            ("u=9", 3, false),
            ("u=1,u=5", 5, false),
            ("x=u=1", 3, false),
            ("u", 3, false),
        ] {
            assert_eq!(Priority::parse(value.as_bytes()), Priority { urgency, incremental }, "{value}");
        }
    }
}
