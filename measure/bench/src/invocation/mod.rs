//! Turns the command line into a scenario. Everything is validated before the first connection is opened, and
//! all errors are reported together.

mod find;
mod flags;
mod held;
mod output;
mod requests;
mod traffic;
mod transport;
mod workers;

use std::path::PathBuf;

use clap::ArgMatches;
use load::Scenario;
use load::inputs::condition::{Condition, condition};
use load::scenario::{Checks, Part};

use crate::description::Description;
use crate::objective::Wanted;
use crate::workers::Where;
use flags::Flags;
pub(crate) use held::HoldRun;
pub(crate) use output::{Format, Output};

/// The task.
pub(crate) enum Invocation {
    Run(Box<Run>),
    /// Hold event streams or WebSockets.
    Held(Box<HoldRun>),
    /// Take part in a coordinator's run.
    Join {
        /// The coordinator's address.
        address: String,
        /// The secret that both sides must know.
        token: String,
        scenario: Box<Scenario>,
        /// The description that the coordinator compares with its own.
        description: Box<Description>,
    },
    Merge {
        files: Vec<PathBuf>,
        output: Output,
        /// The conditions under which the result is a failure.
        conditions: Vec<Condition>,
    },
}

pub(crate) struct Run {
    pub scenario: Scenario,
    pub description: Description,
    pub output: Output,
    /// The conditions under which the run is a failure.
    pub conditions: Vec<Condition>,
    /// The control socket or app folder of the server whose statistics are read.
    pub control: Option<String>,
    /// The number of processes.
    pub workers: usize,
    /// The place of the processes.
    pub place: Where,
    /// Remarks on the input for the summary.
    pub remarks: Vec<String>,
    /// The search in place of one run (`--find`).
    pub find: Option<Wanted>,
}

/// Parses the command line.
///
/// # Errors
/// All mistakes, one sentence each.
pub(crate) fn read(matches: &ArgMatches) -> Result<Invocation, Vec<String>> {
    let mut flags = Flags::new(matches);
    let output = output::read(&mut flags);
    let conditions = flags.each("fail-if", condition);
    let files: Vec<PathBuf> = flags.texts("merge").map(PathBuf::from).collect();
    if !files.is_empty() {
        flags.only(
            &["merge", "fail-if", "format", "json", "csv", "html", "name", "quiet", "no-progress"],
            "--merge sends nothing",
        );
        return flags.finish(Invocation::Merge { files, output, conditions });
    }
    if let Some(held) = held::kind(&mut flags) {
        return match held::read(&mut flags, held, output, conditions) {
            Some(held) => flags.finish(Invocation::Held(Box::new(held))),
            None => Err(flags.into_mistakes()),
        };
    }
    let find = find::read(&mut flags, &output, &conditions);
    let control = flags.text("control").map(str::to_owned);
    if !workers::can_read_inputs(&mut flags) {
        return Err(flags.into_mistakes());
    }
    let workers = workers::count(&mut flags);
    let run = run(&mut flags, &output, workers);
    if let Some((address, token)) = workers::join(&mut flags) {
        return match run {
            Some((scenario, description, _)) => flags.finish(Invocation::Join {
                address,
                token,
                scenario: Box::new(scenario),
                description: Box::new(description),
            }),
            None => Err(flags.into_mistakes()),
        };
    }
    let place = workers::place(&mut flags);
    match run {
        Some((scenario, description, remarks)) => flags.finish(Invocation::Run(Box::new(Run {
            scenario,
            description,
            output,
            conditions,
            control,
            workers,
            place,
            remarks,
            find,
        }))),
        None => Err(flags.into_mistakes()),
    }
}

/// Reads a run; `None` if mistakes leave nothing to run.
fn run(
    flags: &mut Flags<'_>,
    output: &Output,
    workers: usize,
) -> Option<(Scenario, Description, Vec<String>)> {
    let requests = requests::read(flags);
    let transport = transport::read(flags, requests.as_ref().and_then(|requests| requests.unix.clone()));
    if let Some(requests) = &requests {
        transport::http3(flags, &transport, &requests.requests);
    }
    let timeouts = transport::timeouts(flags);
    let checks = transport::checks(flags, output.format);
    let traffic = traffic::read(flags, requests.as_ref());
    let warm_up = flags.duration("warm-up").unwrap_or_default();
    let threads = flags.count("threads");
    let (requests, traffic) = (requests?, traffic?);
    let checks = Checks { recorded: requests.recorded.clone(), ..checks };
    let connections = connections(&traffic.traffic);
    let each = connections.div_ceil(workers);
    let threads = threads.unwrap_or_else(|| default_threads() / workers).min(each).max(1);
    let mut description = Description {
        connections,
        threads,
        workers,
        warm_up_s: warm_up.as_secs_f64(),
        duration_s: traffic.stop.after.map(|after| after.as_secs_f64()),
        requests: traffic.stop.requests,
        rounds: traffic.stop.rounds,
        traffic: traffic.description,
        timeout_ms: timeouts.request.as_secs_f64() * 1e3,
        ..Description::default()
    };
    description.describe_requests(&requests.shown, &requests.requests);
    if let Some(journey) = &requests.journey {
        description.describe_journey(flags.text("journey").unwrap_or_default(), journey.steps.len());
        if !matches!(output.format, Format::Human | Format::Json | Format::Csv) {
            flags.mistake("--format: the formats of ab, siege and wrk cannot show a journey: expected human, json or csv");
        }
    }
    description.describe_transport(&transport);
    let scenario = Scenario {
        requests: requests.requests,
        order: traffic.order,
        traffic: traffic.traffic,
        stop: traffic.stop,
        warm_up,
        transport,
        timeouts,
        checks,
        threads,
        cookies: flags.is_set("cookies") || requests.journey.is_some(),
        stages: !flags.is_set("no-stages"),
        journey: requests.journey,
        part: Part::default(),
    };
    if workers > 1 {
        workers::fit(flags, &scenario, workers);
        description.threads =
            workers::parts(workers).map(|part| scenario.clone().in_part(part).threads).sum();
    }
    Some((scenario, description, requests.remarks))
}

fn connections(traffic: &load::scenario::Traffic) -> usize {
    match traffic {
        load::scenario::Traffic::Closed { users, .. } => *users,
        load::scenario::Traffic::Open { connections, .. }
        | load::scenario::Traffic::Replay { connections, .. } => *connections,
    }
}

/// Returns half of the cores: the server often runs on the same machine and gets the other half.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).div_ceil(2).min(4)
}

#[cfg(test)]
mod tests;
