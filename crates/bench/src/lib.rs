//! `firebrick bench`: how fast: loads a server and says what came back.
#![forbid(unsafe_code)]

use clap::{ArgMatches, Command};
use std::process::ExitCode;

/// What can be typed after `firebrick bench`; the caller gives it its name and one line about it.
pub fn arguments(command: Command) -> Command {
    command
}

/// Does what was typed.
pub fn run(_matches: &ArgMatches) -> ExitCode {
    ExitCode::SUCCESS
}
