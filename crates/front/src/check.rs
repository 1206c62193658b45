//! Loading the app once without serving it: the last line of `firebrick check`.

use crate::{log_file, plan, scripts, sites};
use pool::supervisor::{BootError, Supervisor};
use settings::Settings;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

/// Loads once what would be served: the app in a template, handlers in a VM. What to say about it.
///
/// # Errors
/// Why it cannot be served: the exception that loading raised, with its backtrace; a log without a folder.
pub fn check(settings: &Settings) -> Result<String, String> {
    log_file::check(settings)?;
    let site = sites::check(settings)?;
    let mut lines: Vec<String> = site.into_iter().collect();
    if !settings.mruby.routes.is_empty() {
        lines.push(handlers(settings)?);
    }
    if settings.app.is_some() {
        lines.push(app(settings)?);
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
fn app(settings: &Settings) -> Result<String, String> {
    let options = plan::options(settings, Vec::new())?;
    let boot_timeout = settings.timeouts.worker_boot_timeout;
    event_loop()?.block_on(async {
        match tokio::time::timeout(boot_timeout, Supervisor::boot(options)).await {
            Ok(Ok(supervisor)) => {
                let facts = supervisor.facts().clone();
                supervisor.abandon().await;
                Ok(format!(
                    "The app loads in {:.2} s ({}, Rack {}).",
                    facts.took.as_secs_f64(),
                    facts.ruby,
                    facts.rack
                ))
            }
            Ok(Err(error)) => Err(explain(&error, settings)),
            Err(_) => Err(format!(
                "the app did not load within worker_boot_timeout ({} s)",
                boot_timeout.as_secs_f64()
            )),
        }
    })
}

/// A failure to boot, in words.
pub(crate) fn explain(error: &BootError, settings: &Settings) -> String {
    match error {
        BootError::App(text) => {
            let app = settings.app.as_deref().unwrap_or(&settings.dir).display();
            format!("{app} cannot be loaded:\n{}", text.trim_end())
        }
        BootError::Template(error) => error.to_string(),
    }
}
