//! Classifies field names, which determines how a field is checked.
//!
//! Why: a compression table keeps the kind with each field, so that a field which a client sends with every
//! request is checked once.

use crate::syntax::{is_token_byte, is_value};

/// The kinds of field names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// A name without a special rule.
    Plain,
    Method,
    Scheme,
    Authority,
    Path,
    /// `:protocol` of an Extended CONNECT (RFC 8441 section 4).
    Protocol,
    /// A name with a leading colon that no request may have.
    UnknownPseudo,
    Host,
    Cookie,
    ContentLength,
    Te,
    Expect,
    Priority,
    /// `connection`, `keep-alive`, `proxy-connection`, `transfer-encoding`, `upgrade`: about an HTTP/1 connection.
    Connection,
    /// A name with `_` in it.
    Underscore,
    /// Empty, not a token, or not in lower case.
    Malformed,
}

impl Name {
    /// Returns the kind of a name.
    pub fn of(name: &[u8]) -> Name {
        if let [b':', pseudo @ ..] = name {
            return match pseudo {
                b"method" => Name::Method,
                b"scheme" => Name::Scheme,
                b"authority" => Name::Authority,
                b"path" => Name::Path,
                b"protocol" => Name::Protocol,
                _ => Name::UnknownPseudo,
            };
        }
        let (mut bad, mut underscore) = (name.is_empty(), false);
        for &byte in name {
            bad |= !is_token_byte(byte) | byte.is_ascii_uppercase();
            underscore |= byte == b'_';
        }
        if bad {
            return Name::Malformed;
        }
        if underscore {
            return Name::Underscore;
        }
        match name {
            b"te" => Name::Te,
            b"host" => Name::Host,
            b"cookie" => Name::Cookie,
            b"expect" => Name::Expect,
            b"priority" => Name::Priority,
            b"content-length" => Name::ContentLength,
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
                Name::Connection
            }
            _ => Name::Plain,
        }
    }

    /// Returns whether the name begins with a colon.
    #[inline]
    pub fn is_pseudo(self) -> bool {
        matches!(
            self,
            Name::Method | Name::Scheme | Name::Authority | Name::Path | Name::Protocol | Name::UnknownPseudo
        )
    }
}

/// Returns whether a field value has no control byte but tabs, and no blank at its ends (RFC 9113 section
/// 8.2.1, RFC 9110 section 5.5).
#[inline]
pub fn is_field_value(value: &[u8]) -> bool {
    !matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t']) && is_value(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        for (name, kind) in [
            (":path", Name::Path),
            (":protocol", Name::Protocol),
            (":status", Name::UnknownPseudo),
            (":", Name::UnknownPseudo),
            (":Path", Name::UnknownPseudo),
            ("", Name::Malformed),
            ("a b", Name::Malformed),
            ("A", Name::Malformed),
            ("a:", Name::Malformed),
            ("a\0", Name::Malformed),
            ("\u{e9}", Name::Malformed),
            ("x_y", Name::Underscore),
            ("content_length", Name::Underscore),
            ("host", Name::Host),
            ("upgrade", Name::Connection),
            ("x-1!", Name::Plain),
        ] {
            assert_eq!(Name::of(name.as_bytes()), kind, "{name:?}");
        }
    }

    #[test]
    fn values() {
        for (value, good) in [
            ("", true),
            ("a b\tc", true),
            ("\u{e9}", true),
            (" a", false),
            ("a\t", false),
            ("a\r", false),
            ("\0", false),
        ] {
            assert_eq!(is_field_value(value.as_bytes()), good, "{value:?}");
        }
    }
}
