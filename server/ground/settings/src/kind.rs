//! Types of options: how their values are read and described.
//!
//! Contract: [`ValueKind::read`] accepts exactly the values that [`ValueKind::expected`] describes, and never panics.

pub(crate) mod lists;
pub(crate) mod names;
pub(crate) mod numbers;
pub(crate) mod public;
pub(crate) mod texts;
pub(crate) mod wrappers;

use std::path::Path;

use crate::raw::Raw;

pub use text::Mistake;

/// The completions that a shell can offer for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    Nothing,
    File,
    Directory,
    Any,
}

/// A way of writing values of type `T`.
pub(crate) trait ValueKind<T>: Sync {
    /// Checks a value and returns it.
    fn read(&self, raw: &Raw) -> Result<T, Mistake>;

    /// Makes the relative paths of the value absolute; they are relative to `base`.
    fn anchor(&self, value: T, _base: &Path) -> T {
        value
    }

    /// Returns a description of accepted values that fits after "expected".
    fn expected(&self) -> String;

    /// Returns the fixed words that are accepted, for completions.
    fn words(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Returns which other values a shell may offer.
    fn completion(&self) -> Completion {
        Completion::Nothing
    }

    /// Returns whether the flag may be repeated to extend the list.
    fn is_list(&self) -> bool {
        false
    }
}
