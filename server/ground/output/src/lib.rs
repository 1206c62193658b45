//! Writes the output of commands to standard output and standard error.
//!
//! Why: either may be a pipe whose reader has gone, or a file on a full disk. The macros of the standard
//! library panic then, and with an ignored error a script believes that the command succeeded.
//!
//! Contract:
//! 1. Nothing here panics or exits.
//! 2. A reader that has gone (`| head`) is not a failure.
//! 3. Other write errors are reported once on standard error, and [`verdict`] turns a success into a failure.
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a write to standard output has failed.
static LOST: AtomicBool = AtomicBool::new(false);

/// Writes a text to standard output and flushes it.
pub fn print(text: impl AsRef<[u8]>) {
    let mut out = io::stdout().lock();
    note(out.write_all(text.as_ref()).and_then(|()| out.flush()));
}

/// Records the result of a write to standard output.
pub fn note(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
        && !LOST.swap(true, Ordering::Relaxed)
    {
        complain(format_args!("error: cannot write to standard output: {error}"));
    }
}

/// Writes a line to standard error, without secrets that it may quote. A failure cannot be reported.
pub fn complain(line: impl Display) {
    // Uses one call, so that lines of several processes do not mix.
    let _ = io::stderr().lock().write_all(text::masked(&format!("{line}\n")).as_bytes());
}

/// Returns the exit code of a command: a success only if all of its output was written.
pub fn verdict(code: ExitCode) -> ExitCode {
    if code == ExitCode::SUCCESS && LOST.load(Ordering::Relaxed) { ExitCode::FAILURE } else { code }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only test that loses output, because the loss is recorded for the whole process.
    #[test]
    fn what_is_lost_is_a_failure_unless_nobody_wanted_it() {
        note(Ok(()));
        note(Err(ErrorKind::BrokenPipe.into()));
        assert_eq!(verdict(ExitCode::SUCCESS), ExitCode::SUCCESS);
        note(Err(ErrorKind::StorageFull.into()));
        assert_eq!(verdict(ExitCode::SUCCESS), ExitCode::FAILURE);
        assert_eq!(verdict(ExitCode::from(2)), ExitCode::from(2));
    }
}
