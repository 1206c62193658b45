//! JSON Web Tokens (RFC 7519) with HMAC and SHA-256, the claim `mercure` of the Mercure protocol, and the claim `ext` of AnyCable's tokens: the identifiers
//! of a connection.
//!
//! Contract:
//! 1. Only `HS256` is accepted, and no token with critical extensions (RFC 7515, section 4.1.11). The signature is compared in
//!    constant time, and nothing of the claims is read before.
//! 2. A token is valid from `nbf` until before `exp`, if it has them.
//! 3. Only a token that is valid but for `exp` is [`TokenFault::Expired`].

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt;

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

/// Why a token is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenFault {
    /// It was valid; its bearer needs a new one.
    Expired,
    /// This sentence says why, for the client.
    Invalid(&'static str),
}

impl fmt::Display for TokenFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            TokenFault::Expired => "the token has expired",
            TokenFault::Invalid(why) => why,
        })
    }
}

#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
    crit: Option<serde::de::IgnoredAny>,
}

/// When a token is valid, and the claims of its kind.
#[derive(Deserialize)]
struct TokenClaims<T> {
    /// Seconds since 1970, which may have a fraction.
    exp: Option<f64>,
    nbf: Option<f64>,
    #[serde(flatten)]
    own: T,
}

#[derive(Deserialize)]
struct MercureClaims {
    #[serde(default)]
    mercure: MercureClaim,
}

#[derive(Deserialize)]
struct ConnectionClaims {
    ext: Value,
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

    /// Returns the rights of a token of Mercure. `now`: seconds since 1970.
    ///
    /// # Errors
    /// The token is not valid.
    pub fn rights(&self, token: &str, now: u64) -> Result<TokenRights, TokenFault> {
        let unreadable =
            "the claims of the token cannot be read: mercure.publish and mercure.subscribe are arrays";
        let MercureClaim { publish, subscribe } =
            self.claims::<MercureClaims>(token, now, unreadable)?.mercure;
        Ok(TokenRights { publish, subscribe: subscribe.unwrap_or_default() })
    }

    /// Returns the identifiers of a connection, a JSON object, as the token has them: in a text or as an object. `now`: seconds since 1970.
    ///
    /// # Errors
    /// The token is not valid.
    pub fn identifiers(&self, token: &str, now: u64) -> Result<String, TokenFault> {
        let unreadable =
            "the claims of the token cannot be read: ext is an object with the connection's identifiers";
        let text = match self.claims::<ConnectionClaims>(token, now, unreadable)?.ext {
            Value::String(text) => text,
            other => other.to_string(),
        };
        match serde_json::from_str::<Map<String, Value>>(&text) {
            Ok(_) => Ok(text),
            Err(_) => Err(TokenFault::Invalid(unreadable)),
        }
    }

    /// Returns the claims of a token. `unreadable` says that they have another form.
    fn claims<T: DeserializeOwned>(
        &self,
        token: &str,
        now: u64,
        unreadable: &'static str,
    ) -> Result<T, TokenFault> {
        let malformed = TokenFault::Invalid("the token is not a JWT");
        if token.len() > LONGEST {
            return Err(TokenFault::Invalid("the token is too long"));
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(malformed)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed);
        let header: TokenHeader = serde_json::from_slice(&decode(header)?).map_err(|_| malformed)?;
        if header.alg != "HS256" || header.crit.is_some() {
            return Err(TokenFault::Invalid("the token is not signed by HS256"));
        }
        if !self.0.has_signed(signed, &decode(signature)?) {
            return Err(TokenFault::Invalid("the signature of the token is wrong"));
        }
        let claims: TokenClaims<T> =
            serde_json::from_slice(&decode(claims)?).map_err(|_| TokenFault::Invalid(unreadable))?;
        if claims.nbf.is_some_and(|start| start > now as f64) {
            return Err(TokenFault::Invalid("the token is not valid yet"));
        }
        if claims.exp.is_some_and(|end| end <= now as f64) {
            return Err(TokenFault::Expired);
        }
        Ok(claims.own)
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
        assert_eq!(TokenKey::new("your-256-bit-secret").rights(known, 0), Ok(TokenRights::default()));
        assert!(TokenKey::new("another").rights(known, 0).unwrap_err().to_string().contains("signature"));
    }

    #[test]
    fn rights_and_times_are_read() {
        let key = TokenKey::new("s");
        let claims = r#"{"exp":20.5,"nbf":10,"mercure":{"publish":["*"],"subscribe":["a"],"payload":{}}}"#;
        let token_of = |claims: &str| token(HEADER, claims, "s");
        let rights = TokenRights { publish: Some(vec!["*".to_owned()]), subscribe: vec!["a".to_owned()] };
        assert_eq!(key.rights(&token_of(claims), 20), Ok(rights));
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
            let error = key.rights(&token, now).unwrap_err().to_string();
            assert!(error.contains(expected), "{token}: {error}");
        }
    }

    #[test]
    fn identifiers_are_a_text_or_an_object() {
        let key = TokenKey::new("s");
        let read = |claims: &str| key.identifiers(&token(HEADER, claims, "s"), 5);
        let object = Ok(r#"{"user":"ann"}"#.to_owned());
        assert_eq!(read(r#"{"ext":"{\"user\":\"ann\"}"}"#), object);
        assert_eq!(read(r#"{"ext":{"user":"ann"},"exp":6,"iat":1}"#), object);
        // It is the app that has to read it: not a character is changed.
        assert_eq!(read(r#"{"ext":"{ }"}"#), Ok("{ }".to_owned()));
        for wrong in ["{}", r#"{"ext":"ann"}"#, r#"{"ext":"[1]"}"#, r#"{"ext":null}"#, r#"{"ext":7}"#, "[]"] {
            let error = read(wrong).unwrap_err();
            assert!(error.to_string().contains("ext is an object"), "{wrong}: {error}");
        }
        assert_eq!(read(r#"{"ext":"{}","exp":5}"#), Err(TokenFault::Expired));
        let never_valid = read(r#"{"ext":"{}","exp":5,"nbf":6}"#).unwrap_err();
        assert!(never_valid.to_string().contains("not valid yet"));
        let forged = TokenKey::new("t").identifiers(&token(HEADER, r#"{"ext":"{}","exp":5}"#, "s"), 5);
        assert_eq!(forged, Err(TokenFault::Invalid("the signature of the token is wrong")));
    }

    proptest! {
        #[test]
        fn a_changed_token_is_refused(at in 0usize..60, to in "[A-Za-z0-9_.-]") {
            let token = token(HEADER, "{\"mercure\":{}}", "s");
            let mut changed = token.clone();
            let at = at % token.len();
            changed.replace_range(at..=at, &to);
            let result = TokenKey::new("s").rights(&changed, 0);
            prop_assert!(changed == token || result.is_err(), "{changed}");
        }
    }
}
