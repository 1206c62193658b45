//! The report on fibers: their gain over threads, or why they were not tried.

use planner::{Budget, Cell, Choice, Profile, fibers};
use serde::Serialize;

use crate::figures::{figure, size};
use crate::libraries::Library;
use crate::options::Fibers;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FiberOutcome {
    /// Fibers are clearly better than threads.
    Gain,
    /// Fibers are not better.
    NoGain,
    /// The app waits too little for them.
    Computes,
    /// The app holds the GVL while it waits.
    HoldsLock,
    /// A library forbids fibers, or the Ruby has none.
    Forbidden,
    /// The server did not run with fibers.
    DidNotRun,
    /// Fibers were not requested.
    NotTried,
    /// There are too few measurements.
    Unknown,
}

/// A comparison of fibers with threads.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct FiberReport {
    pub(crate) outcome: FiberOutcome,
    /// The share of a request's time that it waits; `None` if unknown.
    pub(crate) waiting: Option<f64>,
    /// The best measured shape with fibers.
    pub(crate) with: Option<Choice>,
    /// The best measured shape without fibers.
    pub(crate) without: Option<Choice>,
    pub(crate) libraries: Vec<Library>,
    /// The report as sentences.
    pub(crate) words: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct FiberReportInput<'a> {
    /// The requested fibers.
    pub(crate) wanted: Option<&'a Fibers>,
    pub(crate) firm: &'a [Cell],
    pub(crate) usable: &'a [Cell],
    pub(crate) profile: &'a Profile,
    pub(crate) budget: &'a Budget,
    pub(crate) libraries: &'a [Library],
}

/// Evaluates the cells. Pure.
pub(crate) fn report(known: &FiberReportInput<'_>) -> FiberReport {
    let waiting = fibers::waiting(known.usable, known.profile);
    let (with, without) = fibers::rivals(known.firm, known.budget);
    let outcome = outcome(known, with.as_ref(), without.as_ref(), waiting);
    let mut report = FiberReport {
        outcome,
        waiting,
        with,
        without,
        libraries: known.libraries.to_vec(),
        words: Vec::new(),
    };
    report.words = words(&report, known);
    report
}

fn outcome(
    known: &FiberReportInput<'_>,
    with: Option<&Choice>,
    without: Option<&Choice>,
    waiting: Option<f64>,
) -> FiberOutcome {
    match (with, without) {
        (Some(with), Some(without)) if with.gains_over(without, known.budget) => return FiberOutcome::Gain,
        (Some(_), Some(_)) => return FiberOutcome::NoGain,
        (Some(_), None) => return FiberOutcome::Unknown,
        (None, _) => {}
    }
    let ran = known.firm.iter().any(|cell| cell.crashed.is_none());
    if forbids(known.libraries).is_some() || (ran && known.libraries.is_empty()) {
        FiberOutcome::Forbidden
    } else if known.firm.iter().any(|cell| cell.fibers > 0 && cell.crashed.is_some()) {
        FiberOutcome::DidNotRun
    } else if waiting.is_none() {
        FiberOutcome::Unknown
    } else if known.profile.kind == planner::AppKind::LockHog {
        FiberOutcome::HoldsLock
    } else if !fibers::worth_a_try(known.usable, known.profile) {
        FiberOutcome::Computes
    } else {
        FiberOutcome::NotTried
    }
}

fn forbids(libraries: &[Library]) -> Option<&Library> {
    libraries.iter().find(|library| library.forbids())
}

fn words(report: &FiberReport, known: &FiberReportInput<'_>) -> Vec<String> {
    let fitted = if report.outcome == FiberOutcome::Computes { known.profile.waiting } else { 1.0 };
    let waits = percent(report.waiting.unwrap_or(0.0).min(fitted));
    let mut words = match report.outcome {
        FiberOutcome::Gain | FiberOutcome::NoGain => compared(report, known),
        FiberOutcome::Computes => vec![format!(
            "No fibers: the app computes. A request waits for {waits} of its time, and fibers help only where requests wait."
        )],
        FiberOutcome::HoldsLock => vec![
            "No fibers: the app holds the GVL while it waits, which would stop all fibers of a thread."
                .to_owned(),
        ],
        FiberOutcome::Forbidden => vec![match forbids(known.libraries) {
            Some(library) => format!("No fibers, because of {}: {}.", library.name, library.text),
            None => "No fibers: the app's Ruby cannot serve with them.".to_owned(),
        }],
        FiberOutcome::DidNotRun => {
            let cells = known.firm.iter().filter(|cell| cell.fibers > 0);
            let why = cells.filter_map(|cell| cell.crashed.as_deref()?.lines().next()).next();
            vec![format!("With fibers the server did not run: {}.", why.unwrap_or("no reason is known"))]
        }
        FiberOutcome::NotTried => {
            let how = match known.wanted {
                Some(Fibers::Off) => "without --fibers off they are measured",
                _ => "add --fibers auto to measure them",
            };
            vec![format!(
                "Fibers were not measured. A request waits for {waits} of its time, so they may help: {how}."
            )]
        }
        FiberOutcome::Unknown if report.without.is_some() => vec![
            "Whether fibers would help is unknown: one thread on its own shows how long a request waits (--threads 1), or try them (--fibers 100).".to_owned(),
        ],
        FiberOutcome::Unknown => return Vec::new(),
    };
    if !matches!(report.outcome, FiberOutcome::Computes | FiberOutcome::HoldsLock | FiberOutcome::Forbidden) {
        words.extend(known.libraries.iter().filter_map(Library::weakens));
    }
    words
}

