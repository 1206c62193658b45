//! The first stage: everything that was written and where, unjudged.
//!
//! Contract:
//! 1. Collecting never fails: a value of a wrong type is still what was written.
//! 2. The values of one option are kept strongest first: flag, variables in the table's order, file.
//! 3. Blank variables count as unset.

use std::collections::BTreeMap;

use crate::environment::Environment;
use crate::origin::Origin;
use crate::raw::Raw;
use crate::table;

/// One value on the command line, already split from its flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The key of the entry it is for.
    pub key: &'static str,
    /// The flag as messages should name it: `--port`, `DIR`.
    pub flag: String,
    /// The values, more than one only when the option is a list.
    pub values: Vec<String>,
}

/// A value and where it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// As it was written.
    pub raw: Raw,
    /// Where.
    pub origin: Origin,
}

/// One path of the `[routes]` table.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// As it was written.
    pub(crate) path: String,
    /// The value as a whole, for messages.
    pub(crate) written: Written,
    /// What it says: `mruby` and limits.
    pub(crate) keys: Vec<(String, Written)>,
}

/// One entry of the `[services]` or the `[rate_limits]` table.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// Its key.
    pub(crate) name: String,
    /// The value as a whole, for messages.
    pub(crate) written: Written,
    /// What it says; keys of tables inside it have the table's name and a dot in front.
    pub(crate) keys: Vec<(String, Written)>,
}

/// One table of `[[acme.certificates]]` or `[[tls.certificates]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The table as a whole, for messages.
    pub(crate) written: Written,
    /// Its keys.
    pub(crate) keys: Vec<(String, Written)>,
}

/// All that was written, by key, strongest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given {
    values: BTreeMap<&'static str, Vec<Written>>,
    /// The `[sites]` table: host names and directories.
    pub(crate) sites: Vec<(String, Written)>,
    /// The `[routes]` table.
    pub(crate) routes: Vec<Route>,
    /// The `[sendfile]` table: prefixes and folders.
    pub(crate) sendfile: Vec<(String, Written)>,
    /// The `[services]` table.
    pub(crate) services: Vec<Named>,
    /// The `[rate_limits]` table.
    pub(crate) rate_limits: Vec<Named>,
    /// The tables `[[acme.certificates]]`.
    pub(crate) orders: Vec<Table>,
    /// The tables `[[tls.certificates]]`.
    pub(crate) files: Vec<Table>,
    /// Numbers that the file writes otherwise than they are shown: both, with their keys.
    pub(crate) spellings: Vec<(String, String)>,
}

impl Given {
    /// Collects flags and variables.
    pub fn collect(arguments: &[Argument], environment: &dyn Environment) -> Given {
        let mut given = Given::default();
        for entry in table::entries() {
            let about = entry.about();
            for argument in arguments.iter().filter(|argument| argument.key == about.key) {
                let raw = match argument.values.as_slice() {
                    [one] => Raw::Word(one.clone()),
                    many => Raw::List(many.iter().cloned().map(Raw::Word).collect()),
                };
                given.add(about.key, Written { raw, origin: Origin::Flag(argument.flag.clone()) });
            }
            for name in about.env {
                if let Some(value) = environment.var(name).filter(|value| !value.trim().is_empty()) {
                    given.add(
                        about.key,
                        Written { raw: Raw::Word(value), origin: Origin::Env((*name).to_owned()) },
                    );
                }
            }
        }
        given
    }

    /// Adds a value that is weaker than all before it.
    pub fn add(&mut self, key: &'static str, written: Written) {
        self.values.entry(key).or_default().push(written);
    }

    /// What was written for a key, strongest first.
    pub fn written(&self, key: &str) -> &[Written] {
        self.values.get(key).map_or(&[], Vec::as_slice)
    }
}
