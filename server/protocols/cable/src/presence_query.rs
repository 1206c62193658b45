//! The question of a process of the app for the members of a stream, on the local socket ([`crate::publication`]):
//!
//! ```text
//! PRESENCE <bytes of the name>\n<name>
//! OK <bytes of the JSON>\n{"7":{"name":"Ann"}}          or          ERROR <text>\n
//! ```

use crate::publication::{LONGEST_NAME, name_of, question_line};
use serde_json::json;

/// The word that the line begins with.
const WORD: &str = "PRESENCE";

/// The first line of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PresenceQuery {
    line: usize,
    name: usize,
}

impl PresenceQuery {
    /// Reads the first line; `None` if it is another command, or not complete.
    ///
    /// # Errors
    /// The line has no length, or one that is too large.
    pub fn parse(bytes: &[u8]) -> Result<Option<PresenceQuery>, String> {
        let read = question_line(bytes, WORD, 1..=LONGEST_NAME)?;
        Ok(read.map(|(line, name)| PresenceQuery { line, name }))
    }

    /// Returns the bytes of the whole question.
    pub fn length(&self) -> usize {
        self.line + self.name
    }

    /// Returns the name of the stream of a complete question that begins with this line.
    ///
    /// # Errors
    /// The name is not UTF-8.
    pub fn stream<'a>(&self, bytes: &'a [u8]) -> Result<&'a str, String> {
        name_of(&bytes[self.line..self.length()])
    }
}

/// Returns the answer about these members, each with id and info.
pub fn answer<'a>(members: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut object = String::from("{");
    for (id, info) in members {
        if object.len() > 1 {
            object.push(',');
        }
        object.push_str(&json!(id).to_string());
        object.push(':');
        object.push_str(info);
    }
    object.push('}');
    format!("OK {}\n{object}", object.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn questions_are_read_and_answered() {
        let parse = |text: &str| PresenceQuery::parse(text.as_bytes());
        let query = parse("PRESENCE 4\nroomPUBLISH").unwrap().unwrap();
        assert_eq!((query.length(), query.stream(b"PRESENCE 4\nroomPUBLISH")), (15, Ok("room")));
        assert_eq!(
            (parse("POSITION 1\n"), parse("PRESENCE 4"), parse("PRES")),
            (Ok(None), Ok(None), Ok(None))
        );
        for wrong in ["PRESENCE \n", "PRESENCE 0\n", "PRESENCE x\n", "PRESENCE 4097\n", "PRESENCE 1 1\n"] {
            assert!(parse(wrong).unwrap_err().contains("1 to 4096"), "{wrong}");
        }
        assert!(query.stream(b"PRESENCE 4\n\xff\xff\xff\xff").unwrap_err().contains("UTF-8"));
        assert_eq!(
            answer([("a\"", "{\"n\":1}"), ("b", "2")].into_iter()),
            "OK 21\n{\"a\\\"\":{\"n\":1},\"b\":2}"
        );
        assert_eq!(answer(std::iter::empty()), "OK 2\n{}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            for bytes in [bytes.clone(), [b"PRESENCE 4\n", &bytes[..]].concat(), [b"PRESENCE ", &bytes[..]].concat()] {
                if let Ok(Some(query)) = PresenceQuery::parse(&bytes) && bytes.len() >= query.length() {
                    let _ = query.stream(&bytes);
                }
            }
        }
    }
}
