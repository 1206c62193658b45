//! Errors of certificates and keys.

use std::fmt;

/// The reason why a certificate and a key cannot be used. The text names the expectation and a remedy, but
/// not the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The chain is invalid.
    Chain(String),
    /// The private key is invalid.
    Key(String),
    /// Both are valid but do not match.
    Pair(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Error::Chain(text) | Error::Key(text) | Error::Pair(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for Error {}
