//! `firebrick plan`: how many machines, and what they cost: from a few measured facts.
#![forbid(unsafe_code)]

use clap::{ArgMatches, Command};
use std::process::ExitCode;

/// What can be typed after `firebrick plan`; the caller gives it its name and one line about it.
pub fn arguments(command: Command) -> Command {
    command
}

/// Does what was typed.
pub fn run(_matches: &ArgMatches) -> ExitCode {
    ExitCode::SUCCESS
}
