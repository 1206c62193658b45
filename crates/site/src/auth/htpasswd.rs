//! The htpasswd file: `user:hash` lines.

use std::fmt;

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The file's name, or what stands for it.
    pub file: String,
    /// Line, from 1; 0 when there are no lines.
    pub line: usize,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

impl std::error::Error for Mistake {}

/// Names and hashes.
#[derive(Debug, Clone, Default)]
pub struct Users {}

impl Users {
    /// Reads a file's text; `name` is for messages.
    ///
    /// # Errors
    /// All lines that are wrong.
    pub fn parse(name: &str, text: &str) -> Result<Users, Vec<Mistake>> {
        let _ = (name, text);
        unimplemented!()
    }

    /// One user more (`BASIC_AUTH_USERNAME`, `BASIC_AUTH_PASSWORD`), after those that are there: a name's first line counts, as in nginx.
    ///
    /// # Errors
    /// The password is not a hash that we know.
    pub fn with(self, user: &str, hash: &str) -> Result<Users, Mistake> {
        let _ = (user, hash);
        unimplemented!()
    }

    /// How many users there are.
    pub fn len(&self) -> usize {
        unimplemented!()
    }

    /// Whether there are none: nobody comes in.
    pub fn is_empty(&self) -> bool {
        unimplemented!()
    }
}
