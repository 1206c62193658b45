//! The table of options: one entry each, a file per category.
//!
//! Contract:
//! 1. Whatever a user sees of an option (flag, variable, key, help, default) is read from its entry.
//! 2. An entry's type is its Rust type too: `given.take(&MAX_BODY)` can be nothing but that type.
//! 3. Defaults are written as a user would write them, and the tests read each of them.

pub(crate) mod app;
pub(crate) mod entry;
pub(crate) mod files;
pub(crate) mod limits;
pub(crate) mod listen;
pub(crate) mod logs;
pub(crate) mod rack;
pub(crate) mod timeouts;
pub(crate) mod workers;

pub use entry::{About, AnyEntry, Category, Flag, Takes};

/// All options, in the order in which help shows them.
pub fn entries() -> impl Iterator<Item = &'static dyn AnyEntry> + Clone {
    [app::ALL, listen::ALL, workers::ALL, rack::ALL, files::ALL, logs::ALL, timeouts::ALL, limits::ALL]
        .into_iter()
        .flatten()
        .copied()
}

/// The commands and one line about each, in the order in which help shows them.
pub const COMMANDS: &[(&str, &str)] = &[
    ("serve", "Serve the app (this is also what happens without a command)"),
    ("check", "Read the configuration, say what would be done, exit 0 or 1"),
    ("stats", "Print the numbers of the server that runs in DIR"),
    ("completions", "Print a completion script for bash, zsh or fish"),
    ("man", "Print the manual page"),
];
