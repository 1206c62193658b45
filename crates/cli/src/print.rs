//! The completion scripts and the manual page.

use std::io::{self, Write};
use std::process::ExitCode;

use clap_complete::Shell;

use crate::grammar::grammar;

/// Prints the completion script for a shell.
pub fn completions(shell: Shell) -> ExitCode {
    print(&completion_script(shell))
}

/// Prints the manual page as roff.
pub fn man() -> ExitCode {
    match manual() {
        Ok(page) => print(&page),
        Err(error) => failed(&error),
    }
}

pub(crate) fn completion_script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut grammar(), "firebrick", &mut script);
    script
}

/// One page: the options once, then each command with what only it takes.
pub(crate) fn manual() -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(grammar()).render(&mut page)?;
    Ok(page)
}

fn print(text: &[u8]) -> ExitCode {
    match io::stdout().write_all(text).and_then(|()| io::stdout().flush()) {
        Ok(()) => ExitCode::SUCCESS,
        // `firebrick man | head` is no failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &io::Error) -> ExitCode {
    eprintln!("error: cannot write to standard output: {error}");
    ExitCode::FAILURE
}
