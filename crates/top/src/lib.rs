//! `firebrick top`: what is happening now: a live screen of the server that runs in DIR.
//!
//! Two looks at the server, one interval apart, make a [`view::View`]: rates and percentiles of that interval, not of the
//! time since the start. The live screen and `--once` draw the same view.
//!
//! Contract:
//! 1. The terminal is given back as it was, however this ends: by a key, a signal, an error or a panic; and while it is
//!    suspended.
//! 2. A server that goes away while it is watched is waited for; one that is not there at the start is an error.
//! 3. Keys are answered while the server is slow: it is asked on another thread.
#![forbid(unsafe_code)]

mod draw;
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
use control::client::{Client, explain};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use options::Options;

/// What can be typed after `firebrick top`; the caller gives it its name and one line about it.
pub fn arguments(command: Command) -> Command {
    options::arguments(command)
}

/// Does what was typed: 0 when it was left by a key, 1 when the server cannot be asked, 2 when this cannot be done here.
pub fn run(dir: &Path, client: &Client, matches: &ArgMatches) -> ExitCode {
    let outcome = Options::read(matches).map_err(Failure::Usage).and_then(|options| match options {
        options if options.once => once::run(client, &options, dir),
        options => live(client, &options, dir),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell(),
    }
}

/// Why there is nothing to see.
#[derive(Debug)]
enum Failure {
    /// What was typed cannot be done, or not here.
    Usage(String),
    /// It could, but did not work.
    Run(String),
}

impl Failure {
    fn tell(&self) -> ExitCode {
        let (text, code) = match self {
            Failure::Usage(text) => (text, 2),
            Failure::Run(text) => (text, 1),
        };
        // Nobody is left to tell when standard error is closed.
        let _ = writeln!(std::io::stderr().lock(), "firebrick: {text}");
        ExitCode::from(code)
    }
}

fn live(client: &Client, options: &Options, dir: &Path) -> Result<(), Failure> {
    let missing = match (std::io::stdin().is_terminal(), std::io::stdout().is_terminal()) {
        (_, false) => Some("standard output is no terminal"),
        (false, _) => Some("standard input is no terminal, so no key could end it"),
        _ if std::env::var_os("TERM").is_some_and(|term| term == "dumb") => {
            Some("this terminal (TERM=dumb) is too simple")
        }
        _ => None,
    };
    if let Some(missing) = missing {
        return Err(Failure::Usage(format!(
            "{missing}; `firebrick top --once` prints one screen as text, `firebrick top --once --json` as JSON"
        )));
    }
    // Before the screen is taken: whoever mistyped reads the error where he typed.
    client.get("/stats").map_err(|error| Failure::Run(explain(&error, dir)))?;
    live::run(client, options)
}
