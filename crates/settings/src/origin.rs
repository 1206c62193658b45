//! Where a value was written.

use std::fmt;
use std::path::{Path, PathBuf};

/// Where a value was written, strongest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A flag or argument, named as typed: `--port`, `DIR`.
    Flag(String),
    /// An environment variable.
    Env(String),
    /// A line of the configuration file.
    File {
        /// The file, as messages name it.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// A line of Puma's configuration file.
    Puma {
        /// The file, as messages name it.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What stands there: `threads 1, 5`.
        call: Box<str>,
    },
    /// Nowhere.
    Default,
}

impl Origin {
    /// Where relative paths begin: where the user typed, or in the app's directory.
    pub(crate) fn base<'a>(&self, typed_in: &'a Path, app: &'a Path) -> &'a Path {
        match self {
            Origin::Flag(_) | Origin::Env(_) => typed_in,
            Origin::File { .. } | Origin::Puma { .. } | Origin::Default => app,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag(name) | Origin::Env(name) => write!(f, "{name}"),
            Origin::File { path, line } | Origin::Puma { path, line, .. } => {
                write!(f, "{}:{line}", path.display())
            }
            Origin::Default => write!(f, "default"),
        }
    }
}
