//! The first stage: all values as written, with their origins, unchecked.
//!
//! Contract:
//! 1. A value of a wrong type is kept as written.
//! 2. The values of an option are kept strongest first: a change of the running server, flag, variables in the table's order, file.

use std::collections::BTreeMap;

use crate::origin::ValueSource;
use crate::raw::Raw;

/// A value and its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    pub raw: Raw,
    pub origin: ValueSource,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    pub(crate) path: String,
    /// The whole value, for messages.
    pub(crate) written: Written,
    /// The keys of the route: `mruby` and limits.
    pub(crate) keys: Vec<(String, Written)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    pub(crate) name: String,
    /// The whole value, for messages.
    pub(crate) written: Written,
    /// The keys of the entry; those of inner tables are prefixed with the table's name and a dot.
    pub(crate) keys: Vec<(String, Written)>,
}

/// One table of `[[acme.certificates]]` or `[[tls.certificates]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The whole table, for messages.
    pub(crate) written: Written,
    pub(crate) keys: Vec<(String, Written)>,
}

/// All written values by key, strongest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WrittenValues {
    values: BTreeMap<&'static str, Vec<Written>>,
    /// The `[sites]` table: host names and directories.
    pub(crate) sites: Vec<(String, Written)>,
    pub(crate) routes: Vec<Route>,
    /// The `[sendfile]` table: prefixes and folders.
    pub(crate) sendfile: Vec<(String, Written)>,
    pub(crate) services: Vec<Named>,
    pub(crate) rate_limits: Vec<Named>,
    pub(crate) pools: Vec<Named>,
    /// The `[queue.classes]` table.
    pub(crate) queue_classes: Vec<Named>,
    pub(crate) orders: Vec<Table>,
    pub(crate) files: Vec<Table>,
    /// Numbers whose spelling in the file differs from their normal form, as pairs of both, each with its key.
    pub(crate) spellings: Vec<(String, String)>,
}

impl WrittenValues {
    /// Adds a value that is weaker than all before it.
    pub fn add(&mut self, key: &'static str, written: Written) {
        self.values.entry(key).or_default().push(written);
    }

    /// Adds a value that is stronger than all before it.
    pub(crate) fn override_with(&mut self, key: &'static str, written: Written) {
        self.values.entry(key).or_default().insert(0, written);
    }

    /// Returns the values written for a key, strongest first.
    pub fn written(&self, key: &str) -> &[Written] {
        self.values.get(key).map_or(&[], Vec::as_slice)
    }
}
