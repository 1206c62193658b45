//! `firebrick profile`: where the workers of a running server spend their time.
//!
//! The server takes the profile (`control::profile`). Here its samples are chosen (`choose`), counted (`count`), and written: as a page (`page`), as text
//! (`summary`), and for other tools (`speedscope`, `pprof`).
#![forbid(unsafe_code)]

mod choose;
mod count;
mod open;
mod options;
mod page;
mod pprof;
mod speedscope;
mod summary;

use clap::{ArgMatches, Command};
use control::client::{ControlClient, reason};
use options::{Format, Options};
use profile::Profile;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

/// The most routes that an error names.
const MOST_ROUTES: usize = 20;

/// Adds the arguments of `firebrick profile`; the caller sets name and description.
pub fn arguments(command: Command) -> Command {
    options::arguments(command)
}

/// Returns the app's folder where it is the only word: it comes after the time, which may be left out.
pub fn only_dir(matches: &ArgMatches) -> Option<&str> {
    options::only_dir(matches)
}

/// Runs the command. Exit status: 0; 1 if there is no profile or a file cannot be written; 2 on wrong usage.
pub fn run(dir: &Path, client: &ControlClient, matches: &ArgMatches) -> ExitCode {
    let options = match Options::read(matches) {
        Ok(options) => options,
        Err(why) => return fail(&why, 2),
    };
    match profiled(dir, client, &options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(&why, 1),
    }
}

fn fail(why: &str, code: u8) -> ExitCode {
    output::complain(format_args!("firebrick profile: {why}"));
    ExitCode::from(code)
}

fn profiled(dir: &Path, client: &ControlClient, options: &Options) -> Result<(), String> {
    let before = options.diff.as_deref().map(read).transpose()?;
    let taken = match &options.from {
        Some(file) => read(file)?,
        None => take(dir, client, options)?,
    };
    let whole = taken.requests.len();
    let profile = options.choice.apply(taken);
    if profile.samples.is_empty() {
        return Err(nothing(&profile, whole, options));
    }
    let before = before.map(|before| options.choice.apply(before));
    write(&profile, before.as_ref(), options)
}

/// Says why there are no samples.
fn nothing(profile: &Profile, requests: usize, options: &Options) -> String {
    if profile.workers.is_empty() {
        return "no worker has answered: was one running?".to_owned();
    }
    if let Some(worker) = profile.workers.iter().find(|worker| !worker.lacks.is_empty()) {
        return format!("no worker can take a profile: {} (docs/profile.md)", worker.lacks);
    }
    if requests > 0 && !options.choice.is_everything() {
        let routes: BTreeSet<&str> = profile.requests.iter().map(|one| one.route.as_str()).collect();
        let routes: Vec<&str> = routes.into_iter().take(MOST_ROUTES).collect();
        return format!(
            "none of the {requests} requests with samples is chosen by these options; their routes: {}",
            routes.join(", ")
        );
    }
    "the workers served no requests in this time: profile while there is traffic".to_owned()
}

fn take(dir: &Path, client: &ControlClient, options: &Options) -> Result<Profile, String> {
    let seconds = options.order.time.as_secs_f64();
    output::complain(format_args!("profiling all workers for {} s", text::people::figure(seconds)));
    let document = control::profile::take(client, options.order).map_err(|error| reason(&error, dir))?;
    Profile::read(document.trim())
}

fn read(file: &Path) -> Result<Profile, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Profile::read(text.trim()).map_err(|why| {
        format!("{}: {why}; expected a file of `firebrick profile --format json`", file.display())
    })
}

fn write(profile: &Profile, before: Option<&Profile>, options: &Options) -> Result<(), String> {
    let bytes = match options.format {
        Format::Html => page::render(profile, before).into_bytes(),
        Format::Json => serde_json::to_vec(profile).unwrap_or_default(),
        Format::Speedscope => speedscope::render(profile).into_bytes(),
        Format::Pprof => pprof::render(profile),
        Format::Text => summary::render(profile, before).into_bytes(),
    };
    let Some(file) = &options.file else {
        output::print(summary::render(profile, before));
        return Ok(());
    };
    std::fs::write(file, bytes).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    let text = match options.format {
        Format::Html => summary::render(profile, before),
        _ => summary::headline(profile, &count::Sums::of(profile)),
    };
    output::print(format!("{text}\n{}\n", file.display()));
    if options.opens {
        open::open(file);
    }
    Ok(())
}
