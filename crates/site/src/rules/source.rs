//! Places in `static.json`, and messages that point at them.

use std::fmt;

/// Something wrong: the file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake(Message);

/// Something allowed but probably not meant: the file can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note(Message);

/// What a message says, and the line it points at.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Message {
    text: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl std::error::Error for Mistake {}
