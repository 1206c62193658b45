//! The place where a value was written.

use std::fmt;
use std::path::{Path, PathBuf};

/// The place where a value was written, strongest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueSource {
    /// A change of the running server (`firebrick set`), described: `set by root at 2026-11-29 02:31:05`.
    Set(Box<str>),
    /// A flag or argument, in its typed form: `--port`, `DIR`.
    Flag(String),
    Env(String),
    /// A line of the configuration file.
    File {
        /// The path for messages.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// A line of Puma's configuration file.
    Puma {
        /// The path for messages.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The call on that line: `threads 1, 5`.
        call: Box<str>,
    },
    /// The default, written nowhere.
    Default,
}

impl ValueSource {
    /// Returns the base of relative paths: the current directory of the command, or the app's directory.
    pub(crate) fn base<'a>(&self, typed_in: &'a Path, app: &'a Path) -> &'a Path {
        match self {
            ValueSource::Flag(_) | ValueSource::Env(_) => typed_in,
            ValueSource::Set(_)
            | ValueSource::File { .. }
            | ValueSource::Puma { .. }
            | ValueSource::Default => app,
        }
    }
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueSource::Set(described) => write!(f, "{described}"),
            ValueSource::Flag(name) | ValueSource::Env(name) => write!(f, "{name}"),
            ValueSource::File { path, line } | ValueSource::Puma { path, line, .. } => {
                write!(f, "{}:{line}", path.display())
            }
            ValueSource::Default => write!(f, "default"),
        }
    }
}
