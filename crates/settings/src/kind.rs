//! The types an option can have: how a value of the type is written, read and described.
//!
//! Contract: [`Kind::read`] accepts exactly what [`Kind::expected`] says, and never panics.

pub(crate) mod lists;
pub(crate) mod names;
pub(crate) mod numbers;
pub(crate) mod texts;
pub(crate) mod wrappers;

use std::path::Path;

use crate::raw::Raw;

/// Why a value was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistake {
    /// What would have been right, to be read after "expected"; the kind's own description when `None`.
    pub expected: Option<String>,
    /// The nearest right value, when one is near.
    pub nearest: Option<String>,
}

impl Mistake {
    /// A mistake that is better explained than by the kind's general description.
    pub(crate) fn expected(what: impl Into<String>) -> Mistake {
        Mistake { expected: Some(what.into()), nearest: None }
    }

    /// The same, with the value that was probably meant.
    pub(crate) fn near(mut self, nearest: Option<impl Into<String>>) -> Mistake {
        self.nearest = nearest.map(Into::into);
        self
    }
}

/// What a shell can offer to complete a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Nothing to offer.
    Nothing,
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A file or directory.
    Any,
}

/// One way to write values, which become a `T`.
pub(crate) trait Kind<T>: Sync {
    /// The checked value.
    fn read(&self, raw: &Raw) -> Result<T, Mistake>;

    /// The value with its relative paths made absolute: they begin in `base`.
    fn anchor(&self, value: T, _base: &Path) -> T {
        value
    }

    /// What is accepted, to be read after "expected".
    fn expected(&self) -> String;

    /// Fixed words that are accepted, for completions.
    fn words(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// What else a shell may offer.
    fn completion(&self) -> Completion {
        Completion::Nothing
    }

    /// Whether the flag may be repeated, each use adding to the list.
    fn is_list(&self) -> bool {
        false
    }
}
