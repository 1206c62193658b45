//! A value as it was written, before it is checked.

use std::fmt;

/// What stood in the file, the flag or the variable.
#[derive(Clone, Debug, PartialEq)]
pub enum Raw {
    /// A word of a flag, a variable or the table's default: its type is whatever the option wants.
    Word(String),
    /// A string in the file.
    Text(String),
    /// An integer in the file.
    Integer(i64),
    /// A float in the file.
    Float(f64),
    /// A boolean in the file.
    Switch(bool),
    /// An array in the file, or a repeated flag.
    List(Vec<Raw>),
    /// Something that no option takes, named: "a table", "a date".
    Other(&'static str),
}

impl Raw {
    /// The text of a word or string.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Raw::Word(text) | Raw::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The parts of a list; a word lists its parts with commas, a string in the file is one part.
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

/// As it would stand in its source, on one line whatever it holds.
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
