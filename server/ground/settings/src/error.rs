//! Mistakes in written values; each message has the place and the remedy.

use std::fmt;

use crate::kind::Mistake;
use crate::origin::ValueSource;
use crate::raw::Raw;

/// A mistake in a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub origin: ValueSource,
    /// The value as written: `workers = "many"`, `--workers many`, `WEB_CONCURRENCY=many`.
    pub written: String,
    /// The description of the mistake.
    pub problem: String,
    /// The value or name that was probably meant.
    pub nearest: Option<String>,
}

impl Error {
    /// Returns the mistake of a value that its option does not accept.
    pub(crate) fn value(
        key: &str,
        raw: &Raw,
        origin: &ValueSource,
        mistake: Mistake,
        expected: &str,
    ) -> Error {
        let expected = mistake.expected.unwrap_or_else(|| expected.to_owned());
        let written = written(key, raw, origin);
        Error {
            origin: origin.clone(),
            written,
            problem: format!("expected {expected}"),
            nearest: mistake.nearest,
        }
    }

    /// Returns the mistake of a valid value that contradicts another one.
    pub(crate) fn conflict(key: &str, raw: &Raw, origin: &ValueSource, problem: impl Into<String>) -> Error {
        let written = written(key, raw, origin);
        Error { origin: origin.clone(), written, problem: problem.into(), nearest: None }
    }
}

/// Returns a value with its name, as written in its source.
pub(crate) fn written(key: &str, raw: &Raw, origin: &ValueSource) -> String {
    match (origin, raw) {
        (ValueSource::Flag(flag), Raw::Word(word)) if word.is_empty() => format!("{flag} \"\""),
        (ValueSource::Flag(flag), raw) => format!("{flag} {raw}"),
        (ValueSource::Set(_), raw) => format!("{key}={raw}"),
        (ValueSource::Env(name), raw) => format!("{name}={raw}"),
        (ValueSource::Puma { call, .. }, _) => call.to_string(),
        (ValueSource::File { .. } | ValueSource::Default, raw) => format!("{key} = {raw}"),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ValueSource::File { .. } | ValueSource::Puma { .. } = self.origin {
            write!(f, "{}: ", self.origin)?;
        }
        // A path may contain a line break, but a message is one line.
        write!(f, "{}: {}", self.written, self.problem.replace(char::is_control, "?"))?;
        match &self.nearest {
            Some(nearest) => write!(f, "; did you mean {nearest:?}?"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// All mistakes, in the order flags, variables, file; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors(pub Vec<Error>);

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(Error::to_string).collect();
        write!(f, "{}", lines.join("\n"))
    }
}

impl std::error::Error for Errors {}