fn compared(report: &FiberReport, known: &FiberReportInput<'_>) -> Vec<String> {
    let (Some(with), Some(without)) = (&report.with, &report.without) else { return Vec::new() };
    let gains = if report.outcome == FiberOutcome::Gain { "Fibers gain" } else { "Fibers gain nothing" };
    let mut words = vec![format!(
        "{gains}: {}, {}; without fibers {}, {} ({}).",
        with.shape,
        figures(with),
        without.shape,
        figures(without),
        differences(with, without)
    )];
    let users = known.usable.iter().map(|cell| cell.users).max().unwrap_or(0);
    if report.outcome == FiberOutcome::NoGain && users > 0 {
        words.push(format!(
            "They pay where more requests wait at a time than the {users} of this load: measure with more, such as -c {}.",
            (users * 10).min(10_000)
        ));
    }
    words
}

/// Formats figures such as "5,600 requests/s, p99 60 ms, 41.2 MiB".
fn figures(choice: &Choice) -> String {
    let p99 = choice.latency_ms.p99;
    let times = if p99 > 0.0 { format!(", p99 {} ms", figure(p99)) } else { String::new() };
    let memory = if choice.pss_bytes > 0.0 { format!(", {}", size(choice.pss_bytes)) } else { String::new() };
    format!("{} requests/s{times}{memory}", figure(choice.rate_per_s))
}

/// Formats differences such as "+250 % requests/s, -40 % p99, +3 % memory".
fn differences(with: &Choice, without: &Choice) -> String {
    let change = |now: f64, before: f64, what: &str| {
        (now > 0.0 && before > 0.0).then(|| format!("{:+.0} % {what}", (now / before - 1.0) * 100.0))
    };
    let all = [
        change(with.rate_per_s, without.rate_per_s, "requests/s"),
        change(with.latency_ms.p99, without.latency_ms.p99, "p99"),
        change(with.pss_bytes, without.pss_bytes, "memory"),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::{Shape, profile};

    /// Returns a cell of an app with requests of 50 ms, `cpu_ms` of them on the CPU.
    fn cell(shape: Shape, rate_per_s: f64, cpu_ms: f64) -> Cell {
        Cell {
            processes: shape.processes,
            threads: shape.threads,
            fibers: shape.fibers,
            users: 64,
            requests: 600,
            rate_per_s,
            app_ms: Some(50.0),
            cpu_ms: Some(cpu_ms),
            cpu_cores: Some(rate_per_s * cpu_ms / 1_000.0),
            cores: Some(2.0),
            pss_bytes: 40 << 20,
            ..Cell::default()
        }
    }

    fn library(with_fibers: &str) -> Library {
        Library { name: "x".to_owned(), with_fibers: with_fibers.to_owned(), text: "does it".to_owned() }
    }

    fn told(cells: &[Cell], libraries: &[Library], wanted: Option<&Fibers>) -> (FiberOutcome, String) {
        let profile = profile(cells);
        let budget = Budget::default();
        let found = report(&FiberReportInput {
            wanted,
            firm: cells,
            usable: cells,
            profile: &profile,
            budget: &budget,
            libraries,
        });
        (found.outcome, found.words.join("\n"))
    }

    #[test]
    fn every_outcome_has_a_sentence() {
        let (one, some) = (cell(Shape::new(1, 1), 20.0, 0.1), cell(Shape::new(1, 8), 160.0, 0.1));
        let fibers = cell(Shape::new(1, 1).with_fibers(100), 1_200.0, 0.1);
        let waits = [library("waits")];
        let (outcome, words) = told(&[one.clone(), some.clone(), fibers.clone()], &[library("stops")], None);
        assert_eq!(outcome, FiberOutcome::Gain);
        assert!(words.contains("+650 % requests/s") && words.contains("With fibers, x does it."), "{words}");
        let slower = Cell { rate_per_s: 150.0, ..fibers.clone() };
        let (outcome, words) = told(&[one.clone(), some.clone(), slower], &waits, None);
        assert_eq!(outcome, FiberOutcome::NoGain);
        assert!(words.contains("Fibers gain nothing") && words.contains("-c 640"), "{words}");
        let (outcome, words) = told(&[one.clone(), some.clone()], &waits, None);
        assert_eq!(outcome, FiberOutcome::NotTried);
        assert!(words.contains("--fibers auto"), "{words}");
        let (outcome, words) = told(&[one.clone(), some.clone()], &[library("forbids")], None);
        assert_eq!((outcome, words.as_str()), (FiberOutcome::Forbidden, "No fibers, because of x: does it."));
        assert_eq!(told(&[one.clone(), some.clone()], &[], None).0, FiberOutcome::Forbidden);
        let crashed = Cell { crashed: Some("too many maps\nlog".to_owned()), ..fibers };
        let (outcome, words) = told(&[one, some, crashed], &waits, Some(&Fibers::Auto));
        assert_eq!(outcome, FiberOutcome::DidNotRun);
        assert!(words.contains("did not run: too many maps."), "{words}");
        let busy = [cell(Shape::new(1, 1), 20.0, 49.5), cell(Shape::new(1, 8), 20.0, 49.5)];
        let (outcome, words) = told(&busy, &waits, None);
        assert_eq!(outcome, FiberOutcome::Computes);
        assert!(words.starts_with("No fibers: the app computes."), "{words}");
        assert_eq!(told(&[], &[], None), (FiberOutcome::Unknown, String::new()));
        let open = Cell { users: 0, ..cell(Shape::new(1, 4), 80.0, 0.1) };
        let (outcome, words) = told(&[open], &waits, None);
        assert_eq!(outcome, FiberOutcome::Unknown);
        assert!(words.contains("--threads 1"), "{words}");
    }
}
