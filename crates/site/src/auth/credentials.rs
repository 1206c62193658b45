//! The Authorization field of scheme Basic (RFC 7617 section 2). Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Longer passwords are refused, in bytes: some hash methods take time by the square of it.
const LONGEST_PASSWORD: usize = 1024;

/// Who somebody says to be, and what is to prove it.
pub(super) struct Credentials {
    pub(super) user: String,
    pub(super) password: Vec<u8>,
}

impl Credentials {
    /// Reads a field value. `None`: another scheme, not Base64 in its one proper spelling, no colon, control
    /// characters, a name that is not UTF-8, or an overlong password.
    pub(super) fn read(value: &[u8]) -> Option<Credentials> {
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
        if password.len() > LONGEST_PASSWORD {
            return None;
        }
        Some(Credentials { user: String::from_utf8(user).ok()?, password })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(value: &str) -> Option<(String, Vec<u8>)> {
        Credentials::read(value.as_bytes()).map(|found| (found.user, found.password))
    }

    #[test]
    fn names_and_passwords() {
        let aladdin = Some(("Aladdin".into(), b"open sesame".to_vec()));
        assert_eq!(read("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), aladdin);
        assert_eq!(read("bAsIc   QWxhZGRpbjpvcGVuIHNlc2FtZQ== "), aladdin);
        assert_eq!(read("Basic dGVzdDoxMjPCow=="), Some(("test".into(), "123£".into())));
        assert_eq!(read("Basic Og=="), Some((String::new(), Vec::new())));
        assert_eq!(read(&basic(b"a:b:c")), Some(("a".into(), b"b:c".to_vec())));
        assert_eq!(read(&basic(b"a:\xff")), Some(("a".into(), b"\xff".to_vec())));
    }

    #[test]
    fn what_is_refused() {
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
            assert_eq!(read(value), None, "{value}");
        }
        for odd in [&b"a\0:b"[..], b"a:b\0", b"a:b\r\n", b"\xff:b", b"nocolon"] {
            assert_eq!(read(&basic(odd)), None, "{odd:?}");
        }
        assert_eq!(read(&basic(&[b"a:", &[b'x'; LONGEST_PASSWORD + 1][..]].concat())), None);
        assert!(read(&basic(&[b"a:", &[b'x'; LONGEST_PASSWORD][..]].concat())).is_some());
    }

    fn basic(text: &[u8]) -> String {
        format!("Basic {}", STANDARD.encode(text))
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(value: Vec<u8>) {
            let _ = Credentials::read(&value);
            let _ = Credentials::read(&[b"Basic ", &value[..]].concat());
        }

        #[test]
        fn what_was_written_is_read(user in "[^:\\p{Cc}]{0,20}", password in "\\PC{0,20}") {
            let value = basic(format!("{user}:{password}").as_bytes());
            prop_assert_eq!(read(&value), Some((user, password.into_bytes())));
        }
    }
}
