//! `firebrick top`: what is happening now: a live screen of the server that runs in DIR.
#![forbid(unsafe_code)]

use clap::{ArgMatches, Command};
use std::path::Path;
use std::process::ExitCode;

/// What can be typed after `firebrick top`; the caller gives it its name and one line about it.
pub fn arguments(command: Command) -> Command {
    command
}

/// Does what was typed.
pub fn run(_dir: &Path, _client: &control::client::Client, _matches: &ArgMatches) -> ExitCode {
    ExitCode::SUCCESS
}
