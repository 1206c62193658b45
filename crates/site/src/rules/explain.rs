//! Which rule answers a path, and why: what `firebrick explain` prints.

use std::fmt;

use super::{Asked, Rules};

/// The files of a site, as far as rules ask for them.
pub trait Tree {
    /// What there is at `path` (decoded, below the root, begins with `/`).
    fn kind(&self, path: &str) -> Kind;
}

/// What there is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Nothing, or something that is never served.
    Missing,
    /// A dot file, which is not served.
    Hidden,
}

/// A walk through the rules, for people.
#[derive(Debug, Clone)]
pub struct Explanation {
    lines: Vec<String>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Walks through the rules for one request.
pub fn explain(rules: &Rules, asked: &Asked<'_>, tree: &dyn Tree) -> Explanation {
    let _ = (rules, asked, tree);
    unimplemented!()
}
