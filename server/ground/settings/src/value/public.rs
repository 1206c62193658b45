//! The public directory of an app, and which of its files the server sends.

use std::path::PathBuf;

/// The default directory, in that of the app.
pub(crate) const USUAL: &str = "public";

/// The rule for files of the public directory that are served without entering the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServePublic {
    /// The app's middleware decides; the server sends the files that it would send.
    Auto,
    /// The same, but a directory that the user named is served even if no middleware serves it.
    Named,
    /// All files are served, whatever comes before them in the app.
    Always,
}

/// The written value: a directory, or a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Public {
    Directory(PathBuf),
    /// The default directory of the app, wherever the word was written; `None`: nothing is served.
    Word(Option<ServePublic>),
}
