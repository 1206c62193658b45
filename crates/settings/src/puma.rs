//! `config/puma.rb`: what Puma's words mean here.
//!
//! Why: a team that comes from Puma has its settings in a Ruby file. Ruby evaluates it (`lib/firebrick/puma_file.rb`) and yields the
//! [calls](Call) that it made, each with its file and line; everything else is decided here, by the same table of options that judges
//! `firebrick.toml`.
//!
//! Contract:
//! 1. [`METHODS`] has a row for every method of Puma's DSL, 5 to 8, and for older names: what it does here, or why it does nothing.
//! 2. [`map`] is pure, and never panics. Each call becomes one [`Row`] of the table that `firebrick check` prints, and any values that it
//!    sets; a value is not judged here but by its option.
//! 3. As in Puma, the last call of a method counts; addresses add up.

mod call;
mod docs;
mod find;
mod map;
mod methods;
mod toml;

pub use call::{Call, Evaluated, Refusal, Value};
pub use docs::markdown;
pub(crate) use find::{find, is_ruby};
pub use map::{Mapped, Outcome, Row, map};
pub use methods::{Class, METHODS, Method, nearest_method};
pub use toml::{left_out, toml};

use std::path::PathBuf;

/// A `puma.rb` that is to be evaluated, and what Ruby has to know for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PumaFile {
    /// Absolute.
    pub path: PathBuf,
    /// As messages name it: relative to the app's directory if it is in there.
    pub shown: PathBuf,
    /// How many workers a flag or variable asks for, as it was written: it decides between `single` and `cluster`.
    pub workers: Option<String>,
    /// The environment that a flag or variable says.
    pub environment: Option<String>,
}
