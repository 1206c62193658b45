//! The tokens of AnyCable's gem: those of calls to the app and of publishers are derived from one secret, or given.

use crate::secret_key::SecretKey;

/// The purpose of a token, and the text that is signed for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenPurpose {
    /// The server shows it to the app.
    Call,
    /// Publishers show it to the server.
    Broadcast,
}

/// Returns the token that AnyCable's gem derives from its `secret`: HMAC-SHA256 in hexadecimal digits.
pub fn derived(secret: &str, purpose: TokenPurpose) -> String {
    let phrase = match purpose {
        TokenPurpose::Call => "rpc-cable",
        TokenPurpose::Broadcast => "broadcast-cable",
    };
    text::hex(&SecretKey::new(secret).sign(phrase))
}

/// Returns the token of a field `Authorization` (RFC 6750, section 2.1); `None` for another scheme.
pub fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = authorization.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Whether a client shows this token in `Authorization`. It is compared in constant time.
pub fn is_shown(token: &str, authorization: &[u8]) -> bool {
    // The signatures are as long for any token.
    let key = SecretKey::new("token");
    bearer(authorization)
        .is_some_and(|shown| key.has_signed(&String::from_utf8_lossy(shown), &key.sign(token)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // OpenSSL::HMAC.hexdigest("SHA256", "qwerty", "rpc-cable") and "broadcast-cable"
    const CALL: &str = "57c40610d142fe7d7999be4e23dfba4f42c3c542e1f278063e8e3b6a30b0c2bd";
    const BROADCAST: &str = "42923a28b760e667fc92f7c6123bb07a282822b329dd2ef48e7aee7830d98485";

    #[test]
    fn tokens_are_those_of_the_gem() {
        assert_eq!(derived("qwerty", TokenPurpose::Call), CALL);
        assert_eq!(derived("qwerty", TokenPurpose::Broadcast), BROADCAST);
    }

    #[test]
    fn only_the_token_opens() {
        for shown in ["Bearer abc", "bearer  abc "] {
            assert!(is_shown("abc", shown.as_bytes()), "{shown}");
        }
        for shown in ["", "abc", "Basic abc", "Bearer", "Bearer ", "Bearer ab", "Bearer abcd", "Bearer ABC"] {
            assert!(!is_shown("abc", shown.as_bytes()), "{shown}");
        }
    }
}
