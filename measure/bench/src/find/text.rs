//! The search as text: a heading, a line per step while it runs, and the result.

use std::fmt::Write as _;

use ::report::Unit;

use super::report::{Report, Value, value};
use super::search::Tried;
use super::trial::Alone;
use crate::invocation::Run;
use crate::objective::Objective;
use crate::objective::Wanted;
use crate::text::wrapped;

pub(super) fn heading(run: &Run, wanted: &Wanted) -> String {
    let all: Vec<&str> = wanted.objectives.iter().map(|objective| objective.text.as_str()).collect();
    let name = run.output.name.as_ref().map(|name| format!("{name}\n")).unwrap_or_default();
    let heads: String =
        wanted.objectives.iter().map(|objective| format!("{:>12}", column(objective))).collect();
    format!(
        "{name}Searching the highest rate at {} {} that holds {}, for at most {}\n\n  {:>10} {:>8} {:>9} {:>8}{heads}\n",
        run.description.method,
        run.description.target(),
        all.join(" and "),
        Unit::Seconds.show(wanted.within.as_secs_f64()),
        "rate",
        "time",
        "requests",
        "errors"
    )
}

/// Returns the name of an objective's figure.
fn column(objective: &Objective) -> String {
    objective.text.split(['<', '=']).next().unwrap_or_default().to_owned()
}

pub(super) fn alone(alone: &Alone, objectives: &[Objective]) -> String {
    let values: String =
        objectives.iter().map(|one| format!("{:>12}", shown(&value(&alone.evidence, one)))).collect();
    format!(
        "  {:>10} {:>8} {:>9} {:>8}{values}   one user alone\n",
        Unit::PerSecond.show(alone.rate),
        "",
        Unit::Count.show(alone.evidence.good() as f64),
        Unit::Count.show(alone.evidence.failed() as f64)
    )
}

fn shown(value: &Value) -> String {
    match (value.unit, value.value) {
        (_, None) => "failed".to_owned(),
        ("share", Some(share)) => format!("{} %", Unit::Number.show(share * 100.0)),
        (_, Some(ms)) => Unit::Milliseconds.show(ms),
    }
}

pub(super) fn step(seconds: f64, tried: &Tried, objectives: &[Objective]) -> String {
    let values: String =
        objectives.iter().map(|one| format!("{:>12}", shown(&value(&tried.evidence, one)))).collect();
    let verdict = match (tried.limited, tried.growth, tried.holds()) {
        (true, ..) => "the load generator did not keep up".to_owned(),
        (_, Some(growth), _) => format!("the queue grows by {}", Unit::PerSecond.show(growth)),
        (_, None, true) if tried.deviations < 2.0 => "probably holds".to_owned(),
        (_, None, true) => "holds".to_owned(),
        (_, None, false) => format!("misses {}", tried.missed(objectives)),
    };
    format!(
        "  {:>10} {:>8} {:>9} {:>8}{values}   {verdict}\n",
        Unit::PerSecond.show(tried.rate),
        format!("{seconds:.1} s"),
        Unit::Count.show(tried.evidence.good() as f64),
        Unit::Count.show(tried.evidence.failed() as f64)
    )
}

pub(super) fn result(report: &Report) -> String {
    let mut out = format!("\n{}\n", wrapped(&format!("{}.", sentence(report))));
    let mut add = |heading: &str, lines: &[String]| {
        for line in lines {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{}", wrapped(&format!("{heading}{line}.")));
        }
    };
    add("  ", &report.findings);
    add("Advice: ", &report.advice);
    add("Note: ", &report.notes);
    out
}

/// Returns the result as a sentence without the final period.
pub(super) fn sentence(report: &Report) -> String {
    let rate = |rate: f64| Unit::PerSecond.show(rate);
    let wanted = report.objectives.join(" and ");
    let found = &report.result;
    let Some(held) = found.rate_per_s else {
        if found.ended == "load_generator" {
            return format!("No rate was tried that could hold {wanted}: the load generator did not keep up");
        }
        let alone = Unit::Milliseconds.show(report.alone.p50_ms);
        return match found.missed_per_s {
            Some(lowest) => format!(
                "No rate holds {wanted}: {} misses it. One user alone waits {alone} (p50)",
                rate(lowest)
            ),
            None if found.ended == "nothing_holds" => {
                format!("No rate holds {wanted}: one user alone misses it, with p50 {alone}")
            }
            None => format!("No rate was tried long enough to hold {wanted}"),
        };
    };
    let range = match (found.from_per_s, found.to_per_s) {
        (Some(from), Some(to)) => format!(" (the limit lies between {} and {})", rate(from), rate(to)),
        (None, Some(to)) => format!(" (the limit lies below {})", rate(to)),
        (Some(from), None) => format!(" (the limit lies above {})", rate(from)),
        (None, None) => String::new(),
    };
    let above = match found.missed_per_s {
        Some(above) => format!("; just above, at {}:", rate(above)),
        None => String::new(),
    };
    let above = if report.findings.is_empty() { String::new() } else { above };
    format!("{} hold {wanted}{range}{above}", rate(held)).trim_end_matches(':').to_owned()
}

/// Returns one line per rate.
pub(super) fn csv(report: &Report) -> String {
    let mut out = String::from("rate_per_s,requests,errors,mean_ms,p50_ms,p95_ms,p99_ms,holds\n");
    let time = |ms: Option<f64>| ms.map(|ms| format!("{ms:.3}")).unwrap_or_default();
    for row in &report.steps {
        let _ = writeln!(
            out,
            "{:.3},{},{},{},{},{},{},{}",
            row.rate_per_s,
            row.requests,
            row.errors,
            time(row.mean_ms),
            time(row.p50_ms),
            time(row.p95_ms),
            time(row.p99_ms),
            row.holds
        );
    }
    out
}
