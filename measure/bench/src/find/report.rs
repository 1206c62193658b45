//! The result of a search, for all formats; the JSON of `--find`.

use serde::Serialize;

use super::cause::{Cause, cause, is_late, is_local};
use super::evidence::Evidence;
use super::search::{Ending, Search, Tried};
use super::trial::{Alone, Findings, Trial};
use crate::description::Description;
use crate::invocation::Run;
use crate::objective::Wanted;
use crate::objective::{Goal, Objective};
use crate::validity::BUSY;

/// The document that `--format json` and `--json` write.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub kind: &'static str,
    pub version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The load; its rate is what is searched.
    pub plan: Description,
    pub objectives: Vec<String>,
    pub within_s: f64,
    /// The time that the search took.
    pub seconds: f64,
    pub result: Result,
    /// The figures of one user alone.
    pub alone: AloneRow,
    /// One per rate, by rising rate.
    pub steps: Vec<StepRow>,
    /// Sentences about the lowest rate that misses the objectives: why the server holds no more.
    pub findings: Vec<String>,
    pub advice: Vec<String>,
    pub notes: Vec<String>,
    /// The limit of time for plots, in milliseconds, and its text.
    #[serde(skip)]
    pub limits: Vec<(f64, String)>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Result {
    /// The highest rate that held all objectives; null if none did.
    pub rate_per_s: Option<f64>,
    /// The lowest rate above it that did not.
    pub missed_per_s: Option<f64>,
    /// The limit lies between these; null where no rate was clear enough.
    pub from_per_s: Option<f64>,
    pub to_per_s: Option<f64>,
    /// `found`, `time`, `nothing_holds`, `load_generator`, `interrupted`, `not_recovered`.
    pub ended: &'static str,
}

