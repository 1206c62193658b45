//! `firebrick top`: a live screen of the server running in DIR.
//!
//! Two samples of the server, one interval apart, form a [`view::View`] with the rates and percentiles of
//! that interval. The live screen and `--once` draw the same view.
//!
//! Contract:
//! 1. The terminal is restored however the program ends (key, signal, error or panic), and while it is suspended.
//! 2. If the server goes away while it is watched, the screen waits for it; if it is not running at the
//!    start, that is an error.
//! 3. Keys work while the server is slow, because another thread queries it.
#![forbid(unsafe_code)]

mod draw;
mod fleet;
mod live;
mod number;
mod once;
mod options;
mod source;
mod state;
mod terminal;
mod theme;
mod view;

use clap::{ArgMatches, Command};
use control::client::{ControlClient, explain};
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use options::Options;

/// Adds the arguments of `firebrick top`; the caller sets name and description.
pub fn arguments(command: Command) -> Command {
    options::arguments(command)
}

/// Runs the command. Exit status: 0 if a key ended it, 1 if the server cannot be queried, 2 on wrong usage or
/// without a terminal.
pub fn run(dir: &Path, client: &ControlClient, matches: &ArgMatches) -> ExitCode {
    let outcome = Options::read(matches).map_err(Failure::Usage).and_then(|options| match &options.fleet {
        Some(several) => fleet::run(client, &options, several),
        None if options.once => once::run(client, &options, dir),
        None => live(client, &options, dir),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// The reason why the command failed.
#[derive(Debug)]
enum Failure {
    /// Wrong usage, or no terminal.
    Usage(String),
    /// An error while running.
    Run(String),
}

impl Failure {
    fn report(&self) -> ExitCode {
        let (text, code) = match self {
            Failure::Usage(text) => (text, 2),
            Failure::Run(text) => (text, 1),
        };
        output::complain(format_args!("firebrick: {text}"));
        ExitCode::from(code)
    }
}

/// Checks that the screen can be drawn.
fn needs_a_terminal() -> Result<(), Failure> {
    let missing = match (std::io::stdin().is_terminal(), std::io::stdout().is_terminal()) {
        (_, false) => Some("standard output is not a terminal"),
        (false, _) => Some("standard input is not a terminal"),
        _ if std::env::var_os("TERM").is_some_and(|term| term == "dumb") => {
            Some("this terminal (TERM=dumb) is not supported")
        }
        _ => None,
    };
    match missing {
        None => Ok(()),
        Some(missing) => Err(Failure::Usage(format!(
            "{missing}; `firebrick top --once` prints one screen as text, `firebrick top --once --json` as JSON"
        ))),
    }
}

fn live(client: &ControlClient, options: &Options, dir: &Path) -> Result<(), Failure> {
    needs_a_terminal()?;
    // Before switching screens, so that the error stays visible.
    client.get("/stats").map_err(|error| Failure::Run(explain(&error, dir)))?;
    live::run(client, options)
}
