//! What a start prints: who, with what, where, how long it took.

use crate::VERSION;
use crate::listen::Address;
use crate::sites::Sites;
use pool::supervisor::AppFacts;
use settings::Settings;
use std::io::{self, Write};
use std::time::Duration;

/// Prints the banner; `asked_at` says where the server can be asked what it does; addresses come one a line, last, so that a script can wait for them.
pub(crate) fn print(
    settings: &Settings,
    facts: Option<&AppFacts>,
    sites: &Sites,
    asked_at: &[String],
    addresses: &[Address],
    took: Duration,
) {
    let mut out = io::stdout().lock();
    // Nobody may be reading; the server serves all the same.
    let _ = write(&mut out, settings, facts, sites, asked_at, addresses, took);
}

fn write(
    out: &mut impl Write,
    settings: &Settings,
    facts: Option<&AppFacts>,
    sites: &Sites,
    asked_at: &[String],
    addresses: &[Address],
    took: Duration,
) -> io::Result<()> {
    if settings.quiet {
        return out.flush();
    }
    match facts {
        Some(facts) => writeln!(out, "Firebrick {VERSION} ({}, Rack {})", facts.ruby, facts.rack)?,
        None => writeln!(out, "Firebrick {VERSION}")?,
    }
    if let Some(site) = &sites.main {
        writeln!(out, "* Static site: {}, rules: {}", site.plan.root.display(), rules(settings))?;
    }
    for (host, site) in &sites.hosts {
        writeln!(out, "* Static site for {host}: {}", site.plan.root.display())?;
    }
    let version = script::version().unwrap_or_default();
    for route in settings.mruby.routes.iter().rev() {
        writeln!(out, "* mruby {version}: {}", route.describe(&settings.dir))?;
    }
    let process = format!("{} front threads, pid {}", settings.front_threads, std::process::id());
    match facts {
        Some(facts) => {
            writeln!(out, "* Environment: {}", settings.environment)?;
            writeln!(out, "* {} x {} threads, {process}", workers(settings), settings.threads)?;
            writeln!(
                out,
                "* Ready in {:.2} s, of which the app took {:.2} s",
                took.as_secs_f64(),
                facts.took.as_secs_f64()
            )?;
        }
        None => writeln!(out, "* {process}")?,
    }
    for line in asked_at {
        writeln!(out, "* {line}")?;
    }
    for address in addresses {
        writeln!(out, "* Listening on {address}")?;
    }
    writeln!(out, "Use Ctrl-C to stop")?;
    out.flush()
}

fn workers(settings: &Settings) -> String {
    if settings.workers == 1 { "1 worker".to_owned() } else { format!("{} workers", settings.workers) }
}

fn rules(settings: &Settings) -> String {
    let file = settings.sites.main.as_ref().and_then(|site| site.static_json.as_ref());
    file.map_or("none (no static.json)".to_owned(), |file| file.display().to_string())
}
