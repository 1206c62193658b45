//! The evaluation of all cells: the app's profile, the recommendation, the other servers. The text, the JSON
//! and the HTML report are made from this value.

use planner::{Budget, Cell, LimitedBy, Prediction, Profile, Recommendation, Shape, profile, recommend};

use crate::fibers::{self, FiberReport, FiberReportInput};
use crate::figures::figure;
use crate::hints::{self, Pool};
use crate::options::Options;
use crate::results::{Measured, Results};
use crate::server::ServerKind;

#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    pub(crate) profile: Profile,
    pub(crate) recommendation: Recommendation,
    /// Whether other programs used the CPU during most measurements, which then say nothing about the app.
    pub(crate) disturbed: bool,
    /// Facts that affect the trust in the results.
    pub(crate) remarks: Vec<String>,
    /// Comparison with the other servers.
    pub(crate) others: Vec<String>,
    /// A remark on database connections.
    pub(crate) pool: Option<String>,
    /// The gain of fibers, or why there are none.
    pub(crate) fibers: FiberReport,
}

/// Evaluates the results. Pure: the same cells give the same verdict.
pub(crate) fn verdict(options: &Options, budget: &Budget, done: &Results, pool: Option<Pool>) -> Verdict {
    let firm = done.firm();
    let usable = done.usable();
    let profile = profile(&usable);
    let disturbed = done.noise().filter(|_| !options.output.noisy);
    let recommendation = recommendation(&firm, &done.predictions, budget, disturbed.as_deref());
    let best = recommendation.best.as_ref().map(|best| best.shape);
    let fibers = fibers::report(&FiberReportInput {
        wanted: options.shapes.fibers.as_ref(),
        firm: &firm,
        usable: &usable,
        profile: &profile,
        budget,
        libraries: &done.libraries,
    });
    Verdict {
        fibers,
        disturbed: disturbed.is_some(),
        remarks: remarks(options, done),
        others: others(done),
        pool: best.and_then(|shape| hints::about_pool(pool, shape)),
        profile,
        recommendation,
    }
}

/// Returns the best of the measured shapes. A shape that is only predicted is never recommended, because a
/// plot of the measurements may refute it.
fn recommendation(
    firm: &[Cell],
    predictions: &[Prediction],
    budget: &Budget,
    disturbed: Option<&str>,
) -> Recommendation {
    let mut found = recommend(firm, &[], budget);
    if let Some(why) = disturbed {
        return Recommendation {
            best: None,
            reasons: vec![why.to_owned()],
            runners_up: Vec::new(),
            rejected: found.rejected,
        };
    }
    if found.best.is_none()
        && let Some(hope) = recommend(firm, predictions, budget).best
    {
        let Shape { processes, threads, .. } = hope.shape;
        found.reasons.push(format!(
            "{} may fit: that is predicted from other shapes, not measured. Measure it with -w {processes} -t {threads}.",
            hope.shape
        ));
    }
    found
}

