//! Prints the banner at the start.

use crate::VERSION;
use crate::listen::Address;
use crate::public;
use crate::sites::Sites;
use crate::tls::development::Shown;
use settings::Settings;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;
use workers::spawner::AppFacts;

/// The content of the banner, except for facts that are known only when the port is open.
pub(crate) struct Banner {
    settings: Arc<Settings>,
    facts: Option<AppFacts>,
    /// The lines about the control server.
    control: Vec<String>,
    begun: Instant,
    /// Whether the worker is the process that started the front.
    attached: bool,
}

impl Banner {
    pub(crate) fn new(
        settings: &Arc<Settings>,
        facts: Option<&AppFacts>,
        control: Vec<String>,
        begun: Instant,
        attached: bool,
    ) -> Banner {
        Banner { settings: settings.clone(), facts: facts.cloned(), control, begun, attached }
    }

    /// Prints the banner unless it is off. The addresses come last, one per line, so that a script can wait for them.
    /// `interrupted`: the interruptions of service in force.
    pub(crate) fn print(&self, sites: &Sites, addresses: &[Address], interrupted: &[String]) {
        if self.settings.process.quiet {
            return;
        }
        // A closed standard output does not stop the server.
        let _ = self.write(&mut io::stdout().lock(), sites, addresses, interrupted);
    }

    fn write(
        &self,
        out: &mut impl Write,
        sites: &Sites,
        addresses: &[Address],
        interrupted: &[String],
    ) -> io::Result<()> {
        let settings = &self.settings;
        match &self.facts {
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
            writeln!(out, "* mruby {version}: {}", route.describe(settings.base()))?;
        }
        let process = format!("{}, pid {}", front_threads(settings), std::process::id());
        match &self.facts {
            Some(_) if self.attached => {
                writeln!(out, "* Environment: {}", environment(settings))?;
                let ruby = std::os::unix::process::parent_id();
                writeln!(out, "* {} threads of Ruby, pid {ruby}, {process}", settings.threads)?;
            }
            Some(facts) => {
                writeln!(out, "* Environment: {}", environment(settings))?;
                let pools = workers::spawner::pools(settings);
                let own = settings.seats_text(pools.first().map_or(0, |pool| pool.fibers));
                writeln!(out, "* {} x {own}, {process}", workers(settings))?;
                for pool in pools.iter().skip(1) {
                    writeln!(out, "* Pool {}: {pool}", pool.name)?;
                }
                let (all, app) = (self.begun.elapsed().as_secs_f64(), facts.took.as_secs_f64());
                writeln!(out, "* Ready in {all:.2} s, of which the app took {app:.2} s")?;
            }
            None => writeln!(out, "* {process}")?,
        }
        for note in self.facts.iter().flat_map(|facts| facts.notes(settings.has_fibers())) {
            writeln!(out, "* {note}")?;
        }
        for note in self.facts.iter().flat_map(|facts| public::notes(settings, &facts.files)) {
            writeln!(out, "* {note}")?;
        }
        if settings.tls.development {
            writeln!(out, "* https for development: browsers accept it after `firebrick trust`")?;
        }
        for line in interrupted {
            writeln!(out, "* {line}")?;
        }
        for line in &self.control {
            writeln!(out, "* {line}")?;
        }
        for address in addresses {
            let development = settings.tls.development;
            writeln!(out, "* Listening on {}", Shown { address, development })?;
        }
        writeln!(out, "Use Ctrl-C to stop")?;
        out.flush()
    }
}

/// Describes the environment. In development some defaults differ, so the banner lists them.
fn environment(settings: &Settings) -> String {
    let name = &settings.process.environment;
    if !settings.is_development() {
        return name.clone();
    }
    let patience = if settings.timeouts.worker.is_none() { ", no worker time-out" } else { "" };
    format!("{name} (errors are shown{patience}, Ctrl-C ends at once)")
}

fn front_threads(settings: &Settings) -> String {
    match settings.front_threads {
        1 => "1 front thread".to_owned(),
        threads => format!("{threads} front threads"),
    }
}

fn workers(settings: &Settings) -> String {
    match settings.workers {
        range if range.is_range() => format!("{} to {} workers", range.min, range.max),
        one if one.min == 1 => "1 worker".to_owned(),
        number => format!("{number} workers"),
    }
}

fn rules(settings: &Settings) -> String {
    let file = settings.sites.main.as_ref().and_then(|site| site.static_json.as_ref());
    file.map_or("none (no static.json)".to_owned(), |file| file.display().to_string())
}
