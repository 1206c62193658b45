//! Loading the app once without serving it: the last line of `firebrick check`.

use crate::{boot, libraries, log_file, scripts, sites, tls};
use pool::spawner::Handoff;
use settings::Settings;
use std::sync::Arc;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::watch;

/// Loads once what would be served: the app in a template, handlers in a VM. Returns what to print about it.
/// `prepared`: the process that has evaluated `puma.rb`.
///
/// # Errors
/// Why it cannot be served: the exception that loading raised, with its backtrace; a log without a folder.
pub fn check(settings: &Settings, prepared: &Handoff) -> Result<String, String> {
    log_file::check(settings)?;
    ratelimit::check(settings)?;
    let site = sites::check(settings)?;
    let mut lines: Vec<String> = site.into_iter().collect();
    lines.extend(tls::check(settings)?);
    lines.extend(tls::obtain::plan(settings));
    if !settings.mruby.routes.is_empty() {
        lines.push(handlers(settings)?);
    }
    if settings.app.is_some() {
        lines.push(app(settings, prepared.clone())?);
    }
    if lines.is_empty() {
        lines.push("The configuration is right.".to_owned());
    }
    Ok(lines.join("\n"))
}

/// Evaluates the handlers on mruby and lets them go.
fn handlers(settings: &Settings) -> Result<String, String> {
    let count = event_loop()?.block_on(scripts::try_out(settings))?.unwrap_or_default();
    let handlers = if count == 1 { "The handler loads".to_owned() } else { format!("{count} handlers load") };
    Ok(format!("{handlers} on {}.", script::about()))
}

fn event_loop() -> Result<LocalRuntime, String> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    runtime.map_err(|e| format!("no event loop: {e}"))
}

/// Boots the app in a template and lets it go.
fn app(settings: &Settings, prepared: Handoff) -> Result<String, String> {
    let (_, unchanging) = watch::channel(Arc::new(settings.clone()));
    let refresh = pool::supervisor::Refresh::new(|_| Err("nothing is served here".to_owned()));
    event_loop()?.block_on(async {
        let supervisor = boot::boot(unchanging, refresh, Vec::new(), prepared, None).await?;
        let facts = supervisor.facts().cloned();
        supervisor.abandon().await;
        Ok(facts.map_or("The app loads.".to_owned(), |facts| {
            let seconds = facts.took.as_secs_f64();
            let loads = format!("The app loads in {seconds:.2} s ({}, Rack {}).", facts.ruby, facts.rack);
            let fibers = libraries::lines(settings, &facts.libraries);
            std::iter::once(loads).chain(facts.notes).chain(fibers).collect::<Vec<_>>().join("\n")
        }))
    })
}
