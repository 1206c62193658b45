//! Parses header field lines and fields whose values are lists.

use crate::syntax;

/// Splits a field line into name and value.
///
/// # Errors
/// Describes the mistake.
#[inline]
pub(crate) fn split(line: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    let name_len = syntax::token_len(line);
    match line.get(name_len) {
        _ if name_len == 0 => Err("a field line without a name, or folded"),
        Some(b':') => {
            let value = syntax::trim(&line[name_len + 1..]);
            if syntax::is_value(value) {
                Ok((&line[..name_len], value))
            } else {
                Err("a control byte in a field value")
            }
        }
        _ => Err("an invalid byte in a field name"),
    }
}

/// Returns the members of a comma-separated list.
pub(crate) fn members(list: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    list.split(|&b| b == b',').map(syntax::trim)
}

/// Returns whether a comma-separated list has a member of that name, in any case.
pub fn lists(list: &[u8], name: &[u8]) -> bool {
    members(list).any(|one| one.eq_ignore_ascii_case(name))
}

/// The options of `Connection` fields.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    /// It names other fields, which are for this hop only.
    pub(crate) names: bool,
}

impl Options {
    /// Adds the options of one field.
    pub(crate) fn add(&mut self, value: &[u8]) {
        for option in members(value) {
            let is = |known: &[u8]| option.eq_ignore_ascii_case(known);
            if is(b"close") {
                self.close = true;
            } else if is(b"keep-alive") {
                self.keep_alive = true;
            } else if !option.is_empty() && !is(b"upgrade") && !is(b"te") {
                self.names = true;
            }
        }
    }

    /// Returns whether the sender keeps the connection open.
    pub(crate) fn persistent(self, http10: bool) -> bool {
        !self.close && (!http10 || self.keep_alive)
    }
}
