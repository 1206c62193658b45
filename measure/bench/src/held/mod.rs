//! `--sse` and `--ws`: holds connections, prints the results and returns the exit status.

mod page;
mod report;
mod text;

use std::process::ExitCode;

use load::Flow;
use load::held::HoldOutcome;
use load::inputs::condition::{Condition, Figure, Metric, View};

use crate::conditions::line;
use crate::document::json;
use crate::figures::per_second;
use crate::interrupt::Interrupt;
use crate::invocation::{Format, HoldRun};
use crate::live::Live;
use crate::{Forms, fail};
use report::Report;

pub(crate) fn hold(held: HoldRun) -> ExitCode {
    let HoldRun { plan, urls, output, conditions } = held;
    let mut report = Report::new(output.name.clone(), urls, &plan);
    let (interrupt, mut live) = (Interrupt::listen(), Live::new(output.progress));
    let ended = load::held::run(plan, &mut |progress| {
        live.draw_held(progress);
        if interrupt.requested() { Flow::Stop } else { Flow::Continue }
    });
    live.clear();
    report.outcome = match ended {
        Ok(outcome) => outcome,
        Err(why) => return fail(&[why], 1),
    };
    report.summarize();
    let broken: Vec<String> = conditions.iter().filter_map(|condition| verdict(condition, &report)).collect();
    let forms = Forms {
        text: &|| match output.format {
            Format::Json => json(&report),
            Format::Csv => Ok(text::csv(&report.outcome)),
            _ => Ok(text::summary(&report)),
        },
        json: &|| json(&report),
        csv: &|| text::csv(&report.outcome),
        html: &|| page::page(&report, &broken),
    };
    if let Err(mistakes) = forms.deliver(&output, &broken) {
        return fail(&mistakes, 1);
    }
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns a line if a condition of `--fail-if` is met, or has no value.
fn verdict(condition: &Condition, report: &Report) -> Option<String> {
    let outcome = &report.outcome;
    let Some(found) = figure(condition.metric, report) else {
        let missing = match condition.metric {
            Metric::Time(View::Latency, _) if report.is_web_socket() => "no reply came",
            Metric::Time(View::Latency, _) => "no event came",
            _ => "there were no attempts",
        };
        return Some(format!("{}: no value, because {missing}", condition.text));
    };
    line(condition, found).filter(|_| outcome.opened > 0)
}

/// Returns the value: times are round trips, without messages the times to the first event; `connect.` those until a
/// connection was open. Without a reply in time counts as an error and as a time-out.
fn figure(metric: Metric, report: &Report) -> Option<f64> {
    let outcome = &report.outcome;
    let errors = (outcome.error_count() + outcome.unanswered) as f64;
    match metric {
        Metric::Time(view, figure) => time(view, figure, outcome, report.is_web_socket()),
        Metric::Errors => Some(errors),
        Metric::ErrorShare => {
            let all = (outcome.opened + outcome.sent) as f64 + outcome.error_count() as f64;
            (all > 0.0).then(|| 100.0 * errors / all)
        }
        Metric::Timeouts => Some((outcome.timeouts + outcome.unanswered) as f64),
        Metric::Rate => Some(per_second(outcome.received, outcome.seconds)),
        Metric::Requests => Some(outcome.received as f64),
        Metric::Differences => None,
    }
}

fn time(view: View, figure: Figure, outcome: &HoldOutcome, is_web_socket: bool) -> Option<f64> {
    let histogram = match view {
        View::Connect => &outcome.open_us,
        _ if is_web_socket => &outcome.round_trip_us,
        _ => &outcome.first_us,
    };
    if histogram.is_empty() { None } else { Some(crate::conditions::of(histogram, figure)) }
}
