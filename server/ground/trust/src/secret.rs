//! The content of a file with keys, passwords or tokens, which no message can show: [`Secret`].
//!
//! Contract:
//! 1. The bytes are accessible only inside [`Secret::parse`]. A parser's error text does not leave it,
//!    because libraries quote what they cannot parse: an error is a [`TextPosition`], two numbers.
//! 2. `Debug` shows the length; there is no `Display`.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Bytes that must not be shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

/// The place of an error in a secret text. Lines and columns begin at 1; 0 means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextPosition {
    pub line: usize,
    pub column: usize,
}

impl TextPosition {
    pub const UNKNOWN: TextPosition = TextPosition { line: 0, column: 0 };

    /// The beginning of a line.
    pub fn line(line: usize) -> TextPosition {
        TextPosition { line, column: 0 }
    }
}

/// Formats the end of a sentence, such as ` (line 3)`. Empty for an unknown place.
impl fmt::Display for TextPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TextPosition { line: 0, .. } => Ok(()),
            TextPosition { line, column: 0 } => write!(f, " (line {line})"),
            TextPosition { line, column } => write!(f, " (line {line}, column {column})"),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes, not shown)", self.0.len())
    }
}

impl From<Vec<u8>> for Secret {
    fn from(bytes: Vec<u8>) -> Secret {
        Secret(bytes)
    }
}

impl From<&[u8]> for Secret {
    fn from(bytes: &[u8]) -> Secret {
        Secret(bytes.to_vec())
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Secret {
        Secret(text.as_bytes().to_vec())
    }
}

impl Secret {
    /// Reads a file of at most `most` bytes.
    ///
    /// # Errors
    /// The file cannot be read, or is larger.
    pub fn read(file: &Path, most: u64) -> io::Result<Secret> {
        let mut bytes = Vec::new();
        File::open(file)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most {
            return Err(io::Error::other(format!("it is larger than {} KiB", most / 1024)));
        }
        Ok(Secret(bytes))
    }

    /// Returns what `with` parses from the bytes.
    ///
    /// # Errors
    /// The place where `with` failed, and no other detail.
    pub fn parse<T>(&self, with: impl FnOnce(&[u8]) -> Result<T, TextPosition>) -> Result<T, TextPosition> {
        with(&self.0)
    }

    /// Whether the content is empty or blank.
    pub fn is_blank(&self) -> bool {
        self.0.trim_ascii().is_empty()
    }

    /// Whether the content contains a word that is not secret.
    pub fn contains(&self, word: &[u8]) -> bool {
        self.0.windows(word.len().max(1)).any(|window| window == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_it_is_shown() {
        let secret = Secret::from("hunter2");
        assert_eq!(format!("{secret:?}"), "Secret(7 bytes, not shown)");
        let wrong = secret.parse(|bytes| {
            std::str::from_utf8(bytes).unwrap().parse::<u8>().map_err(|_| TextPosition::line(1))
        });
        assert_eq!(wrong.unwrap_err().to_string(), " (line 1)");
        assert_eq!(TextPosition::UNKNOWN.to_string(), "");
        assert!(secret.contains(b"unt") && !secret.contains(b"3") && Secret::from(" \n").is_blank());
    }

    #[test]
    fn a_file_that_is_too_large_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, vec![b'x'; 2048]).unwrap();
        assert!(Secret::read(&file, 1024).unwrap_err().to_string().contains("larger than 1 KiB"));
        assert_eq!(Secret::read(&file, 2048).unwrap(), Secret::from(vec![b'x'; 2048]));
    }
}
