//! What commands write to standard output and standard error.
//!
//! Why: either may be a pipe whose reader has gone, or a file on a full disk. The macros of the standard library panic then, and a result that
//! is ignored tells a script that all is well.
//!
//! Contract:
//! 1. Nothing here panics or stops.
//! 2. A reader that has gone (`| head`) wanted no more: that is no failure.
//! 3. What could not be written for another reason is said on standard error, once, and [`verdict`] makes a failure of a success.
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether something could not be written to standard output.
static LOST: AtomicBool = AtomicBool::new(false);

/// Writes to standard output, all of it and at once.
pub fn print(text: impl AsRef<[u8]>) {
    let mut out = io::stdout().lock();
    note(out.write_all(text.as_ref()).and_then(|()| out.flush()));
}

/// Takes in how writing to standard output has ended.
pub fn note(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
        && !LOST.swap(true, Ordering::Relaxed)
    {
        complain(format_args!("error: cannot write to standard output: {error}"));
    }
}

/// Writes a line to standard error. Nobody can be told when that fails.
pub fn complain(line: impl Display) {
    // In one call, so that lines of several processes do not mix.
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// The exit code of a command: a success only if all that it had to say could be written.
pub fn verdict(code: ExitCode) -> ExitCode {
    if code == ExitCode::SUCCESS && LOST.load(Ordering::Relaxed) { ExitCode::FAILURE } else { code }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only test that loses anything, because what is lost is kept for the whole process.
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
