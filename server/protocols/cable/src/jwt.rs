//! JSON Web Tokens (RFC 7519) with HMAC and SHA-256, and the claim `mercure` of the Mercure protocol.
//!
//! Contract:
//! 1. Only `HS256` is accepted, and no token with critical extensions (RFC 7515, section 4.1.11). The signature is compared in
//!    constant time, and nothing of the claims is read before.
//! 2. A token is valid from `nbf` until before `exp`, if it has them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use crate::secret_key::SecretKey;

/// The most bytes of a token.
const LONGEST: usize = 16 << 10;

/// Verifies tokens with one secret.
#[derive(Debug, Clone)]
pub struct TokenKey(SecretKey);

/// The rights of the bearer of a token: selectors of topics, which are topics or `*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenRights {
    /// `None`: publishing is not allowed at all.
    pub publish: Option<Vec<String>>,
    /// The private updates that it may receive.
    pub subscribe: Vec<String>,
}

#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
    crit: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct TokenClaims {
    /// Seconds since 1970, which may have a fraction.
    exp: Option<f64>,
    nbf: Option<f64>,
    #[serde(default)]
    mercure: MercureClaim,
}

#[derive(Deserialize, Default)]
struct MercureClaim {
    publish: Option<Vec<String>>,
    subscribe: Option<Vec<String>>,
}

impl TokenKey {
    pub fn new(secret: &str) -> TokenKey {
        TokenKey(SecretKey::new(secret))
    }

    /// Returns the rights of a token. `now`: seconds since 1970.
    ///
    /// # Errors
    /// The reason why it is not valid, for the client.
    pub fn verify(&self, token: &str, now: u64) -> Result<TokenRights, &'static str> {
        let malformed = "the token is not a JWT";
        if token.len() > LONGEST {
            return Err("the token is too long");
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(malformed)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed);
        let header: TokenHeader = serde_json::from_slice(&decode(header)?).map_err(|_| malformed)?;
        if header.alg != "HS256" || header.crit.is_some() {
            return Err("the token is not signed by HS256");
        }
        if !self.0.has_signed(signed, &decode(signature)?) {
            return Err("the signature of the token is wrong");
        }
        let claims: TokenClaims = serde_json::from_slice(&decode(claims)?).map_err(
            |_| "the claims of the token cannot be read: mercure.publish and mercure.subscribe are arrays",
        )?;
        if claims.exp.is_some_and(|end| end <= now as f64) {
            return Err("the token has expired");
        }
        if claims.nbf.is_some_and(|start| start > now as f64) {
            return Err("the token is not valid yet");
        }
        let MercureClaim { publish, subscribe } = claims.mercure;
        Ok(TokenRights { publish, subscribe: subscribe.unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token(header: &str, claims: &str, secret: &str) -> String {
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(SecretKey::new(secret).sign(&signed)))
    }

    const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

    #[test]
    fn the_token_of_jwt_io_is_verified() {
        let known = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c";
        assert_eq!(TokenKey::new("your-256-bit-secret").verify(known, 0), Ok(TokenRights::default()));
        assert!(TokenKey::new("another").verify(known, 0).unwrap_err().contains("signature"));
    }

    #[test]
    fn rights_and_times_are_read() {
        let key = TokenKey::new("s");
        let claims = r#"{"exp":20.5,"nbf":10,"mercure":{"publish":["*"],"subscribe":["a"],"payload":{}}}"#;
        let token_of = |claims: &str| token(HEADER, claims, "s");
        let rights = TokenRights { publish: Some(vec!["*".to_owned()]), subscribe: vec!["a".to_owned()] };
        assert_eq!(key.verify(&token_of(claims), 20), Ok(rights));
        for (token, now, expected) in [
            (token_of(claims), 21, "expired"),
            (token_of(claims), 9, "not valid yet"),
            (token_of(r#"{"mercure":{"publish":"*"}}"#), 0, "are arrays"),
            (token(r#"{"alg":"none"}"#, "{}", "s"), 0, "HS256"),
            (token(r#"{"alg":"HS256","crit":["b64"]}"#, "{}", "s"), 0, "HS256"),
            (token(HEADER, "{}", "s").rsplit_once('.').unwrap().0.to_owned() + ".", 0, "signature"),
            ("a.b".to_owned(), 0, "not a JWT"),
            (String::new(), 0, "not a JWT"),
            ("a".repeat(LONGEST + 1), 0, "too long"),
        ] {
            let error = key.verify(&token, now).unwrap_err();
            assert!(error.contains(expected), "{token}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_changed_token_is_refused(at in 0usize..60, to in "[A-Za-z0-9_.-]") {
            let token = token(HEADER, "{\"mercure\":{}}", "s");
            let mut changed = token.clone();
            let at = at % token.len();
            changed.replace_range(at..=at, &to);
            let result = TokenKey::new("s").verify(&changed, 0);
            prop_assert!(changed == token || result.is_err(), "{changed}");
        }
    }
}
