//! The process from a handler's view: its environment, id and clocks; and UTF-8 checks.

use mruby::{Tape, TapeValue};
use std::os::unix::ffi::OsStrExt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Returns all environment variables.
pub(super) fn environment(tape: &mut Tape) {
    let variables: Vec<_> = std::env::vars_os().collect();
    tape.hash(variables.len() as u32);
    for (name, value) in variables {
        tape.str(name.as_bytes()).str(value.as_bytes());
    }
}

/// `clock`: returns nanoseconds, since 1970 (0) or since a fixed point in time (1).
pub(super) fn clock(start: Instant, args: &[TapeValue<'_>], tape: &mut Tape) {
    let time = match args.first().and_then(TapeValue::int) {
        Some(0) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        _ => start.elapsed(),
    };
    tape.int(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX));
}

/// `text`: returns whether it is UTF-8.
pub(super) fn is_utf8(args: &[TapeValue<'_>], tape: &mut Tape) {
    tape.bool(std::str::from_utf8(args.first().and_then(TapeValue::text).unwrap_or_default()).is_ok());
}

/// `text, with`: returns the text with each part that is not UTF-8 replaced by `with`.
pub(super) fn scrub(args: &[TapeValue<'_>], tape: &mut Tape) {
    let text = |index: usize| args.get(index).and_then(TapeValue::text).unwrap_or_default();
    let mut out = Vec::with_capacity(text(0).len());
    for chunk in text(0).utf8_chunks() {
        out.extend_from_slice(chunk.valid().as_bytes());
        if !chunk.invalid().is_empty() {
            out.extend_from_slice(text(1));
        }
    }
    tape.str(out);
}
