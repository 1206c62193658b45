//! Values as written, before they are checked.

use std::fmt;

/// A value from the file, a flag or a variable.
#[derive(Clone, Debug, PartialEq)]
pub enum Raw {
    /// A word from a flag, a variable or the table's default; the option decides its type.
    Word(String),
    Text(String),
    Integer(i64),
    Float(f64),
    Switch(bool),
    /// An array in the file, or a repeated flag.
    List(Vec<Raw>),
    /// Something that no option accepts, by name: "a table", "a date".
    Other(&'static str),
}

impl Raw {
    /// Returns the text of a word or string.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Raw::Word(text) | Raw::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the parts of a list. A word separates its parts with commas; a string in the file is one part.
    pub(crate) fn parts(&self) -> Vec<Raw> {
        match self {
            Raw::List(parts) => parts.iter().flat_map(Raw::parts).collect(),
            Raw::Word(text) => text
                .split(',')
                .map(str::trim)
                .filter(|part| !part.is_empty())
                .map(|part| Raw::Word(part.to_owned()))
                .collect(),
            other => vec![other.clone()],
        }
    }
}

/// Writes the value as in its source, always on one line.
impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Raw::Word(text) => write!(f, "{}", text.escape_debug()),
            Raw::Text(text) => write!(f, "{text:?}"),
            Raw::Integer(number) => write!(f, "{number}"),
            Raw::Float(number) => write!(f, "{number}"),
            Raw::Switch(on) => write!(f, "{on}"),
            Raw::Other(name) => write!(f, "{name}"),
            Raw::List(parts) if parts.iter().all(|part| matches!(part, Raw::Word(_))) => {
                let words: Vec<String> = parts.iter().map(Raw::to_string).collect();
                write!(f, "{}", words.join(" "))
            }
            Raw::List(parts) => {
                let parts: Vec<String> = parts.iter().map(Raw::to_string).collect();
                write!(f, "[{}]", parts.join(", "))
            }
        }
    }
}
