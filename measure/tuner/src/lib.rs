//! `firebrick tune`: measures the app under combinations of processes, threads and fibers and recommends one.
//!
//! Reading order: [`run`] validates the command line, [`work`] measures cell after cell (`search` chooses the
//! next one), [`verdict`] evaluates them with `planner`, and `summary`, `json`, `html` and `write` produce
//! the output.
//!
//! Contract:
//! 1. Nothing is started before the whole command line is validated.
//! 2. However the command ends, no process and no file is left behind.
//! 3. A cell that crashes is a result like any other.
#![forbid(unsafe_code)]

mod arguments;
mod cell;
mod counters;
mod cpus;
mod fibers;
mod figures;
mod guard;
mod hints;
mod html;
mod json;
mod libraries;
mod options;
mod processes;
mod requests;
mod results;
mod running;
mod screen;
mod search;
mod server;
mod slice;
mod stop;
mod summary;
mod table;
mod verdict;
mod work;
mod workload;
mod write;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::{ArgMatches, Command};
use planner::Budget;
use settings::Machine;

use cpus::Cpus;
use guard::Guard;
use options::Options;
use results::Results;
use running::Context;
use screen::Screen;
use server::ServerKind;
use stop::Stop;
use verdict::Verdict;

/// The exit status for wrong usage.
const USAGE: u8 = 2;
/// The line width without a terminal.
const WIDTH: usize = 100;

/// Adds the arguments of `firebrick tune`; the caller sets name and description.
pub fn arguments(command: Command) -> Command {
    arguments::arguments(command)
}

pub fn run(matches: &ArgMatches) -> ExitCode {
    if matches.get_flag(guard::FLAG) {
        return guard::keep(io::stdin().lock());
    }
    let mistakes = match options::read(matches) {
        Ok(options) => match options.output.write.then(|| write::check(&options.dir)) {
            Some(Err(why)) => vec![why],
            _ => return tune(&options),
        },
        Err(mistakes) => mistakes,
    };
    mistakes.iter().for_each(|mistake| print_error(mistake));
    ExitCode::from(USAGE)
}

fn print_error(what: &str) {
    output::complain(format_args!("firebrick tune: {what}"));
}

fn tune(options: &Options) -> ExitCode {
    match measure_and_report(options) {
        Ok(code) => code,
        Err(why) => {
            print_error(&why);
            ExitCode::FAILURE
        }
    }
}

/// Facts known before measuring.
struct Setup<'a> {
    options: &'a Options,
    machine: Machine,
    cpus: Cpus,
    budget: Budget,
    notes: Vec<String>,
    servers: Vec<(ServerKind, String)>,
}

fn measure_and_report(options: &Options) -> Result<ExitCode, String> {
    let stop = Stop::on_signals().map_err(|error| format!("cannot handle signals: {error}"))?;
    let setup = setup(options);
    let program =
        std::env::current_exe().map_err(|error| format!("cannot find the path of this program: {error}"))?;
    let temp = tempfile::Builder::new().prefix(guard::FOLDER).tempdir();
    let temp = temp.map_err(|error| format!("cannot create a temporary folder: {error}"))?;
    let guard = Guard::start(&program, temp.path())
        .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    // The search uses the same budget as the verdict.
    let effective = Options { budget: setup.budget, ..options.clone() };
    let context = Context {
        options: &effective,
        stop: &stop,
        guard: &guard,
        program: &program,
        temp: temp.path(),
        cpus: &setup.cpus,
        libraries: std::cell::OnceCell::new(),
    };
    let kinds: Vec<ServerKind> = setup.servers.iter().map(|(kind, _)| *kind).collect();
    let mut screen = Screen::new(options.output.quiet, options.output.json_only, kinds.len() > 1);
    screen.head(&head(&setup));
    let done = work::work(&context, &kinds, &mut screen);
    drop(screen);
    drop(guard);
    report(&setup, &done)
}

fn setup(options: &Options) -> Setup<'_> {
    let machine = Machine::read();
    let (budget, mut notes) = hints::fill(options.budget, &machine);
    let cpus = Cpus::divide(budget.cpus, machine.cores);
    if let Some(wanted) = budget.cpus.filter(|wanted| *wanted > cpus.all) {
        notes.push(format!(
            "--cpus: this machine has only {} of {wanted}; the rest is extrapolated.",
            cpus.all
        ));
    }
    notes.extend(hints::set_aside());
    let mut servers = Vec::new();
    for kind in &options.servers {
        match kind.version(&options.dir) {
            Ok(version) => servers.push((*kind, version)),
            Err(why) => notes.push(format!("--against: {} is skipped: {why}", kind.name())),
        }
    }
    Setup { options, machine, cpus, budget, notes, servers }
}

