//! What is wrong with a certificate or a key.

use std::fmt;

/// Why a certificate and a key cannot be used. The text says what was expected and what to do, but not which file it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The chain of certificates is at fault.
    Chain(String),
    /// The private key is at fault.
    Key(String),
    /// Both are sound, but do not belong together.
    Pair(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Error::Chain(text) | Error::Key(text) | Error::Pair(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for Error {}
