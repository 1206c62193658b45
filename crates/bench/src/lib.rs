//! `firebrick bench`: loads a server and says what came back.
//!
//! From flags to a [`load::Plan`] (`asked`), to a run (`load::run`), to a document of everything that was seen
//! (`document`), to whatever shows it (`text`, `page`). Nothing is connected to before everything that was typed has
//! been judged.
#![forbid(unsafe_code)]

mod arguments;
mod asked;
mod conditions;
mod document;
mod figures;
mod interrupt;
mod join;
mod limit;
mod live;
mod page;
#[cfg(test)]
mod samples;
mod stages;
mod text;
mod told;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{ArgMatches, Command};
use load::inputs::condition::{Condition, Metric, View};
use load::{Outcome, Verdict};

use asked::{Asked, Run, Shown};
use document::{Document, Server};
use interrupt::Interrupt;
use live::Live;

/// What can be typed after `firebrick bench`; the caller gives it its name and one line about it.
pub fn arguments(command: Command) -> Command {
    arguments::arguments(command)
}

/// Does what was typed.
pub fn run(matches: &ArgMatches) -> ExitCode {
    match asked::read(matches) {
        Ok(Asked::Run(run)) => load_server(*run),
        Ok(Asked::Merge { files, shown, conditions }) => match document::joined(&files) {
            Ok(mut document) => {
                document.name = shown.name.clone().or(document.name);
                finish(&document, &shown, &conditions, &[])
            }
            Err(mistakes) => complain(&mistakes, 2),
        },
        Err(mistakes) => complain(&mistakes, 2),
    }
}

fn complain(mistakes: &[String], code: u8) -> ExitCode {
    for mistake in mistakes {
        say(&format!("firebrick bench: {mistake}"));
    }
    if code == 2 {
        say("`firebrick bench --help` shows what can be given.");
    }
    ExitCode::from(code)
}

/// A line on standard error. Whoever has closed it does not want to know.
fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

fn load_server(run: Run) -> ExitCode {
    let client = match run.control.as_deref().map(join::client).transpose() {
        Ok(client) => client,
        Err(why) => return complain(&[why], 2),
    };
    let before = match client.as_ref().map(join::snapshot).transpose() {
        Ok(before) => before,
        Err(why) => return complain(&[why], 1),
    };
    let outcome = match watched(&run) {
        Ok(outcome) => outcome,
        Err(why) => return complain(&[why], 1),
    };
    // A server that did not survive the run is worth a word, and the run still counts.
    let mut remarks = run.remarks;
    let after = client.as_ref().map(join::snapshot).transpose().unwrap_or_else(|why| {
        remarks.push(format!("the server could not be asked after the run: {why}"));
        None
    });
    let server = before.zip(after).map(|(before, after)| Server { before, after });
    let document = Document::new(run.shown.name.clone(), run.told, outcome, server);
    finish(&document, &run.shown, &run.conditions, &remarks)
}

/// The run, with a live screen where there is one.
fn watched(run: &Run) -> Result<Outcome, String> {
    let interrupt = Interrupt::listen();
    let mut live = Live::new(run.shown.progress);
    load::run(&run.plan, &mut |progress| {
        live.draw(progress);
        if interrupt.came() { Verdict::End } else { Verdict::Go }
    })
}

/// Shows and writes what came back, and judges it.
fn finish(document: &Document, shown: &Shown, conditions: &[Condition], remarks: &[String]) -> ExitCode {
    let broken = conditions::met(conditions, &document.outcome);
    if let Err(mistakes) = write_files(document, shown, conditions, &broken, remarks) {
        return complain(&mistakes, 1);
    }
    if !shown.quiet {
        match text::render(document, shown.format, remarks) {
            // Whoever reads may have seen enough (`| head`): that is no failure.
            Ok(text) => drop(io::stdout().lock().write_all(text.as_bytes())),
            Err(why) => return complain(&[why], 1),
        }
    }
    for line in &broken {
        say(&format!("firebrick bench: failed: {line}"));
    }
    if document.outcome.ok == 0 {
        say(&format!("firebrick bench: there was no right answer{}", first_error(&document.outcome)));
        return ExitCode::FAILURE;
    }
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn first_error(outcome: &Outcome) -> String {
    let most = outcome.errors.texts.iter().max_by_key(|(_, count)| **count);
    most.map(|(text, _)| format!(": {text}")).unwrap_or_default()
}

fn write_files(
    document: &Document,
    shown: &Shown,
    conditions: &[Condition],
    broken: &[String],
    remarks: &[String],
) -> Result<(), Vec<String>> {
    let mut mistakes = Vec::new();
    let mut write = |path: &Option<std::path::PathBuf>, text: &dyn Fn() -> Result<String, String>| {
        let Some(path) = path else {
            return;
        };
        let written = text()
            .and_then(|text| std::fs::write(path, text).map_err(|why| format!("{}: {why}", path.display())));
        mistakes.extend(written.err());
    };
    write(&shown.json, &|| document.to_json());
    write(&shown.csv, &|| Ok(text::csv_lines(document)));
    write(&shown.html, &|| Ok(page::page(document, &limits(conditions), broken, remarks)));
    if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
}

/// The times among the conditions, in milliseconds: they are drawn as lines.
fn limits(conditions: &[Condition]) -> Vec<(f64, String)> {
    let times =
        conditions.iter().filter(|condition| matches!(condition.metric, Metric::Time(View::Latency, _)));
    times.map(|condition| (condition.limit / 1e3, condition.text.clone())).collect()
}
