//! The formats of stored texts: key and chain together, and a note.
//!
//! Contract:
//! 1. A certificate is one text: the key, then the chain, as PEM. They can only be replaced together.
//! 2. A note is JSON and may be lost: the essential facts are in the certificate. Any other content is
//!    `None`, never an error or a panic.

use crate::schedule::Moment;
use serde::{Deserialize, Serialize};

/// The largest number of names in a note. A CA allows 100.
const MAX_NAMES: usize = 1_000;
/// The longest text in a note, in bytes.
const MAX_TEXT: usize = 4_000;

/// Joins key and chain to one text.
pub fn bundle(key: &str, chain: &str) -> String {
    format!("{}\n{}\n", key.trim(), chain.trim())
}

/// Facts about a certificate that it does not contain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredNote {
    /// The names in the order.
    pub names: Vec<String>,
    /// The CA's directory.
    pub directory: String,
    /// The profile in the order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    #[serde(default)]
    pub ordered_at: Moment,
    #[serde(default)]
    pub next_order: Moment,
    /// Failures since the order.
    #[serde(default)]
    pub failures: u32,
    /// The last failure, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl StoredNote {
    pub fn parse(bytes: &[u8]) -> Option<StoredNote> {
        let note: StoredNote = serde_json::from_slice(bytes).ok()?;
        let mut texts = note.names.iter().chain(&note.profile).chain(&note.error).chain([&note.directory]);
        // Names become part of file names and log lines.
        let sound = |text: &String| text.len() <= MAX_TEXT && !text.contains(char::is_control);
        let good = note.names.len() <= MAX_NAMES && texts.all(sound);
        drop(texts);
        good.then_some(note)
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let plain = |text: &String| -> String {
            text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_TEXT / 4).collect()
        };
        let note = StoredNote { error: self.error.as_ref().map(plain), ..self.clone() };
        // Serializing a note cannot fail.
        serde_json::to_vec_pretty(&note).unwrap_or_default()
    }
}

/// A challenge that other machines answer as well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    /// The name to verify.
    pub name: String,
    /// SHA-256 of the key authorization (RFC 8737 section 3).
    pub digest: Vec<u8>,
}

/// Decodes the output of [`announce`]; empty for any other content.
pub fn announced(bytes: &[u8]) -> Vec<Announced> {
    serde_json::from_slice(bytes).unwrap_or_default()
}

pub fn announce(challenges: &[Announced]) -> Vec<u8> {
    serde_json::to_vec(challenges).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn note() -> StoredNote {
        StoredNote {
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
        let read = StoredNote::parse(&note().to_bytes()).unwrap();
        assert_eq!(read, StoredNote { error: Some("line line".to_owned()), ..note() });
        assert_eq!(StoredNote::parse(b"{}"), None);
        assert_eq!(
            StoredNote::parse(br#"{"names":["a\nb"],"directory":"x"}"#),
            None,
            "a line break in a name"
        );
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_what_is_read_is_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Some(note) = StoredNote::parse(&bytes) {
                prop_assert_eq!(StoredNote::parse(&note.to_bytes()), Some(note));
            }
            let _ = announced(&bytes);
        }

        #[test]
        fn notes_with_any_text_can_be_read_back(error in ".{0,2000}", name in "[a-z.*-]{1,40}", at in any::<i64>()) {
            let note = StoredNote { error: Some(error), names: vec![name], ordered_at: at, ..note() };
            let read = StoredNote::parse(&note.to_bytes());
            prop_assert!(read.is_some_and(|read| read.names == note.names && read.ordered_at == at));
        }
    }
}
