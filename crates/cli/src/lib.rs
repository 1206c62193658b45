//! What people type: the command line made from the table of options, and what is printed in answer.
//!
//! Contract:
//! 1. Nothing about an option is written here; names, help and completions come from [`settings::table`].
//! 2. [`parse`] prints what was asked for (help, version) or what is wrong, and says how to exit; what it returns
//!    can be done.
//! 3. Exit codes: 0 done, 1 `check` found something wrong, 2 the command line or configuration is wrong.

#![forbid(unsafe_code)]

use std::sync::LazyLock;

mod arguments;
mod check;
mod command;
mod grammar;
mod print;

pub use check::{Trial, check, explain};
pub use command::{Command, parse};
pub use print::{completions, man};

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The same with what is inside: `0.1.0 (mruby 3.1.0)`.
pub(crate) fn version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| format!("{VERSION} ({})", front::mruby()));
    &TEXT
}
