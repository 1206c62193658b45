//! Takes values out of [`Given`], remembering what was wrong and what was chosen.

use std::cell::RefCell;

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

/// A checked value and where it comes from.
#[derive(Debug)]
pub(super) struct Taken<T> {
    pub(super) value: T,
    pub(super) origin: Origin,
}

/// Reads values for [`super::resolve`]; shared by its parts, hence the cells.
pub(super) struct Taker<'a> {
    given: &'a Given,
    errors: RefCell<Vec<Error>>,
    choices: RefCell<Vec<Choice>>,
    warnings: RefCell<Vec<String>>,
}

impl<'a> Taker<'a> {
    pub(super) fn new(given: &'a Given) -> Taker<'a> {
        let (errors, choices, warnings) = Default::default();
        Taker { given, errors, choices, warnings }
    }

    /// The strongest value, or the default.
    pub(super) fn take<K: Kind>(&self, entry: &'static Entry<K>) -> Taken<K::Value> {
        self.take_where(entry, |_| true)
    }

    /// The strongest value of those whose origin is wanted, or the default.
    ///
    /// Values that lose are checked as well, since they are mistakes all the same; but not variables, which may
    /// be meant for another program.
    pub(super) fn take_where<K: Kind>(
        &self,
        entry: &'static Entry<K>,
        wanted: impl Fn(&Origin) -> bool,
    ) -> Taken<K::Value> {
        let mut taken = None;
        for written in self.written(entry).iter().filter(|written| wanted(&written.origin)) {
            let wins = taken.is_none();
            if !wins && matches!(written.origin, Origin::Env(_)) {
                continue;
            }
            let value = self.read(entry, &entry.kind, written);
            if wins {
                self.choose(entry, written);
                taken = Some(Taken {
                    value: value.unwrap_or_else(|| default(entry)),
                    origin: written.origin.clone(),
                });
            }
        }
        taken.unwrap_or_else(|| Taken { value: default(entry), origin: Origin::Default })
    }

    /// Reads one value as `kind`, noting a mistake.
    pub(super) fn read<K: Kind, R>(&self, entry: &Entry<R>, kind: &K, written: &Written) -> Option<K::Value> {
        match kind.read(&written.raw) {
            Ok(value) => Some(value),
            Err(mistake) => {
                let error =
                    Error::value(entry.about.key, &written.raw, &written.origin, mistake, &kind.expected());
                self.errors.borrow_mut().push(error);
                None
            }
        }
    }

    /// Notes that a value counts.
    pub(super) fn choose<K>(&self, entry: &Entry<K>, written: &Written) {
        let value = if entry.about.secret { "(not shown)".to_owned() } else { written.raw.to_string() };
        let choice = Choice { key: entry.about.key, value, origin: written.origin.clone() };
        self.choices.borrow_mut().push(choice);
    }

    /// All that was written for an option, strongest first.
    pub(super) fn written<K>(&self, entry: &Entry<K>) -> &'a [Written] {
        self.given.written(entry.about.key)
    }

    /// Notes that the option's strongest value cannot be together with another.
    pub(super) fn conflict(&self, about: &About, problem: impl Into<String>) {
        let error = match self.given.written(about.key).first() {
            Some(written) => Error::conflict(about.key, &written.raw, &written.origin, problem),
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

fn default<K: Kind>(entry: &'static Entry<K>) -> K::Value {
    let raw = Raw::Word(entry.about.default.to_owned());
    entry.kind.read(&raw).unwrap_or_else(|_| panic!("the tests read the default of {}", entry.about.key))
}
