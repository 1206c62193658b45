//! `--find`: searches the highest rate that holds objectives, and says what ends it.
//!
//! `evidence`, `search` and `cause` are pure; `target` sends the load.

mod cause;
mod evidence;
mod page;
mod report;
mod search;
#[cfg(test)]
mod simulation;
mod target;
mod text;
mod trial;

use std::process::ExitCode;

use load::inputs::condition::{Condition, Metric};

use crate::document::json;
use crate::invocation::{Format, Run};
use crate::objective::Wanted;
use crate::{Forms, fail, server_stats};
use report::Report;
use search::{Ending, Search};
use target::Server;

/// The wanted ratio of the ends of the interval, minus 1.
const ACCURACY: f64 = 0.03;
/// The share of the rate of one user at which the search begins: one seat is then mostly idle.
const BEGIN: f64 = 0.25;
/// The slowest rate at which a search begins, per second.
const SLOWEST: f64 = 0.5;

/// Searches, prints the result and returns the exit status.
pub(crate) fn find(run: &Run, wanted: &Wanted) -> ExitCode {
    let client = match run.control.as_deref().map(server_stats::client).transpose() {
        Ok(client) => client,
        Err(why) => return fail(&[why], 2),
    };
    if let Err(why) = client.as_ref().map(server_stats::snapshot).transpose() {
        return fail(&[why], 1);
    }
    let says = run.output.format == Format::Human && !run.output.quiet;
    let mut server = Server::new(run, wanted, client, says);
    if says {
        output::print(text::heading(run, wanted));
    }
    let alone = match server.alone() {
        Ok(alone) => alone,
        Err(why) => return fail(&[why], 1),
    };
    let start = wanted.start.unwrap_or_else(|| (alone.rate * BEGIN).max(SLOWEST));
    let mut search = Search::new(start, ACCURACY, &wanted.objectives);
    let ending = if alone.evidence.deviations(&wanted.objectives) <= -search::CERTAIN {
        Ok(Ending::NothingHolds)
    } else {
        search.run(&wanted.objectives, &mut server)
    };
    let ending = match ending {
        Ok(ending) => ending,
        Err(why) => return fail(&[why], 1),
    };
    let report = Report::new(run, wanted, &search, ending, &alone, server.findings());
    finish(run, &report)
}

fn finish(run: &Run, report: &Report) -> ExitCode {
    let output = &run.output;
    let broken: Vec<String> =
        run.conditions.iter().filter_map(|condition| verdict(condition, report)).collect();
    let forms = Forms {
        text: &|| match output.format {
            Format::Json => json(report),
            Format::Csv => Ok(text::csv(report)),
            _ => Ok(text::result(report)),
        },
        json: &|| json(report),
        csv: &|| text::csv(report),
        html: &|| page::page(report, &broken),
    };
    if let Err(mistakes) = forms.deliver(output, &broken) {
        return fail(&mistakes, 1);
    }
    match report.result.rate_per_s {
        Some(_) if broken.is_empty() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Returns a line if a condition of `--fail-if` is met; the command line allows only the rate.
fn verdict(condition: &Condition, report: &Report) -> Option<String> {
    let rate = report.result.rate_per_s.unwrap_or(0.0);
    let met = matches!(condition.metric, Metric::Rate) && condition.operator.holds(rate, condition.limit);
    met.then(|| format!("{}: it is {}", condition.text, ::report::Unit::PerSecond.show(rate)))
}
