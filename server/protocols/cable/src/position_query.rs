//! The question of a process of the app where streams are, on the local socket ([`crate::publication`]):
//!
//! ```text
//! POSITION <bytes of the JSON>\n["name","name"]
//! OK <id>\n          or          ERROR <text>\n
//! ```
//!
//! Why: a page that is rendered now and connects a moment later names the id, and gets all messages between ([`crate::event_id`]).

use crate::event_id::StreamSet;
use crate::publication::{LONGEST_NAME, question_line};
use std::sync::Arc;

/// The word that the line begins with.
const WORD: &str = "POSITION";
/// The most bytes of the JSON.
const LONGEST_JSON: usize = 1 << 20;

/// The first line of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PositionQuery {
    line: usize,
    json: usize,
}

impl PositionQuery {
    /// Reads the first line; `None` if it is another command, or not complete.
    ///
    /// # Errors
    /// The line has no length, or one that is too large.
    pub fn parse(bytes: &[u8]) -> Result<Option<PositionQuery>, String> {
        let read = question_line(bytes, WORD, 0..=LONGEST_JSON)?;
        Ok(read.map(|(line, json)| PositionQuery { line, json }))
    }

    /// Returns the bytes of the whole question.
    pub fn length(&self) -> usize {
        self.line + self.json
    }

    /// Returns the streams of a complete question that begins with this line.
    ///
    /// # Errors
    /// The JSON is not an array of names.
    pub fn streams(&self, bytes: &[u8]) -> Result<StreamSet, String> {
        let names: Vec<String> = serde_json::from_slice(&bytes[self.line..self.length()])
            .map_err(|error| format!("expected an array of names of streams: {error}"))?;
        if names.is_empty() || names.iter().any(|name| name.is_empty() || name.len() > LONGEST_NAME) {
            return Err(format!("expected at least one name, each of 1 to {LONGEST_NAME} bytes"));
        }
        Ok(StreamSet::new(names.into_iter().map(Arc::from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn questions_are_read() {
        let parse = |text: &str| PositionQuery::parse(text.as_bytes());
        let query = parse("POSITION 9\n[\"b\",\"a\"]PUBLISH").unwrap().unwrap();
        assert_eq!(query.length(), 20);
        let set = query.streams(b"POSITION 9\n[\"b\",\"a\"]PUBLISH").unwrap();
        assert_eq!(set.names().iter().map(|name| &**name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(
            (parse("PUBLISH 1 1\n"), parse("POSITION 9"), parse("POSIT")),
            (Ok(None), Ok(None), Ok(None))
        );
        for wrong in ["POSITION \n", "POSITION x\n", "POSITION 1048577\n", "POSITION 1 1\n"] {
            assert!(parse(wrong).unwrap_err().contains("at most 1048576"), "{wrong}");
        }
        assert!(parse(&format!("POSITION {}", "1".repeat(64))).is_err());
        for (json, expected) in
            [("{}", "an array"), ("[]", "at least one"), ("[\"\"]", "1 to 4096"), ("[1]", "an array")]
        {
            let text = format!("POSITION {}\n{json}", json.len());
            let error = parse(&text).unwrap().unwrap().streams(text.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{json}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            for bytes in [bytes.clone(), [b"POSITION 4\n", &bytes[..]].concat(), [b"POSITION ", &bytes[..]].concat()] {
                if let Ok(Some(query)) = PositionQuery::parse(&bytes) && bytes.len() >= query.length() {
                    let _ = query.streams(&bytes);
                }
            }
        }
    }
}