/// Returns the lines above the table.
fn head(setup: &Setup<'_>) -> Vec<String> {
    let options = setup.options;
    let cpus = if setup.cpus.server < setup.cpus.all {
        format!("{} of {} CPUs for the server", setup.cpus.server, setup.cpus.all)
    } else {
        format!("{} CPUs, shared with the load generator", setup.cpus.all)
    };
    let mut lines = vec![format!(
        "Tuning {} in {} mode: {}; {cpus}.",
        options.dir.display(),
        options.environment,
        workload::words(&options.load)
    )];
    let others: Vec<String> =
        setup.servers.iter().skip(1).map(|(kind, version)| format!("{} {version}", kind.name())).collect();
    if !others.is_empty() {
        lines.push(format!("Compared with {}, alternating within each cell.", others.join(", ")));
    }
    for kind in setup.servers.iter().map(|(kind, _)| *kind).filter(|kind| !kind.limits().is_empty()) {
        lines.push(format!("{} has only some cells: {}.", kind.name(), kind.limits()));
    }
    lines.extend(setup.notes.iter().cloned());
    lines
}

fn report(setup: &Setup<'_>, done: &Results) -> Result<ExitCode, String> {
    let options = setup.options;
    let verdict = verdict::verdict(options, &setup.budget, done, hints::pool(&options.dir));
    let json = json::document(
        options,
        &setup.budget,
        &setup.machine,
        setup.cpus.server,
        &setup.servers,
        done,
        &verdict,
    )?;
    if options.output.json_only {
        output::print(json.as_bytes());
    } else if done.measured.is_empty() {
        output::print("\nNo measurements.\n");
    } else {
        output::print(summary::text(&verdict, width()));
        output::print(format!("\n{}\n", how_long(done)));
    }
    if let Some(path) = &options.output.json {
        save(path, &json)?;
    }
    if let Some(path) = &options.output.html {
        save(path, &html::page(options, &setup.budget, done, &verdict).to_html())?;
        remark(options, &format!("Report written to {}.\n", path.display()));
    }
    write_config(options, &verdict)?;
    if verdict.disturbed {
        return Err(
            "other programs disturbed most measurements: there is no recommendation (see above)".to_owned()
        );
    }
    let ran =
        done.measured.iter().any(|one| one.server == ServerKind::Firebrick && one.cell.rate_per_s > 0.0);
    Ok(if ran { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write_config(options: &Options, verdict: &Verdict) -> Result<(), String> {
    if !options.output.write {
        return Ok(());
    }
    match &verdict.recommendation.best {
        Some(best) => {
            let difference = write::write(&options.dir, best.shape)?;
            remark(options, &format!("\nWritten into {difference}\n"));
            for name in ["WEB_CONCURRENCY", "RAILS_MAX_THREADS"]
                .into_iter()
                .filter(|name| std::env::var_os(name).is_some())
            {
                remark(
                    options,
                    &format!("{name} is set and takes precedence over the file: change it too.\n"),
                );
            }
            Ok(())
        }
        None if verdict.disturbed => {
            Err("--write: nothing is written, because other programs disturbed the measurements".to_owned())
        }
        None => Err("--write: nothing to write, because no measured shape fits".to_owned()),
    }
}

/// Prints a message for people, on standard error if standard output is JSON.
fn remark(options: &Options, text: &str) {
    if options.output.json_only {
        let _ = io::stderr().lock().write_all(text.as_bytes());
    } else {
        output::print(text);
    }
}

fn how_long(done: &Results) -> String {
    let seconds = figures::figure(done.seconds);
    match done.candidates.saturating_sub(done.firm().len()) {
        0 => format!("Took {seconds} s."),
        open => format!("Took {seconds} s; {open} other shapes were evaluated without measuring them."),
    }
}

fn save(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn width() -> usize {
    let out = io::stdout();
    if !out.is_terminal() {
        return WIDTH;
    }
    terminal_size::terminal_size_of(out).map_or(WIDTH, |(width, _)| usize::from(width.0))
}
