//! Whispers: messages from one client to the others of a stream, such as `{"typing": true}`, that never reach the app.
//!
//! Contract:
//! 1. A whisper has no number and is not kept: a client that is away does not get it.
//! 2. The client that has sent it does not get it.
//! 3. Its message is JSON, and cannot look like an event about members ([`crate::publication::check`]).
//! 4. To other servers it travels as [`Whisper::record`], by a channel of Redis.

use crate::exclusion::{SessionId, session_of, session_text};
use crate::publication::check;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// A whisper on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whisper {
    pub stream: Box<str>,
    /// The client that has sent it.
    pub sender: SessionId,
    /// JSON.
    pub message: Box<str>,
}

/// A whisper as a text: `{"server":"0123456789ab","sender":"00000000000000ff","stream":"room","message":{…}}`.
#[derive(Serialize, Deserialize)]
struct WhisperRecord<'a> {
    #[serde(borrow)]
    server: Cow<'a, str>,
    #[serde(borrow)]
    sender: Cow<'a, str>,
    #[serde(borrow)]
    stream: Cow<'a, str>,
    #[serde(borrow)]
    message: &'a RawValue,
}

impl Whisper {
    /// Creates a whisper.
    ///
    /// # Errors
    /// The message is too long, no JSON, or looks like one of the server's.
    pub fn new(stream: &str, sender: SessionId, message: &str) -> Result<Whisper, String> {
        check(stream, message)?;
        Ok(Whisper { stream: stream.into(), sender, message: message.into() })
    }

    /// Returns the whisper for other servers. `server`: the name of this one.
    pub fn record(&self, server: &str) -> serde_json::Result<String> {
        serde_json::to_string(&WhisperRecord {
            server: server.into(),
            sender: session_text(self.sender).into(),
            stream: (&*self.stream).into(),
            message: serde_json::from_str(&self.message)?,
        })
    }

    /// Reads a record of another server; `None` for one of `server` itself, and for one that cannot be read.
    pub fn of_other(record: &[u8], server: &str) -> Option<Whisper> {
        let read: WhisperRecord<'_> = serde_json::from_slice(record).ok()?;
        if read.server == server {
            return None;
        }
        Whisper::new(&read.stream, session_of(&read.sender)?, read.message.get()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_of_the_server_cannot_be_forged() {
        for (message, expected) in [
            ("{\"$presence\":{\"type\":\"join\",\"id\":\"a\"}}", "events about members"),
            ("{\"$except\":\"00000000000000ff\",\"message\":1}", "messages that one client does not get"),
            ("{", "is not JSON"),
        ] {
            let error = Whisper::new("room", 1, message).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert!(Whisper::new("", 1, "1").is_err());
    }

    #[test]
    fn records_of_this_server_and_broken_ones_are_left_out() {
        let whisper = Whisper::new("room \"7\"", 255, "{\"typing\": 1.50}").unwrap();
        let record = whisper.record("one").unwrap();
        assert_eq!(
            record,
            r#"{"server":"one","sender":"00000000000000ff","stream":"room \"7\"","message":{"typing": 1.50}}"#
        );
        assert_eq!(Whisper::of_other(record.as_bytes(), "other"), Some(whisper));
        assert_eq!(Whisper::of_other(record.as_bytes(), "one"), None);
        for broken in [
            "",
            "1",
            "{\"server\":\"a\"}",
            r#"{"server":"a","sender":"x","stream":"room","message":1}"#,
            r#"{"server":"a","sender":"00000000000000ff","stream":"","message":1}"#,
            r#"{"server":"a","sender":"00000000000000ff","stream":"room","message":{"$presence":1}}"#,
        ] {
            assert_eq!(Whisper::of_other(broken.as_bytes(), "other"), None, "{broken}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Whisper::of_other(&bytes, "one");
        }

        #[test]
        fn each_whisper_arrives(stream in "\\PC{1,20}", sender in any::<u64>(), text in any::<String>()) {
            let whisper = Whisper::new(&stream, sender, &serde_json::json!({ "text": text }).to_string()).unwrap();
            let record = whisper.record("one").unwrap();
            prop_assert_eq!(Whisper::of_other(record.as_bytes(), "other"), Some(whisper));
        }
    }
}