fn remarks(options: &Options, done: &Results) -> Vec<String> {
    let mut remarks = Vec::new();
    let firm: Vec<&Measured> = done.measured.iter().filter(|one| !one.look).collect();
    let shapes = |of: &dyn Fn(&Measured) -> bool| -> String {
        let names: Vec<String> =
            firm.iter().filter(|one| of(one)).map(|one| one.cell.shape().to_string()).collect();
        names.join(", ")
    };
    if done.stopped {
        remarks.push("Stopped early: these are the results so far.".to_owned());
    }
    let load = shapes(&|one| one.cell.limited_by == Some(LimitedBy::LoadGenerator));
    if !load.is_empty() {
        remarks.push(format!("With {load} the load generator was the bottleneck: the server can do more than the table shows. Load it from another machine, with `firebrick bench`."));
    }
    let machine = shapes(&|one| one.cell.limited_by == Some(LimitedBy::Machine));
    if !machine.is_empty() {
        remarks.push(format!("While {machine} ran, other programs used much of the CPU: these results are too low. Measure again when the machine is idle."));
    }
    let spread = shapes(&|one| one.cell.spread > one.wanted_spread);
    if !spread.is_empty() {
        remarks.push(format!("The parts of {spread} still differ by more than {:.0} % after {} repeats; smaller differences between cells are not significant.", options.shapes.spread * 100.0, options.shapes.repeats));
    }
    let wrong: (u64, u64) = firm.iter().fold((0, 0), |(wrong, all), one| {
        (wrong + one.cell.errors, all + one.cell.errors + one.cell.requests)
    });
    if wrong.0 > 0 {
        let text = firm.iter().filter(|one| one.cell.errors > 0).find_map(|one| one.error_text.clone());
        let most = text.map(|text| format!(", mostly: {text}")).unwrap_or_default();
        remarks.push(format!(
            "{} of {} requests failed{most}. Failed requests count only in the last column.",
            wrong.0, wrong.1
        ));
    }
    if firm.iter().any(|one| one.redirects) {
        remarks.push("Some responses are redirects, whose targets were not measured. If the app requires HTTPS, add --header 'X-Forwarded-Proto: https'; if it requires a login, add a session cookie; otherwise use another --path.".to_owned());
    }
    remarks
}

/// Returns the best cell of each other server, compared with Firebrick's.
fn others(done: &Results) -> Vec<String> {
    let best = |kind: ServerKind| {
        let cells =
            done.measured.iter().filter(|one| one.server == kind && !one.look && one.cell.crashed.is_none());
        cells.max_by(|a, b| a.cell.rate_per_s.total_cmp(&b.cell.rate_per_s)).map(|one| one.cell.clone())
    };
    let Some(ours) = best(ServerKind::Firebrick) else { return Vec::new() };
    [ServerKind::Puma, ServerKind::Unicorn, ServerKind::Webrick, ServerKind::Passenger]
        .into_iter()
        .filter_map(|kind| best(kind).map(|cell| (kind, cell)))
        .map(|(kind, cell)| compare(kind, &cell, &ours))
        .collect()
}

fn compare(kind: ServerKind, cell: &Cell, ours: &Cell) -> String {
    let memory = match (cell.pss_bytes, ours.pss_bytes) {
        (0, _) | (_, 0) => String::new(),
        (theirs, own) => format!(
            " and {} of memory (firebrick: {})",
            crate::figures::size(theirs as f64),
            crate::figures::size(own as f64)
        ),
    };
    let cpu = match (cell.cpu_per_request_ms(), ours.cpu_per_request_ms()) {
        (Some(theirs), Some(own)) => {
            format!(", {} ms of CPU per request (firebrick: {} ms)", figure(theirs), figure(own))
        }
        _ => String::new(),
    };
    format!(
        "{}'s best is {}: {} requests/s (firebrick's is {}: {}){cpu}{memory}.",
        kind.name(),
        cell.shape(),
        figure(cell.rate_per_s),
        ours.shape(),
        figure(ours.rate_per_s)
    )
}

