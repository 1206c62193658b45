//! Takes values out of [`Given`], remembering what was wrong and what was chosen.

use std::borrow::Cow;
use std::cell::RefCell;
use std::path::Path;

use crate::error::Error;
use crate::given::{Given, Written};
use crate::kind::Kind;
use crate::origin::Origin;
use crate::raw::Raw;
use crate::table::entry::{About, Entry};

/// A value that was written and counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The option's key.
    pub key: &'static str,
    /// The value as written.
    pub value: String,
    /// Where it was written.
    pub origin: Origin,
}

/// In the place of a secret.
const NOT_SHOWN: &str = "(not shown)";

/// A value as messages may quote it: logs are read by many.
fn shown<'r>(about: &About, raw: &'r Raw) -> Cow<'r, Raw> {
    // Numbers and lists, too: a token of digits is one. What is no value at all says nothing.
    let is_empty = matches!(raw, Raw::Word(text) | Raw::Text(text) if text.is_empty());
    let hides = about.secret && !is_empty && !matches!(raw, Raw::Other(_));
    if hides { Cow::Owned(Raw::Word(NOT_SHOWN.to_owned())) } else { Cow::Borrowed(raw) }
}

/// A checked value and where it comes from.
#[derive(Debug)]
pub(crate) struct Taken<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

/// Reads values for [`super::resolve`]; shared by its parts, hence the cells.
pub(crate) struct Taker<'a> {
    given: &'a Given,
    /// Where relative paths of flags and variables begin.
    typed_in: &'a Path,
    /// Where those of the file begin.
    dir: &'a Path,
    errors: RefCell<Vec<Error>>,
    choices: RefCell<Vec<Choice>>,
    warnings: RefCell<Vec<String>>,
}

impl<'a> Taker<'a> {
    pub(super) fn new(given: &'a Given, typed_in: &'a Path, dir: &'a Path) -> Taker<'a> {
        let (errors, choices, warnings) = Default::default();
        Taker { given, typed_in, dir, errors, choices, warnings }
    }

    /// The strongest value, or the default.
    pub(crate) fn take<T>(&self, entry: &'static Entry<T>) -> Taken<T> {
        self.take_where(entry, |_| true)
    }

    /// The strongest value of those whose origin is wanted, or the default.
    ///
    /// Values that lose are checked as well, since they are mistakes all the same; but not variables, which may
    /// be meant for another program.
    pub(super) fn take_where<T>(
        &self,
        entry: &'static Entry<T>,
        wanted: impl Fn(&Origin) -> bool,
    ) -> Taken<T> {
        let mut taken = None;
        for written in self.written(entry).iter().filter(|written| wanted(&written.origin)) {
            let wins = taken.is_none();
            if !wins && matches!(written.origin, Origin::Env(_)) {
                continue;
            }
            let value = self.read(entry, entry.kind, written);
            if wins {
                self.choose(entry, written);
                taken = Some((value.unwrap_or_else(|| default(entry)), written.origin.clone()));
            }
        }
        let (value, origin) = taken.unwrap_or_else(|| (default(entry), Origin::Default));
        Taken { value: entry.kind.anchor(value, origin.base(self.typed_in, self.dir)), origin }
    }

    /// Reads one value as `kind`, noting a mistake.
    pub(super) fn read<T, E>(&self, entry: &Entry<E>, kind: &dyn Kind<T>, written: &Written) -> Option<T> {
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

    /// A value with its relative paths taken from where it was written.
    pub(super) fn anchor<T>(&self, kind: &dyn Kind<T>, value: T, origin: &Origin) -> T {
        kind.anchor(value, origin.base(self.typed_in, self.dir))
    }

    /// Notes that a value counts.
    pub(super) fn choose<T>(&self, entry: &Entry<T>, written: &Written) {
        let value = if entry.about.secret { NOT_SHOWN.to_owned() } else { written.raw.to_string() };
        let choice = Choice { key: entry.about.key, value, origin: written.origin.clone() };
        self.choices.borrow_mut().push(choice);
    }

    /// All that was written for an option, strongest first.
    pub(super) fn written<T>(&self, entry: &Entry<T>) -> &'a [Written] {
        self.given.written(entry.about.key)
    }

    /// Where the value of an option was written.
    pub(super) fn origin<T>(&self, entry: &Entry<T>) -> Origin {
        self.written(entry).first().map_or(Origin::Default, |written| written.origin.clone())
    }

    /// Notes that the option's strongest value cannot be together with another.
    pub(super) fn conflict(&self, about: &About, problem: impl Into<String>) {
        let error = match self.given.written(about.key).first() {
            Some(written) => {
                Error::conflict(about.key, &shown(about, &written.raw), &written.origin, problem)
            }
            None => {
                Error::conflict(about.key, &Raw::Word(about.default.to_owned()), &Origin::Default, problem)
            }
        };
        self.errors.borrow_mut().push(error);
    }

    /// Notes a mistake that is not about an option.
    pub(super) fn refuse(&self, error: Error) {
        self.errors.borrow_mut().push(error);
    }

    pub(super) fn warn(&self, warning: String) {
        self.warnings.borrow_mut().push(warning);
    }

    /// What was chosen and warned of, or what was wrong.
    pub(super) fn finish(self) -> Result<(Vec<Choice>, Vec<String>), Vec<Error>> {
        let errors = self.errors.into_inner();
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut choices = self.choices.into_inner();
        let place = |key| crate::table::entries().position(|entry| entry.about().key == key);
        choices.sort_by_key(|choice| place(choice.key));
        Ok((choices, self.warnings.into_inner()))
    }
}

fn default<T>(entry: &'static Entry<T>) -> T {
    let raw = Raw::Word(entry.about.default.to_owned());
    entry.kind.read(&raw).unwrap_or_else(|_| panic!("the tests read the default of {}", entry.about.key))
}
