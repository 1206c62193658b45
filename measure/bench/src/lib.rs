//! `firebrick bench`: loads a server and reports the results.
//!
//! A run: flags become a [`load::Scenario`] (`invocation`), which is run (`load::run`); the results become a
//! document (`document`), which is printed (`text`, `page`). No connection is opened before the whole command
//! line is validated.
#![forbid(unsafe_code)]

mod arguments;
mod conditions;
mod description;
mod document;
mod figures;
mod find;
mod held;
mod interrupt;
mod invocation;
mod live;
mod objective;
mod page;
#[cfg(test)]
mod samples;
mod server_stats;
mod stages;
mod text;
mod validity;
mod workers;

use std::process::ExitCode;

use clap::{ArgMatches, Command};
use load::inputs::condition::{Condition, Metric, View};
use load::{Flow, Outcome};

use document::{Document, Server};
use interrupt::Interrupt;
use invocation::{Invocation, Output, Run};
use live::Live;
use workers::{Loaded, Where};

/// Adds the arguments of `firebrick bench`; the caller sets name and description.
pub fn arguments(command: Command) -> Command {
    arguments::arguments(command)
}

pub fn run(matches: &ArgMatches) -> ExitCode {
    match invocation::read(matches) {
        Ok(Invocation::Run(run)) => match workers::part() {
            Some(part) => workers::serve(run.scenario, part),
            None => match &run.find {
                Some(wanted) => find::find(&run, wanted),
                None => load_server(*run),
            },
        },
        Ok(Invocation::Held(held)) => held::hold(*held),
        Ok(Invocation::Join { address, token, scenario, description }) => {
            match workers::serve_coordinator(&address, token, *scenario, &description) {
                Ok(()) => ExitCode::SUCCESS,
                Err(why) => fail(&[why], 1),
            }
        }
        Ok(Invocation::Merge { files, output, conditions }) => match document::joined(&files) {
            Ok(mut document) => {
                document.name = output.name.clone().or(document.name);
                finish(&document, &output, &conditions, &[])
            }
            Err(mistakes) => fail(&mistakes, 2),
        },
        Err(mistakes) => fail(&mistakes, 2),
    }
}

fn fail(mistakes: &[String], code: u8) -> ExitCode {
    for mistake in mistakes {
        print_error(&format!("firebrick bench: {mistake}"));
    }
    if code == 2 {
        print_error("See `firebrick bench --help`.");
    }
    ExitCode::from(code)
}

/// Writes a line to standard error, ignoring errors.
fn print_error(line: &str) {
    output::complain(line);
}

fn load_server(run: Run) -> ExitCode {
    let client = match run.control.as_deref().map(server_stats::client).transpose() {
        Ok(client) => client,
        Err(why) => return fail(&[why], 2),
    };
    let before = match client.as_ref().map(server_stats::snapshot).transpose() {
        Ok(before) => before,
        Err(why) => return fail(&[why], 1),
    };
    let loaded = match (run.workers, &run.place) {
        (1, Where::Here) => {
            load_with_progress(&run).map(|outcome| Loaded { outcome, incomplete: Vec::new(), threads: None })
        }
        (workers, place) => workers::load(workers, place, &run.description, run.output.progress),
    };
    let Loaded { outcome, incomplete, threads } = match loaded {
        Ok(loaded) => loaded,
        Err(why) => return fail(&[why], 1),
    };
    // If the server did not survive the run, the report says so, and the run still counts.
    let mut remarks = run.remarks;
    let after = client.as_ref().map(server_stats::snapshot).transpose().unwrap_or_else(|why| {
        remarks.push(format!("cannot read the server's statistics after the run: {why}"));
        None
    });
    let server = before.zip(after).map(|(before, after)| Server { before, after });
    let mut description = run.description;
    description.threads = threads.unwrap_or(description.threads);
    let mut document = Document::new(run.output.name.clone(), description, outcome, server);
    document.incomplete = incomplete;
    finish(&document, &run.output, &run.conditions, &remarks)
}

/// Runs the load, with live progress on a terminal.
fn load_with_progress(run: &Run) -> Result<Outcome, String> {
    let interrupt = Interrupt::listen();
    let mut live = Live::new(run.output.progress);
    load::run(&run.scenario, &mut |progress| {
        live.draw(progress);
        if interrupt.requested() { Flow::Stop } else { Flow::Continue }
    })
}

/// Prints and writes the results, and determines the exit status.
fn finish(document: &Document, output: &Output, conditions: &[Condition], remarks: &[String]) -> ExitCode {
    let broken = conditions::met(conditions, &document.outcome);
    let forms = Forms {
        text: &|| text::render(document, output.format, remarks),
        json: &|| document.to_json(),
        csv: &|| text::csv_lines(document),
        html: &|| page::page(document, &limits(conditions), &broken, remarks),
    };
    if let Err(mistakes) = forms.deliver(output, &broken) {
        return fail(&mistakes, 1);
    }
    for line in &document.incomplete {
        print_error(&format!("firebrick bench: incomplete: {line}"));
    }
    if document.outcome.ok == 0 {
        print_error(&format!("firebrick bench: no successful response{}", first_error(&document.outcome)));
        return ExitCode::FAILURE;
    }
    if broken.is_empty() && document.incomplete.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn first_error(outcome: &Outcome) -> String {
    let most = outcome.errors.texts.iter().max_by_key(|(_, count)| **count);
    most.map(|(text, _)| format!(": {text}")).unwrap_or_default()
}

/// The forms of a result. Each is made only if it is wanted.
struct Forms<'a> {
    /// The form that is printed.
    text: &'a dyn Fn() -> Result<String, String>,
    json: &'a dyn Fn() -> Result<String, String>,
    csv: &'a dyn Fn() -> String,
    html: &'a dyn Fn() -> String,
}

impl Forms<'_> {
    /// Writes the wanted files, prints the result, and names the conditions that are met.
    ///
    /// # Errors
    /// A line for each form that cannot be made or written.
    fn deliver(&self, output: &Output, broken: &[String]) -> Result<(), Vec<String>> {
        let mut mistakes = Vec::new();
        let mut write = |path: &Option<std::path::PathBuf>, text: &dyn Fn() -> Result<String, String>| {
            let Some(path) = path else {
                return;
            };
            let written = text().and_then(|text| {
                std::fs::write(path, text).map_err(|why| format!("{}: {why}", path.display()))
            });
            mistakes.extend(written.err());
        };
        write(&output.json, self.json);
        write(&output.csv, &|| Ok((self.csv)()));
        write(&output.html, &|| Ok((self.html)()));
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        if !output.quiet {
            output::print((self.text)().map_err(|why| vec![why])?);
        }
        for line in broken {
            print_error(&format!("firebrick bench: failed: {line}"));
        }
        Ok(())
    }
}

/// Returns the latency limits among the conditions, in milliseconds, to be drawn as lines.
fn limits(conditions: &[Condition]) -> Vec<(f64, String)> {
    let times =
        conditions.iter().filter(|condition| matches!(condition.metric, Metric::Time(View::Latency, _)));
    times.map(|condition| (condition.limit / 1e3, condition.text.clone())).collect()
}
