//! Takes values out of [`WrittenValues`] and records mistakes and choices.

use std::borrow::Cow;
use std::cell::RefCell;
use std::path::Path;

use super::entry::{About, OptionEntry};
use crate::error::Error;
use crate::kind::ValueKind;
use crate::origin::ValueSource;
use crate::raw::Raw;
use crate::written::{Written, WrittenValues};

/// A written value that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub key: &'static str,
    pub value: String,
    pub origin: ValueSource,
}

/// The text that replaces a secret.
const NOT_SHOWN: &str = "(not shown)";

/// Returns the value as messages may quote it. Secrets are hidden, because many people read logs.
fn shown<'r>(about: &About, raw: &'r Raw) -> Cow<'r, Raw> {
    // Numbers and lists are hidden, too: a token may consist of digits. An empty value or one of a wrong type
    // reveals nothing.
    let is_empty = matches!(raw, Raw::Word(text) | Raw::Text(text) if text.is_empty());
    let hides = about.secret && !is_empty && !matches!(raw, Raw::Other(_));
    if hides { Cow::Owned(Raw::Word(NOT_SHOWN.to_owned())) } else { Cow::Borrowed(raw) }
}

/// A checked value with its origin.
#[derive(Debug)]
pub(crate) struct CheckedValue<T> {
    pub(crate) value: T,
    pub(crate) origin: ValueSource,
}

/// Reads values for `resolve`. Its parts share it, hence the cells.
pub(crate) struct Taker<'a> {
    given: &'a WrittenValues,
    /// The base of relative paths in flags and variables.
    typed_in: &'a Path,
    /// The base of relative paths in the file.
    dir: &'a Path,
    errors: RefCell<Vec<Error>>,
    choices: RefCell<Vec<Choice>>,
    warnings: RefCell<Vec<String>>,
}

impl<'a> Taker<'a> {
    pub(crate) fn new(given: &'a WrittenValues, typed_in: &'a Path, dir: &'a Path) -> Taker<'a> {
        let (errors, choices, warnings) = Default::default();
        Taker { given, typed_in, dir, errors, choices, warnings }
    }

    /// Returns the strongest value, or the default.
    pub(crate) fn take<T>(&self, entry: &'static OptionEntry<T>) -> CheckedValue<T> {
        self.take_where(entry, |_| true)
    }

    /// Returns the strongest value whose origin is wanted, or the default.
    ///
    /// Values that do not win are checked as well, because they are mistakes all the same. Variables are not:
    /// they may be meant for another program.
    pub(crate) fn take_where<T>(
        &self,
        entry: &'static OptionEntry<T>,
        wanted: impl Fn(&ValueSource) -> bool,
    ) -> CheckedValue<T> {
        let mut taken = None;
        for written in self.written(entry).iter().filter(|written| wanted(&written.origin)) {
            let wins = taken.is_none();
            if !wins && matches!(written.origin, ValueSource::Env(_)) {
                continue;
            }
            let value = self.read(entry, entry.kind, written);
            if wins {
                self.choose(entry, written);
                taken = Some((value.unwrap_or_else(|| default(entry)), written.origin.clone()));
            }
        }
        let (value, origin) = taken.unwrap_or_else(|| (default(entry), ValueSource::Default));
        CheckedValue { value: entry.kind.anchor(value, origin.base(self.typed_in, self.dir)), origin }
    }

    /// Reads one value as `kind` and records a mistake.
    pub(crate) fn read<T, E>(
        &self,
        entry: &OptionEntry<E>,
        kind: &dyn ValueKind<T>,
        written: &Written,
    ) -> Option<T> {
        match kind.read(&written.raw) {
            Ok(value) => Some(value),
            Err(mistake) => {
                let (about, expected) = (&entry.about, kind.expected());
                let error =
                    Error::value(about.key, &shown(about, &written.raw), &written.origin, mistake, &expected);
                self.errors.borrow_mut().push(error);
                None
            }
        }
    }

    /// Resolves the relative paths of a value against the place where it was written.
    pub(crate) fn anchor<T>(&self, kind: &dyn ValueKind<T>, value: T, origin: &ValueSource) -> T {
        kind.anchor(value, origin.base(self.typed_in, self.dir))
    }

    /// Records that a value is in force.
    pub(crate) fn choose<T>(&self, entry: &OptionEntry<T>, written: &Written) {
        let value = if entry.about.secret { NOT_SHOWN.to_owned() } else { written.raw.to_string() };
        let choice = Choice { key: entry.about.key, value, origin: written.origin.clone() };
        self.choices.borrow_mut().push(choice);
    }

    /// Returns all values written for an option, strongest first.
    pub(crate) fn written<T>(&self, entry: &OptionEntry<T>) -> &'a [Written] {
        self.given.written(entry.about.key)
    }

    /// Returns the origin of the option's value.
    pub(crate) fn origin<T>(&self, entry: &OptionEntry<T>) -> ValueSource {
        self.written(entry).first().map_or(ValueSource::Default, |written| written.origin.clone())
    }

    /// Records that the option's strongest value contradicts another option.
    pub(crate) fn conflict(&self, about: &About, problem: impl Into<String>) {
        let error = match self.given.written(about.key).first() {
            Some(written) => {
                Error::conflict(about.key, &shown(about, &written.raw), &written.origin, problem)
            }
            None => Error::conflict(
                about.key,
                &Raw::Word(about.default.to_owned()),
                &ValueSource::Default,
                problem,
            ),
        };
        self.errors.borrow_mut().push(error);
    }

    /// Records a mistake that belongs to no option.
    pub(crate) fn refuse(&self, error: Error) {
        self.errors.borrow_mut().push(error);
    }

    pub(crate) fn warn(&self, warning: String) {
        self.warnings.borrow_mut().push(warning);
    }

    /// Returns the choices and warnings, or all mistakes.
    pub(crate) fn finish(self) -> Result<(Vec<Choice>, Vec<String>), Vec<Error>> {
        let errors = self.errors.into_inner();
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok((self.choices.into_inner(), self.warnings.into_inner()))
    }
}

fn default<T>(entry: &'static OptionEntry<T>) -> T {
    let raw = Raw::Word(entry.about.default.to_owned());
    entry.kind.read(&raw).unwrap_or_else(|_| panic!("the tests read the default of {}", entry.about.key))
}
