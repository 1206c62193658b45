//! The outcome of each call of a `puma.rb`: the rows of the table that `firebrick check` prints.

use std::fmt;
use std::path::PathBuf;

use CallEffect::{Always, Background, Hook, Ignored, Mapped, Reads, Request};

/// The effect of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEffect {
    /// Sets options.
    Mapped,
    /// Asks for something that this server always does.
    Always,
    /// Its block runs at the same moment as in Puma, or at the nearest one.
    Hook,
    /// Changes something that the app finds in a request.
    Request,
    /// Runs in a process beside the workers.
    Background,
    /// Controls the evaluation of the file.
    Reads,
    /// Does nothing.
    Ignored,
}

impl CallEffect {
    /// Returns the name for tables.
    pub fn name(self) -> &'static str {
        match self {
            Mapped => "mapped",
            Always => "always so",
            Hook => "hook",
            Request => "in requests",
            Background => "beside the workers",
            Reads => "read",
            Ignored => "ignored",
        }
    }
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallOutcome {
    /// The call sets these options: keys and values.
    Sets(Vec<(&'static str, String)>),
    /// A later call of the same method, on this line, wins.
    Overruled(usize),
    /// The description of the method from the table, or a more exact one of this call.
    Is(CallEffect, String),
    /// A method that a plugin added.
    Plugins,
}

impl fmt::Display for CallOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallOutcome::Sets(set) => {
                let set: Vec<String> = set.iter().map(|(key, value)| format!("{key} = {value}")).collect();
                write!(
                    f,
                    "{}",
                    if set.is_empty() { "nothing is left of it".to_owned() } else { set.join(", ") }
                )
            }
            CallOutcome::Overruled(line) => write!(f, "overruled by line {line}"),
            CallOutcome::Is(class, text) => write!(f, "{}: {text}", class.name()),
            CallOutcome::Plugins => write!(f, "read: the setting of a plugin"),
        }
    }
}

/// A call and its result.
#[derive(Clone, Debug, PartialEq)]
pub struct CallDescription {
    /// The call as in the file.
    pub call: String,
    /// File and line.
    pub place: (PathBuf, usize),
    pub outcome: CallOutcome,
    /// Whether a condition decides that the call is made, or with which value.
    pub conditional: bool,
}

impl CallDescription {
    /// Returns a line with the reason why the call does nothing, or `None` if it does something.
    pub fn note(&self) -> Option<String> {
        let CallOutcome::Is(CallEffect::Ignored, why) = &self.outcome else { return None };
        Some(format!("{}:{}: {} is ignored: {why}", self.place.0.display(), self.place.1, self.call))
    }
}
