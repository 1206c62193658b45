//! The word of the app that a page may be a member of a stream, signed as names of streams are ([`crate::signed`]):
//! `{"presence":{"stream":"room","id":"7","info":{},"until":1764000000}}`.
//!
//! Why: a page that listens without Ruby, or a client that joins by itself, must not be anybody it likes.
//!
//! Contract: a token is no name of a stream, and a name of a stream is no token.

use crate::signed::SignedNames;
use serde::Deserialize;

/// A member that the app has signed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PresenceToken {
    pub stream: String,
    pub id: String,
    /// Any JSON.
    #[serde(default = "empty")]
    pub info: serde_json::Value,
    /// Seconds since 1970 up to which one may join by it; `None`: always.
    #[serde(default)]
    pub until: Option<u64>,
}

fn empty() -> serde_json::Value {
    serde_json::Value::Object(serde_json::Map::new())
}

#[derive(Deserialize)]
struct SignedPresence {
    presence: PresenceToken,
}

impl SignedNames {
    /// Returns the member of a token. `now`: seconds since 1970.
    ///
    /// # Errors
    /// The token is not signed with this secret, or its time is over.
    pub fn presence(&self, token: &str, now: u64) -> Result<PresenceToken, &'static str> {
        let json = self.data(token).ok_or("the presence token is not signed with hub.secret")?;
        let signed: SignedPresence =
            serde_json::from_slice(&json).map_err(|_| "the presence token is not one of presence_token")?;
        match signed.presence.until {
            Some(until) if until < now => Err("the time of the presence token is over"),
            _ => Ok(signed.presence),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signed::signed;
    use serde_json::json;

    #[test]
    fn only_what_the_app_has_signed_is_a_token() {
        let names = SignedNames::new("secret");
        let token = signed("secret", r#"{"presence":{"stream":"room","id":"7","info":{"a":1},"until":9}}"#);
        let read = names.presence(&token, 9).unwrap();
        assert_eq!((&*read.stream, &*read.id, read.info), ("room", "7", json!({ "a": 1 })));
        assert_eq!(names.presence(&token, 10), Err("the time of the presence token is over"));
        assert_eq!(names.verify(&token), None, "no name of a stream");
        let short = signed("secret", r#"{"presence":{"stream":"room","id":"7"}}"#);
        assert_eq!(names.presence(&short, u64::MAX).unwrap().info, json!({}));
        for wrong in [r#""room""#, "{}", r#"{"presence":{"stream":"room"}}"#, "x"] {
            let error = names.presence(&signed("secret", wrong), 0).unwrap_err();
            assert!(error.contains("not one of"), "{wrong}: {error}");
        }
        for wrong in [signed("other", r#"{"presence":{"stream":"room","id":"7"}}"#), String::new()] {
            assert!(names.presence(&wrong, 0).unwrap_err().contains("not signed"), "{wrong}");
        }
    }
}
