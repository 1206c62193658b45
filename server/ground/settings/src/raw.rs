//! Values as written, before they are checked.

use std::fmt;

use text::{Mistake, OrMistake};

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

    /// Reads the value as a whole number. The file has numbers, too; `1e3` is one.
    pub(crate) fn whole(&self, parse: impl Fn(&str) -> Result<u64, Mistake>) -> Result<u64, Mistake> {
        match self {
            Raw::Word(text) | Raw::Text(text) => parse(text),
            Raw::Integer(number) => u64::try_from(*number).ok().or_mistake(),
            // Above 9e15 a double does not hold every whole number.
            Raw::Float(number) if number.fract() == 0.0 && (0.0..9e15).contains(number) => Ok(*number as u64),
            _ => Err(Mistake::default()),
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
