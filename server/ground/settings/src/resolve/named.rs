//! Tables whose keys are names chosen by the user: reads one entry.

use crate::error::Error;
use crate::kind::ValueKind;
use crate::kind::texts::Switch;
use crate::nearest::nearest;
use crate::raw::Raw;
use crate::table::taker::Taker;
use crate::written::{Named, Written};

/// Reads the keys of one entry and reports its mistakes.
pub(super) struct Reader<'a> {
    pub(super) table: &'static str,
    pub(super) taker: &'a Taker<'a>,
    pub(super) named: &'a Named,
}

impl Reader<'_> {
    /// Returns whether the entry's name is valid, and reports it otherwise.
    pub(super) fn has_a_name(&self) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let well = !self.named.name.is_empty() && self.named.name.chars().all(plain);
        if !well {
            self.refuse("", &self.named.written, "expected a name of letters, digits, - and _".to_owned());
        }
        well
    }

    /// Reads one of the known words.
    pub(super) fn word<T: Copy + Default>(
        &self,
        key: &str,
        written: &Written,
        known: &[(&'static str, T)],
    ) -> T {
        let text = written.raw.text().unwrap_or_default();
        if let Some((_, value)) = known.iter().find(|(word, _)| *word == text) {
            return *value;
        }
        let names: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        let near = nearest(text, names.iter().copied()).map(str::to_owned);
        self.error(key, written, format!("expected {}", names.join(", ")), near);
        T::default()
    }

    /// Reads a text or a list of texts, none of them empty; `expected` describes them for messages.
    pub(super) fn texts(&self, key: &str, written: &Written, expected: &str) -> Vec<String> {
        let one = std::slice::from_ref(&written.raw);
        let parts = if let Raw::List(parts) = &written.raw { parts } else { one };
        let texts: Option<Vec<String>> =
            parts.iter().map(|part| part.text().filter(|text| !text.is_empty()).map(str::to_owned)).collect();
        texts.filter(|texts| !texts.is_empty()).unwrap_or_else(|| {
            self.refuse(key, written, format!("expected {expected}, or a list of them"));
            Vec::new()
        })
    }

    /// Reads true or false; returns `otherwise` after a mistake.
    pub(super) fn switch(&self, key: &str, written: &Written, otherwise: bool) -> bool {
        Switch.read(&written.raw).unwrap_or_else(|why| {
            self.refuse(key, written, format!("expected {}", why.explain("true or false")));
            otherwise
        })
    }

    /// Reports a key that is not among the `known`.
    pub(super) fn unknown(&self, key: &str, written: &Written, known: &[&str]) {
        let near = nearest(key, known.iter().copied()).map(str::to_owned);
        self.error(key, written, "unknown key".to_owned(), near);
    }

    /// Reports a wrong value.
    pub(super) fn refuse(&self, key: &str, written: &Written, problem: String) {
        self.error(key, written, problem, None);
    }

    /// Reports a wrong value together with a suggestion.
    pub(super) fn error(&self, key: &str, written: &Written, problem: String, nearest: Option<String>) {
        let dot = if key.is_empty() { "" } else { "." };
        let name = format!("{}.{}{dot}{key}", self.table, self.named.name.escape_debug());
        let shown = match &written.raw {
            Raw::Other(_) => name,
            raw => format!("{name} = {raw}"),
        };
        self.taker.refuse(Error { origin: written.origin.clone(), written: shown, problem, nearest });
    }
}
