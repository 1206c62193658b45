//! What a start prints: who, with what, where, how long it took.

use crate::VERSION;
use crate::listen::Address;
use pool::supervisor::AppFacts;
use settings::Settings;
use std::io::{self, Write};
use std::time::Duration;

/// Prints the banner; addresses come one a line, last, so that a script can wait for them.
pub(crate) fn print(settings: &Settings, facts: &AppFacts, addresses: &[Address], took: Duration) {
    let mut out = io::stdout().lock();
    // Nobody may be reading; the server serves all the same.
    let _ = write(&mut out, settings, facts, addresses, took);
}

fn write(
    out: &mut impl Write,
    settings: &Settings,
    facts: &AppFacts,
    addresses: &[Address],
    took: Duration,
) -> io::Result<()> {
    if !settings.quiet {
        let workers = if settings.workers == 1 {
            "1 worker".to_owned()
        } else {
            format!("{} workers", settings.workers)
        };
        writeln!(out, "Firebrick {VERSION} ({}, Rack {})", facts.ruby, facts.rack)?;
        writeln!(out, "* Environment: {}", settings.environment)?;
        writeln!(
            out,
            "* {workers} x {} threads, {} front threads, pid {}",
            settings.threads,
            settings.front_threads,
            std::process::id()
        )?;
        writeln!(
            out,
            "* Ready in {:.2} s, of which the app took {:.2} s",
            took.as_secs_f64(),
            facts.took.as_secs_f64()
        )?;
        for address in addresses {
            writeln!(out, "* Listening on {address}")?;
        }
        writeln!(out, "Use Ctrl-C to stop")?;
    }
    out.flush()
}
