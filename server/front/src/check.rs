//! `firebrick check`: loads the app once without serving it.

use crate::{boot, leftovers, libraries, listen, log_file, public, scripts, sites, tls};
use settings::puma::Call;
use settings::{ServiceProgram, Settings};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::watch;
use workers::ReleaseId;
use workers::spawner::{BootConfig, Handoff, WarmUp};
use workers::supervisor::ReleaseReader;

const NOT_SERVED: &str = "nothing is served here";

/// Loads everything that would be served: the app in a template, handlers in a VM. Returns the report.
/// `prepared`: the process that has evaluated `puma.rb`.
///
/// # Errors
/// The reason against serving: for example the exception that loading raised, with its backtrace, or a log
/// without a directory.
pub fn check(settings: &Settings, prepared: &Handoff) -> Result<String, String> {
    log_file::check(settings)?;
    places(settings)?;
    services(settings)?;
    ratelimit::check(settings)?;
    let site = sites::check(settings)?;
    let mut lines: Vec<String> = site.into_iter().collect();
    lines.extend(tls::check(settings)?);
    lines.extend(tls::obtain::plan(settings));
    lines.extend(listen::try_all(&settings.binds)?);
    if !settings.mruby.routes.is_empty() {
        lines.push(handlers(settings)?);
    }
    if settings.app.is_some() {
        lines.push(app(settings, prepared.clone())?);
    }
    if lines.is_empty() {
        lines.push("The configuration is valid.".to_owned());
    }
    Ok(lines.join("\n"))
}

/// Checks the paths that the server writes to: temporary files, the pid file.
fn places(settings: &Settings) -> Result<(), String> {
    log_file::writable_folder(Some(&settings.process.temp_dir)).map_err(|why| {
        format!(
            "temporary files cannot be written: {why}; large uploads and responses would stay in memory: set TMPDIR to a folder that this \
             user can write"
        )
    })?;
    let Some(pidfile) = &settings.process.pidfile else { return Ok(()) };
    // A device is always writable.
    let (name, there) = (pidfile.display(), std::fs::metadata(pidfile));
    let fits = match &there {
        Ok(found) if found.is_dir() => {
            Err(std::io::Error::other("it is a folder, expected the path of a file"))
        }
        Ok(_) => std::fs::File::options().append(true).open(pidfile).map(drop),
        Err(_) if leftovers::makes_folders(pidfile, &settings.dir) => {
            log_file::writable_folder(existing(pidfile))
        }
        Err(_) => log_file::writable_folder(pidfile.parent()),
    };
    fits.map_err(|why| {
        format!("the pid file {name} cannot be written: {why}; create the folder, or name a file elsewhere")
    })
}

/// Returns the nearest existing parent directory. The start of the server creates the others.
fn existing(file: &Path) -> Option<&Path> {
    file.ancestors().skip(1).find(|folder| folder.exists())
}

/// Checks that the programs of services exist.
fn services(settings: &Settings) -> Result<(), String> {
    let environment = &settings.process.environment;
    for service in settings.services.iter().filter(|service| service.runs_in(environment)) {
        let ServiceProgram::Command { words, env } = &service.program else { continue };
        let Some(program) = words.first() else { continue };
        let own = env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, path)| path.into());
        let path: OsString = own.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
        if !is_program(program, &settings.dir, &path) {
            let looked =
                if program.contains('/') { String::new() } else { format!(" in {}", path.display()) };
            return Err(format!(
                "{}: the service {:?} cannot be started: there is no program {program:?}{looked}; give its path, or install it",
                service.place, service.name
            ));
        }
    }
    Ok(())
}

/// Whether a word names a program, relative to the app's directory.
fn is_program(word: &str, dir: &Path, path: &OsStr) -> bool {
    let is_one = |file: &Path| {
        let is_file = std::fs::metadata(file).is_ok_and(|found| found.is_file());
        is_file && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
    };
    if word.contains('/') {
        is_one(&dir.join(word))
    } else {
        std::env::split_paths(path).any(|folder| is_one(&dir.join(folder).join(word)))
    }
}

/// Evaluates the mruby handlers and discards them.
fn handlers(settings: &Settings) -> Result<String, String> {
    let count = event_loop()?.block_on(scripts::try_out(settings))?.unwrap_or_default();
    let handlers = if count == 1 { "The handler loads".to_owned() } else { format!("{count} handlers load") };
    Ok(format!("{handlers} on {}.", script::about()))
}

pub(crate) fn event_loop() -> Result<LocalRuntime, String> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    runtime.map_err(|e| format!("no event loop: {e}"))
}

/// The releases of an app that is not served.
pub(crate) struct NeverReloaded;

impl ReleaseReader for NeverReloaded {
    fn read(&self, _: ReleaseId, _: ReleaseId) -> Result<(), String> {
        Err(NOT_SERVED.to_owned())
    }

    fn evaluated(&self, _: ReleaseId, _: &[Call]) -> Result<(), String> {
        Err(NOT_SERVED.to_owned())
    }

    fn boot_config(&self, _: ReleaseId) -> Result<BootConfig, String> {
        Err(NOT_SERVED.to_owned())
    }
}

/// Boots the app in a template and discards it.
fn app(settings: &Settings, prepared: Handoff) -> Result<String, String> {
    let (_, unchanging) = watch::channel(Arc::new(settings.clone()));
    event_loop()?.block_on(async {
        let supervisor = boot::boot(
            unchanging,
            Rc::new(NeverReloaded),
            Vec::new(),
            prepared,
            None,
            None,
            WarmUp::default(),
        )
        .await?;
        let facts = supervisor.facts().cloned();
        supervisor.abandon().await;
        Ok(facts.map_or("The app loads.".to_owned(), |facts| {
            let seconds = facts.took.as_secs_f64();
            let loads = format!("The app loads in {seconds:.2} s ({}, Rack {}).", facts.ruby, facts.rack);
            let fibers = libraries::lines(settings, &facts.libraries);
            let files = public::lines(settings, &facts.files);
            std::iter::once(loads)
                .chain(facts.notes)
                .chain(fibers)
                .chain(files)
                .collect::<Vec<_>>()
                .join("\n")
        }))
    })
}
