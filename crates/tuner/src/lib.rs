//! `firebrick tune`: which configuration: runs the app under processes x threads and recommends one.
//!
//! Read downward: [`run`] checks what was typed, [`work`] measures cell after cell (the `search` says which comes next),
//! [`verdict`] judges them with `planner`, and `summary`, `json`, `html` and `write` say it.
//!
//! Contract:
//! 1. Nothing is started before all that was typed has been found right.
//! 2. However it ends, no process and no file is left behind.
//! 3. A cell that crashes is a result like any other.
#![forbid(unsafe_code)]

mod arguments;
mod asked;
mod cell;
mod counters;
mod cpus;
mod guard;
mod hints;
mod html;
mod json;
mod options;
mod processes;
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
use running::Ground;
use screen::Screen;
use server::Kind;
use stop::Stop;
use verdict::Verdict;
use work::Done;

/// Wrong usage.
const USAGE: u8 = 2;
/// Lines are this long where there is no terminal to ask.
const WIDTH: usize = 100;

/// What can be typed after `firebrick tune`; the caller gives it its name and one line about it.
pub fn arguments(command: Command) -> Command {
    arguments::arguments(command)
}

/// Does what was typed.
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
    mistakes.iter().for_each(|mistake| complain(mistake));
    ExitCode::from(USAGE)
}

fn complain(what: &str) {
    // Where standard error is closed there is nobody to tell.
    let _ = writeln!(io::stderr().lock(), "firebrick tune: {what}");
}

fn tune(options: &Options) -> ExitCode {
    match measured_and_told(options) {
        Ok(code) => code,
        Err(why) => {
            complain(&why);
            ExitCode::FAILURE
        }
    }
}

/// Everything that a run knows before it begins.
struct Setting<'a> {
    options: &'a Options,
    machine: Machine,
    cpus: Cpus,
    budget: Budget,
    said: Vec<String>,
    servers: Vec<(Kind, String)>,
}

fn measured_and_told(options: &Options) -> Result<ExitCode, String> {
    let stop = Stop::on_signals().map_err(|error| format!("signals cannot be received: {error}"))?;
    let setting = setting(options);
    let program =
        std::env::current_exe().map_err(|error| format!("the program does not find itself: {error}"))?;
    let temp = tempfile::Builder::new().prefix(guard::FOLDER).tempdir();
    let temp = temp.map_err(|error| format!("no temporary folder can be made: {error}"))?;
    let guard = Guard::start(&program, temp.path())
        .map_err(|error| format!("{} cannot be started: {error}", program.display()))?;
    // The search judges by the same budget as the verdict.
    let asked = Options { budget: setting.budget, ..options.clone() };
    let ground = Ground {
        options: &asked,
        stop: &stop,
        guard: &guard,
        program: &program,
        temp: temp.path(),
        cpus: &setting.cpus,
    };
    let kinds: Vec<Kind> = setting.servers.iter().map(|(kind, _)| *kind).collect();
    let mut screen = Screen::new(options.output.quiet, options.output.json_only, kinds.len() > 1);
    screen.head(&head(&setting));
    let done = work::work(&ground, &kinds, &mut screen);
    drop(screen);
    drop(guard);
    told(&setting, &done)
}

fn setting(options: &Options) -> Setting<'_> {
    let machine = Machine::read();
    let (budget, mut said) = hints::fill(options.budget, &machine);
    let cpus = Cpus::divide(budget.cpus, machine.cores);
    if let Some(wanted) = budget.cpus.filter(|wanted| *wanted > cpus.all) {
        said.push(format!(
            "--cpus: this machine has {} of the {wanted}; the rest is extrapolated.",
            cpus.all
        ));
    }
    said.extend(hints::set_aside());
    let mut servers = Vec::new();
    for kind in &options.servers {
        match kind.version(&options.dir) {
            Ok(version) => servers.push((*kind, version)),
            Err(why) => said.push(format!("--against: {} is left out: {why}", kind.name())),
        }
    }
    Setting { options, machine, cpus, budget, said, servers }
}

/// What stands above the table.
fn head(setting: &Setting<'_>) -> Vec<String> {
    let options = setting.options;
    let cpus = if setting.cpus.server < setting.cpus.all {
        format!("{} of {} CPUs for the server", setting.cpus.server, setting.cpus.all)
    } else {
        format!("{} CPUs, shared with the load generator", setting.cpus.all)
    };
    let mut lines = vec![format!(
        "Tuning {} in {} mode: {}; {cpus}.",
        options.dir.display(),
        options.environment,
        asked::words(&options.asking)
    )];
    let others: Vec<String> =
        setting.servers.iter().skip(1).map(|(kind, version)| format!("{} {version}", kind.name())).collect();
    if !others.is_empty() {
        lines.push(format!("Against {}, in turn within each cell.", others.join(", ")));
    }
    for kind in setting.servers.iter().map(|(kind, _)| *kind).filter(|kind| !kind.limits().is_empty()) {
        lines.push(format!("Of {} there are only some cells: {}.", kind.name(), kind.limits()));
    }
    lines.extend(setting.said.iter().cloned());
    lines
}

fn told(setting: &Setting<'_>, done: &Done) -> Result<ExitCode, String> {
    let options = setting.options;
    let verdict = verdict::verdict(options, &setting.budget, done, hints::pool(&options.dir));
    let json = json::document(
        options,
        &setting.budget,
        &setting.machine,
        setting.cpus.server,
        &setting.servers,
        done,
        &verdict,
    )?;
    if options.output.json_only {
        say(&json);
    } else if done.measured.is_empty() {
        say("\nNothing was measured.\n");
    } else {
        say(&summary::text(&verdict, width()));
        say(&format!("\n{}\n", how_long(done)));
    }
    if let Some(path) = &options.output.json {
        save(path, &json)?;
    }
    if let Some(path) = &options.output.html {
        save(path, &html::page(options, &setting.budget, done, &verdict).to_html())?;
        remark(options, &format!("The report is in {}.\n", path.display()));
    }
    written(options, &verdict)?;
    let ran = done.measured.iter().any(|one| one.server == Kind::Firebrick && one.cell.rate_per_s > 0.0);
    Ok(if ran { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn written(options: &Options, verdict: &Verdict) -> Result<(), String> {
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
                remark(options, &format!("{name} is set and outweighs the file: change it too.\n"));
            }
            Ok(())
        }
        None => Err("--write: there is nothing to write, because nothing fits".to_owned()),
    }
}

/// For people; where only JSON is wanted it goes to standard error.
fn remark(options: &Options, text: &str) {
    if options.output.json_only {
        let _ = io::stderr().lock().write_all(text.as_bytes());
    } else {
        say(text);
    }
}

fn how_long(done: &Done) -> String {
    let seconds = table::figure(done.seconds);
    match done.candidates.saturating_sub(done.firm().len()) {
        0 => format!("It took {seconds} s."),
        open => format!("It took {seconds} s; {open} other shapes were judged without measuring them."),
    }
}

fn say(text: &str) {
    // Whoever reads may have seen enough (`| head`): that is no failure.
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

fn save(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: cannot be written: {error}", path.display()))
}

fn width() -> usize {
    let out = io::stdout();
    if !out.is_terminal() {
        return WIDTH;
    }
    terminal_size::terminal_size_of(out).map_or(WIDTH, |(width, _)| usize::from(width.0))
}
