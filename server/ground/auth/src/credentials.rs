//! Parses the Authorization header field of the Basic scheme (RFC 7617 section 2). No I/O.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The longest password in bytes. Longer ones are rejected, because the time of some hash methods grows with
/// the square of the length.
const MAX_PASSWORD: usize = 1024;

/// A user name and a password as the client sent them.
pub(super) struct Credentials {
    pub(super) user: String,
    pub(super) password: Vec<u8>,
}

impl Credentials {
    /// Parses the header field's value. Returns `None` for another scheme, non-canonical Base64, no colon,
    /// control characters, a user name that is not UTF-8, or a password that is too long.
    pub(super) fn parse(value: &[u8]) -> Option<Credentials> {
        let (scheme, token) = value.trim_ascii().split_at_checked("Basic ".len())?;
        if !scheme.eq_ignore_ascii_case(b"Basic ") {
            return None;
        }
        let mut user = STANDARD.decode(token.trim_ascii_start()).ok()?;
        if user.iter().any(u8::is_ascii_control) {
            return None;
        }
        let colon = user.iter().position(|&byte| byte == b':')?;
        let password = user.split_off(colon + 1);
        user.truncate(colon);
        if password.len() > MAX_PASSWORD {
            return None;
        }
        Some(Credentials { user: String::from_utf8(user).ok()?, password })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(value: &str) -> Option<(String, Vec<u8>)> {
        Credentials::parse(value.as_bytes()).map(|credentials| (credentials.user, credentials.password))
    }

    #[test]
    fn user_names_and_passwords() {
        let aladdin = Some(("Aladdin".into(), b"open sesame".to_vec()));
        assert_eq!(parse("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), aladdin);
        assert_eq!(parse("bAsIc   QWxhZGRpbjpvcGVuIHNlc2FtZQ== "), aladdin);
        assert_eq!(parse("Basic dGVzdDoxMjPCow=="), Some(("test".into(), "123£".into())));
        assert_eq!(parse("Basic Og=="), Some((String::new(), Vec::new())));
        assert_eq!(parse(&basic(b"a:b:c")), Some(("a".into(), b"b:c".to_vec())));
        assert_eq!(parse(&basic(b"a:\xff")), Some(("a".into(), b"\xff".to_vec())));
    }

    #[test]
    fn malformed_values_are_rejected() {
        for value in [
            "",
            "Basic",
            "Basic ",
            "Basic QQ==",
            "Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
            "BasicQWxhZGRpbjpvcGVuIHNlc2FtZQ==",
            "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ",
            "Basic QWxhZGRpbjpvcGVuIHNlc2FtZR==",
            "Basic QWxhZGRpbjpv cGVuIHNlc2FtZQ==",
            "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==, Basic Og==",
            "Basic a-_=",
        ] {
            assert_eq!(parse(value), None, "{value}");
        }
        for odd in [&b"a\0:b"[..], b"a:b\0", b"a:b\r\n", b"\xff:b", b"nocolon"] {
            assert_eq!(parse(&basic(odd)), None, "{odd:?}");
        }
        assert_eq!(parse(&basic(&[b"a:", &[b'x'; MAX_PASSWORD + 1][..]].concat())), None);
        assert!(parse(&basic(&[b"a:", &[b'x'; MAX_PASSWORD][..]].concat())).is_some());
    }

    fn basic(text: &[u8]) -> String {
        format!("Basic {}", STANDARD.encode(text))
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(value: Vec<u8>) {
            let _ = Credentials::parse(&value);
            let _ = Credentials::parse(&[b"Basic ", &value[..]].concat());
        }

        #[test]
        fn encoded_credentials_are_parsed_back(user in "[^:\\p{Cc}]{0,20}", password in "\\PC{0,20}") {
            let value = basic(format!("{user}:{password}").as_bytes());
            prop_assert_eq!(parse(&value), Some((user, password.into_bytes())));
        }
    }
}