/// Returns the configuration for a shape, as files (or the environment) and their lines. Only firebrick.toml
/// supports fibers.
pub(crate) fn lines_for(shape: Shape) -> Vec<(&'static str, String)> {
    let Shape { processes, threads, fibers } = shape;
    let ours = format!("workers = {processes}\nthreads = {threads}");
    if fibers > 0 {
        return vec![("firebrick.toml", format!("{ours}\nfibers = {fibers}"))];
    }
    let puma = match processes {
        1 => format!("workers 0\nthreads {threads}, {threads}"),
        _ => format!("workers {processes}\nthreads {threads}, {threads}\npreload_app!"),
    };
    vec![
        ("firebrick.toml", ours),
        ("config/puma.rb", puma),
        ("environment", format!("WEB_CONCURRENCY={processes}\nRAILS_MAX_THREADS={threads}")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::{Bottleneck, Estimate, Times};

    fn measured(processes: u32, rate_per_s: f64, p95: f64, limited_by: Option<LimitedBy>) -> Measured {
        let latency_ms = Times { mean: p95 / 2.0, p50: p95 / 2.0, p95, p99: p95, ..Times::default() };
        let cell = Cell {
            processes,
            threads: 5,
            requests: 600,
            rate_per_s,
            latency_ms,
            limited_by,
            ..Cell::default()
        };
        Measured {
            server: ServerKind::Firebrick,
            undisturbed: cell.clone(),
            cell,
            look: false,
            wanted_spread: 0.1,
            error_text: None,
            redirects: false,
        }
    }

    fn cells(measured: &[Measured]) -> Vec<Cell> {
        measured.iter().map(|one| one.cell.clone()).collect()
    }

    fn predicted(processes: u32, rate: f64, p95: f64) -> Prediction {
        Prediction {
            processes,
            threads: 5,
            fibers: 0,
            users: 30,
            rate_per_s: Estimate { value: rate, low: rate, high: rate },
            latency_ms: Times { mean: p95 / 2.0, p50: p95 / 2.0, p95, p99: p95, ..Times::default() },
            pss_bytes: Estimate { value: 0.0, low: 0.0, high: 0.0 },
            cpu_cores: 1.0,
            bottleneck: Bottleneck::Cores,
        }
    }

    #[test]
    fn what_is_only_predicted_is_never_recommended() {
        let known = cells(&[measured(1, 153.0, 150.0, None), measured(2, 181.0, 160.0, None)]);
        let slo = |text: &str| Budget { slo: Some(text.parse().expect("an objective")), ..Budget::default() };
        let found = recommendation(&known, &[predicted(3, 363.0, 90.0)], &slo("p95<200ms"), None);
        assert_eq!(found.best.map(|best| (best.shape, best.measured)), Some((Shape::new(2, 5), true)));
        let found = recommendation(&known, &[predicted(3, 363.0, 90.0)], &slo("p95<100ms"), None);
        assert_eq!(found.best, None);
        assert!(
            found.reasons.iter().any(|why| why.contains("Measure it with -w 3 -t 5")),
            "{:?}",
            found.reasons
        );
    }

    #[test]
    fn nothing_is_recommended_on_a_machine_that_others_use() {
        let noisy = |limits: &[Option<LimitedBy>]| {
            let measured = limits.iter().map(|limit| measured(1, 100.0, 10.0, *limit)).collect();
            Results { measured, ..Results::default() }.noise()
        };
        let machine = Some(LimitedBy::Machine);
        assert_eq!(noisy(&[machine]), None, "one measurement is no reason to stop");
        assert_eq!(noisy(&[machine, machine, None, None]), None);
        let why = noisy(&[machine, machine, None]).expect("two of three");
        assert!(why.contains("during 2 of 3 measurements"), "{why}");
        let found =
            recommendation(&cells(&[measured(1, 100.0, 10.0, machine)]), &[], &Budget::default(), Some(&why));
        assert_eq!((found.best, found.reasons), (None, vec![why]));
    }

    #[test]
    fn lines_of_each_file() {
        let lines = lines_for(Shape::new(2, 5));
        let [firebrick, puma, environment] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!(firebrick.1, "workers = 2\nthreads = 5");
        assert_eq!(puma.1, "workers 2\nthreads 5, 5\npreload_app!");
        assert_eq!(environment.1, "WEB_CONCURRENCY=2\nRAILS_MAX_THREADS=5");
        let fibers = lines_for(Shape::new(2, 1).with_fibers(300));
        assert_eq!(fibers, [("firebrick.toml", "workers = 2\nthreads = 1\nfibers = 300".to_owned())]);
        assert!(lines_for(Shape::new(1, 5))[1].1.starts_with("workers 0\n"));
    }
}
