//! From what was typed to a plan. Everything is judged before the first connection is opened, and all mistakes are
//! shown together.

mod flags;
mod requests;
mod shown;
mod traffic;
mod transport;

use std::path::PathBuf;

use clap::ArgMatches;
use load::Plan;
use load::inputs::condition::{Condition, condition};

use crate::told::Told;
use flags::Flags;
pub(crate) use shown::{Format, Shown};

/// What is to be done.
pub(crate) enum Asked {
    /// Load a server.
    Run(Box<Run>),
    /// Join the files of runs.
    Merge {
        /// The files.
        files: Vec<PathBuf>,
        /// What is shown of them.
        shown: Shown,
        /// What makes the whole a failure.
        conditions: Vec<Condition>,
    },
}

/// A run and what becomes of it.
pub(crate) struct Run {
    /// For the engine.
    pub plan: Plan,
    /// For people and for the formats.
    pub told: Told,
    /// What is shown of it.
    pub shown: Shown,
    /// What makes it a failure.
    pub conditions: Vec<Condition>,
    /// Where the server is asked for its own figures.
    pub control: Option<String>,
    /// What the reader of the summary has to know about the input.
    pub remarks: Vec<String>,
}

/// Reads what was typed.
///
/// # Errors
/// Every mistake, one sentence each.
pub(crate) fn read(matches: &ArgMatches) -> Result<Asked, Vec<String>> {
    let mut flags = Flags::new(matches);
    let shown = shown::read(&mut flags);
    let conditions = flags.each("fail-if", condition);
    let files: Vec<PathBuf> = flags.texts("merge").map(PathBuf::from).collect();
    if !files.is_empty() {
        flags.only(
            &["merge", "fail-if", "format", "json", "csv", "html", "name", "quiet", "no-progress"],
            "--merge loads nothing",
        );
        return flags.finish(Asked::Merge { files, shown, conditions });
    }
    let control = flags.text("control").map(str::to_owned);
    let run = run(&mut flags, &shown);
    match run {
        Some((plan, told, remarks)) => {
            flags.finish(Asked::Run(Box::new(Run { plan, told, shown, conditions, control, remarks })))
        }
        None => Err(flags.into_mistakes()),
    }
}

/// `None` when there is a mistake that leaves nothing to run.
fn run(flags: &mut Flags<'_>, shown: &Shown) -> Option<(Plan, Told, Vec<String>)> {
    let asked = requests::read(flags);
    let transport = transport::read(flags, asked.as_ref().and_then(|asked| asked.unix.clone()));
    let timeouts = transport::timeouts(flags);
    let checks = transport::checks(flags, shown.format);
    let traffic = traffic::read(flags, asked.as_ref());
    let warm_up = flags.duration("warm-up").unwrap_or_default();
    let threads = flags.count("threads");
    let (asked, traffic) = (asked?, traffic?);
    let connections = connections(&traffic.traffic);
    let threads = threads.unwrap_or_else(default_threads).min(connections).max(1);
    let mut told = Told {
        connections,
        threads,
        warm_up_s: warm_up.as_secs_f64(),
        duration_s: traffic.stop.after.map(|after| after.as_secs_f64()),
        requests: traffic.stop.requests,
        rounds: traffic.stop.rounds,
        traffic: traffic.told,
        timeout_ms: timeouts.request.as_secs_f64() * 1e3,
        ..Told::default()
    };
    told.describe_requests(&asked.shown, &asked.requests);
    told.describe_transport(&transport);
    let plan = Plan {
        requests: asked.requests,
        order: traffic.order,
        traffic: traffic.traffic,
        stop: traffic.stop,
        warm_up,
        transport,
        timeouts,
        checks,
        threads,
        cookies: flags.is_set("cookies"),
        stages: !flags.is_set("no-stages"),
    };
    Some((plan, told, asked.remarks))
}

fn connections(traffic: &load::plan::Traffic) -> usize {
    match traffic {
        load::plan::Traffic::Closed { users, .. } => *users,
        load::plan::Traffic::Open { connections, .. } | load::plan::Traffic::Replay { connections, .. } => {
            *connections
        }
    }
}

/// Half of the cores: the other half is the server's, which often runs beside.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).div_ceil(2).min(4)
}

#[cfg(test)]
mod tests;
