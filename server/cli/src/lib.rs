//! The command line: builds the grammar from the table of options, parses, and prints texts such as help.
//!
//! Contract:
//! 1. This crate declares no option and no argument: names, help and completions come from [`settings::table`], those of the measuring
//!    commands from their crates.
//! 2. [`parse`] prints help, the version or mistakes, and returns the exit code; a command that it returns is valid.
//! 3. Exit codes: 0 success, 1 `check` found a mistake or `deploy-check` something red, 2 the command line or configuration is wrong. Some commands refine theirs.

#![forbid(unsafe_code)]

use std::sync::LazyLock;

mod arguments;
mod by_route;
mod certs;
mod check;
mod command;
mod deploy_check;
mod foreign;
mod grammar;
mod help;
mod interruption;
mod leaks;
mod print;
mod purge;
mod reload;
mod replay;
mod set;
mod trust;
mod words;
mod write;

pub use certs::certs;
pub use check::{CheckTrial, check, explain, kept};
pub use command::{Command, parse, parse_attached, reread};
pub use deploy_check::{DeployCheckWish, deploy_check};
pub use print::{completions, man, print_version};
pub use replay::{ReplayWish, replay};
pub use trust::{Trust, trust};
pub use write::write;

pub(crate) const ABOUT: &str =
    "A web server for Ruby apps and static sites that needs nothing in front of it";

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the version with its parts: `0.1.0 (mruby 3.1.0)`.
pub(crate) fn version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| format!("{VERSION} ({})", front::mruby()));
    &TEXT
}