#[derive(Debug, Serialize)]
pub(crate) struct AloneRow {
    pub rate_per_s: f64,
    pub p50_ms: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct StepRow {
    pub rate_per_s: f64,
    /// Good responses.
    pub requests: u64,
    pub errors: u64,
    pub mean_ms: Option<f64>,
    pub p50_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    /// The objectives' own figures.
    pub objectives: Vec<Value>,
    pub holds: bool,
    /// By how many standard deviations the objectives hold; negative if not.
    pub deviations: f64,
    /// By how many requests per second the queue grew.
    pub growth_per_s: Option<f64>,
    /// The load generator could not keep the rate.
    pub limited: bool,
    /// The objectives that were missed.
    pub missed: String,
}

/// The figure of one objective with its 95 % interval; null is slower than every response, because too many failed.
#[derive(Debug, Serialize)]
pub(crate) struct Value {
    pub objective: String,
    /// `ms`, or `share` for errors.
    pub unit: &'static str,
    pub value: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

impl Report {
    pub fn new(
        run: &Run,
        wanted: &Wanted,
        search: &Search,
        ending: Ending,
        alone: &Alone,
        seen: Findings,
    ) -> Report {
        let objectives = &wanted.objectives;
        let (low, high) = search.ends();
        let (from, to) = search.interval();
        let first = high.and_then(|high| seen.trials.iter().rev().find(|trial| trial.rate == high.rate));
        let Cause { findings, advice } = match (high, first) {
            (Some(high), Some(trial)) if !high.limited => {
                cause(trial, percentile(high, objectives), is_local(&run.description))
            }
            _ => Cause::default(),
        };
        let mut notes = notes(ending, high, first);
        notes.extend(seen.remarks);
        Report {
            kind: "firebrick bench --find",
            version: 1,
            name: run.output.name.clone(),
            plan: run.description.clone(),
            objectives: objectives.iter().map(|objective| objective.text.clone()).collect(),
            within_s: wanted.within.as_secs_f64(),
            seconds: seen.seconds,
            result: Result {
                rate_per_s: low.map(|tried| tried.rate),
                missed_per_s: high.map(|tried| tried.rate),
                from_per_s: from,
                to_per_s: to,
                ended: ended(ending),
            },
            alone: AloneRow { rate_per_s: alone.rate, p50_ms: alone.p50_ms },
            steps: search.tried.iter().map(|tried| row(tried, objectives)).collect(),
            findings,
            advice,
            notes,
            limits: limits(objectives),
        }
    }
}

fn limits(objectives: &[Objective]) -> Vec<(f64, String)> {
    let timed = objectives.iter().filter_map(|one| Some((one.goal.limit_us()? / 1e3, one.text.clone())));
    timed.collect()
}

/// Returns the percentile of the objective that was missed most.
fn percentile(tried: &Tried, objectives: &[Objective]) -> f64 {
    match tried.evidence.tightest(objectives).map(|objective| objective.goal) {
        Some(Goal::Quantile { beyond, .. }) => ((1.0 - beyond) * 1e5).round() / 1e3,
        _ => 95.0,
    }
}

fn ended(ending: Ending) -> &'static str {
    match ending {
        Ending::Found => "found",
        Ending::TimeOver => "time",
        Ending::NothingHolds => "nothing_holds",
        Ending::Generator => "load_generator",
        Ending::Interrupted => "interrupted",
        Ending::Unsettled => "not_recovered",
    }
}

fn notes(ending: Ending, high: Option<&Tried>, first: Option<&Trial>) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(
        match ending {
            Ending::Found | Ending::NothingHolds | Ending::Generator => None,
            Ending::TimeOver => {
                Some("the time was over before the interval was narrow enough: --within 3m gives it more")
            }
            Ending::Interrupted => {
                Some("the search was interrupted: the result is that of the rates tried so far")
            }
            Ending::Unsettled => {
                Some("the search ended early, because the server twice did not recover from an overload")
            }
        }
        .map(str::to_owned),
    );
    if high.is_some_and(|high| high.limited) {
        let why = match first {
            Some(trial) if trial.outcome.busy < BUSY => {
                "other programs use this machine's CPUs, so that the load generator was late: the result says little about the server; run bench when the machine is quiet"
            }
            _ => {
                "the load generator was the limit, the server can do more: use more threads (-t), or run bench on another machine"
            }
        };
        notes.push(why.to_owned());
    }
    if high.is_some_and(|high| !high.limited) && first.is_some_and(is_late) {
        notes.push("the load generator was late at the first rate that misses the objectives: this machine may be too busy to say how much the server holds".to_owned());
    }
    notes
}

fn row(tried: &Tried, objectives: &[Objective]) -> StepRow {
    let evidence = &tried.evidence;
    let at = |share: f64| evidence.quantile(share).map(|us| us / 1e3);
    StepRow {
        rate_per_s: tried.rate,
        requests: evidence.good(),
        errors: evidence.failed(),
        mean_ms: evidence.mean().map(|us| us / 1e3),
        p50_ms: at(0.5),
        p95_ms: at(0.95),
        p99_ms: at(0.99),
        objectives: objectives.iter().map(|objective| value(evidence, objective)).collect(),
        holds: tried.holds(),
        deviations: tried.deviations,
        growth_per_s: tried.growth,
        limited: tried.limited,
        missed: tried.missed(objectives),
    }
}

pub(crate) fn value(evidence: &Evidence, objective: &Objective) -> Value {
    let time = |us: Option<f64>| us.map(|us| us / 1e3);
    let (unit, value, (low, high)) = match objective.goal {
        Goal::Quantile { beyond, .. } => {
            let (low, high) = evidence.quantile_interval(1.0 - beyond);
            ("ms", time(evidence.quantile(1.0 - beyond)), (time(low), time(high)))
        }
        Goal::Mean { .. } => ("ms", time(evidence.mean()), (None, None)),
        Goal::Errors { .. } => {
            let all = (evidence.good() + evidence.failed()).max(1) as f64;
            ("share", Some(evidence.failed() as f64 / all), (None, None))
        }
    };
    Value { objective: objective.text.clone(), unit, value, low, high }
}
