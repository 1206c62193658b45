//! A directory's page, for sites that ask for one.

use std::time::SystemTime;

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name, without slash.
    pub name: String,
    /// Whether it is a directory.
    pub directory: bool,
    /// Length in bytes; not shown for directories.
    pub size: u64,
    /// Last modification, if known.
    pub modified: Option<SystemTime>,
}

/// The page of the directory at `path` (decoded, begins and ends with `/`), as a whole HTML document in UTF-8.
pub fn page(path: &str, entries: Vec<Entry>) -> String {
    let _ = (path, entries);
    unimplemented!()
}
