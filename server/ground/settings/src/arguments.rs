//! Collects the values on the command line and in variables.
//!
//! Contract: collecting never fails, and blank variables count as unset.

use crate::environment::Environment;
use crate::origin::ValueSource;
use crate::raw::Raw;
use crate::table;
use crate::written::{Written, WrittenValues};

/// One value on the command line, already separated from its flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The key of its entry.
    pub key: &'static str,
    /// The flag as messages name it: `--port`, `DIR`.
    pub flag: String,
    /// The values; more than one only if the option is a list.
    pub values: Vec<String>,
}

/// Returns the values of all options in the arguments and variables.
pub(crate) fn collect(arguments: &[Argument], environment: &dyn Environment) -> WrittenValues {
    let mut given = WrittenValues::default();
    for entry in table::entries() {
        let about = entry.about();
        for argument in arguments.iter().filter(|argument| argument.key == about.key) {
            let raw = match argument.values.as_slice() {
                [one] => Raw::Word(one.clone()),
                many => Raw::List(many.iter().cloned().map(Raw::Word).collect()),
            };
            given.add(about.key, Written { raw, origin: ValueSource::Flag(argument.flag.clone()) });
        }
        for name in about.env {
            if let Some(value) = environment.var(name).filter(|value| !value.trim().is_empty()) {
                given.add(
                    about.key,
                    Written { raw: Raw::Word(value), origin: ValueSource::Env((*name).to_owned()) },
                );
            }
        }
    }
    given
}
