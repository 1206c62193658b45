//! `config/puma.rb`: translates Puma's settings.
//!
//! Why: teams that come from Puma have their settings in a Ruby file. Ruby evaluates it
//! (`worker/lib/firebrick/puma_file.rb`) and returns the [calls](Call) that it made, each with its file and
//! line. Everything else is decided here, by the table of options that also judges `firebrick.toml`.
//!
//! Contract:
//! 1. [`METHODS`] has a row for every method of Puma's DSL, versions 5 to 8, and for older names: what the
//!    method does here, or why it does nothing.
//! 2. [`map`] is pure and never panics. Each call becomes one [`CallDescription`] of the table that
//!    `firebrick check` prints, and sets any number of values. The options check these values, not this
//!    module.
//! 3. As in Puma, the last call of a method wins; addresses add up.

mod call;
mod docs;
mod find;
mod map;
mod mapping;
mod methods;
mod outcome;
mod refusal;
mod toml;

pub use call::{Call, PumaValue};
pub use docs::{markdown, ruby};
pub(crate) use find::{find, is_ruby};
pub use map::map;
pub use mapping::Mapped;
pub use methods::{METHODS, Method, nearest_method};
pub use outcome::{CallDescription, CallEffect, CallOutcome};
pub use refusal::{Evaluated, PumaRefusal};
pub use toml::{left_out, toml};

use std::path::PathBuf;

/// A `puma.rb` to evaluate, with the facts that Ruby needs for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PumaFile {
    pub path: PathBuf,
    /// The path for messages: relative to the app's directory if the file is inside it.
    pub shown: PathBuf,
    /// The number of workers from a flag or variable, as written: it decides between `single` and `cluster`.
    pub workers: Option<String>,
    /// The environment from a flag or variable.
    pub environment: Option<String>,
}
