//! What is stored, as text: key and chain in one, and a note beside them.
//!
//! Contract:
//! 1. A certificate is one text: the key, then the chain, PEM. So they can only be replaced together.
//! 2. A note is JSON and can be lost: what matters is in the certificate itself. Anything that is no note of ours is `None`,
//!    never an error and never a panic.

use crate::schedule::Moment;
use serde::{Deserialize, Serialize};

/// Names of a certificate that are read back: a CA allows 100.
const MAX_NAMES: usize = 1_000;
/// Characters of a text in a note.
const MAX_TEXT: usize = 4_000;

/// Key and chain as one text.
pub fn bundle(key: &str, chain: &str) -> String {
    format!("{}\n{}\n", key.trim(), chain.trim())
}

/// What is known about a certificate besides itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The names that were ordered.
    pub names: Vec<String>,
    /// The directory of the CA.
    pub directory: String,
    /// The profile that was ordered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// When it was ordered.
    #[serde(default)]
    pub ordered_at: Moment,
    /// When the next order is due.
    #[serde(default)]
    pub next_order: Moment,
    /// Failures since then.
    #[serde(default)]
    pub failures: u32,
    /// The last of them, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Note {
    /// Reads a note.
    pub fn parse(bytes: &[u8]) -> Option<Note> {
        let note: Note = serde_json::from_slice(bytes).ok()?;
        let mut texts = note.names.iter().chain(&note.profile).chain(&note.error).chain([&note.directory]);
        // A name is used as a name of a file and in lines of the log.
        let sound = |text: &String| text.len() <= MAX_TEXT && !text.contains(char::is_control);
        let good = note.names.len() <= MAX_NAMES && texts.all(sound);
        drop(texts);
        good.then_some(note)
    }

    /// Writes it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let plain = |text: &String| -> String {
            text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_TEXT / 4).collect()
        };
        let note = Note { error: self.error.as_ref().map(plain), ..self.clone() };
        // Nothing in it can fail to be written.
        serde_json::to_vec_pretty(&note).unwrap_or_default()
    }
}

/// A challenge that other machines answer too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    /// The name that is verified.
    pub name: String,
    /// SHA-256 of the key authorization (RFC 8737 section 3).
    pub digest: Vec<u8>,
}

/// Reads what [`announce`] wrote; empty when it is something else.
pub fn announced(bytes: &[u8]) -> Vec<Announced> {
    serde_json::from_slice(bytes).unwrap_or_default()
}

/// Challenges as text.
pub fn announce(challenges: &[Announced]) -> Vec<u8> {
    serde_json::to_vec(challenges).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn note() -> Note {
        Note {
            names: vec!["a.test".to_owned()],
            directory: "https://ca.test/dir".to_owned(),
            profile: Some("shortlived".to_owned()),
            ordered_at: 1,
            next_order: 2,
            failures: 3,
            error: Some("line\nline".to_owned()),
        }
    }

    #[test]
    fn notes_are_read_back() {
        let read = Note::parse(&note().to_bytes()).unwrap();
        assert_eq!(read, Note { error: Some("line line".to_owned()), ..note() });
        assert_eq!(Note::parse(b"{}"), None);
        assert_eq!(Note::parse(br#"{"names":["a\nb"],"directory":"x"}"#), None, "a line break in a name");
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_what_is_read_is_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Some(note) = Note::parse(&bytes) {
                prop_assert_eq!(Note::parse(&note.to_bytes()), Some(note));
            }
            let _ = announced(&bytes);
        }

        #[test]
        fn notes_with_any_text_can_be_read_back(error in ".{0,2000}", name in "[a-z.*-]{1,40}", at in any::<i64>()) {
            let note = Note { error: Some(error), names: vec![name], ordered_at: at, ..note() };
            let read = Note::parse(&note.to_bytes());
            prop_assert!(read.is_some_and(|read| read.names == note.names && read.ordered_at == at));
        }
    }
}
