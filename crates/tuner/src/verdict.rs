//! The evaluation of all cells: the app's profile, the recommendation, the other servers. The text, the JSON and the
//! HTML report are made from this value.

use planner::{Budget, Cell, LimitedBy, Profile, Recommendation, Shape, profile, recommend};

use crate::fibers::{self, FiberReport, Known};
use crate::hints::{self, Pool};
use crate::options::Options;
use crate::server::Kind;
use crate::table::figure;
use crate::work::{Measured, Results};

/// The evaluation.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    pub(crate) profile: Profile,
    pub(crate) recommendation: Recommendation,
    /// What to know before trusting the results.
    pub(crate) remarks: Vec<String>,
    /// Comparison with the other servers.
    pub(crate) others: Vec<String>,
    /// A remark on database connections.
    pub(crate) pool: Option<String>,
    /// What fibers gain, or why there are none.
    pub(crate) fibers: FiberReport,
}

/// Evaluates the results. Pure: the same cells give the same verdict.
pub(crate) fn verdict(options: &Options, budget: &Budget, done: &Results, pool: Option<Pool>) -> Verdict {
    let firm = done.firm();
    let usable = done.usable();
    let profile = profile(&usable);
    let mut recommendation = recommend(&firm, &done.predictions, budget);
    // If something was measured, predictions are recommended only if nothing measured fits.
    if recommendation.best.as_ref().is_some_and(|best| !best.measured) {
        let measured = recommend(&firm, &[], budget);
        if measured.best.is_some() {
            recommendation = measured;
        }
    }
    let best = recommendation.best.as_ref().map(|best| best.shape);
    let fibers = fibers::report(&Known {
        wanted: options.shapes.fibers.as_ref(),
        firm: &firm,
        usable: &usable,
        profile: &profile,
        budget,
        libraries: &done.libraries,
    });
    Verdict {
        fibers,
        remarks: remarks(options, done),
        others: others(done),
        pool: best.and_then(|shape| hints::about_pool(pool, shape)),
        profile,
        recommendation,
    }
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

/// The best cell of each other server, compared with Firebrick's.
fn others(done: &Results) -> Vec<String> {
    let best = |kind: Kind| {
        let cells =
            done.measured.iter().filter(|one| one.server == kind && !one.look && one.cell.crashed.is_none());
        cells.max_by(|a, b| a.cell.rate_per_s.total_cmp(&b.cell.rate_per_s)).map(|one| one.cell.clone())
    };
    let Some(ours) = best(Kind::Firebrick) else { return Vec::new() };
    [Kind::Puma, Kind::Unicorn, Kind::Webrick, Kind::Passenger]
        .into_iter()
        .filter_map(|kind| best(kind).map(|cell| (kind, cell)))
        .map(|(kind, cell)| compare(kind, &cell, &ours))
        .collect()
}

fn compare(kind: Kind, cell: &Cell, ours: &Cell) -> String {
    let memory = match (cell.pss_bytes, ours.pss_bytes) {
        (0, _) | (_, 0) => String::new(),
        (theirs, own) => format!(
            " and {} of memory (firebrick: {})",
            crate::table::size(theirs as f64),
            crate::table::size(own as f64)
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

/// The configuration for a shape, as files (or the environment) and their lines. Only one of them knows fibers.
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
