//! The causes that end a rate: findings about the first rate that misses the objectives, and advice that a figure
//! supports.
//!
//! Pure. Without figures about a resource nothing is said about it.

use ::report::Unit;
use load::Outcome;

use super::trial::Trial;
use crate::description::Description;
use crate::figures::percentile_ms;
use crate::stages::split;

/// From this busy share on, CPUs are used up; below the second, they have room for more threads.
const USED_UP: f64 = 0.92;
const ROOM: f64 = 0.75;
/// Requests are late whose times from when they were due exceed those from when they were sent by this factor.
const LATE: f64 = 1.5;
/// Below this part of the busy CPUs, other programs are the main user.
const OWN: f64 = 0.5;
/// From this share of its time on, a part is the main part of a request.
const MAIN: f64 = 0.5;
/// From this share of the app's time on, waiting for the GVL is worth more processes.
const GVL: f64 = 0.3;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Cause {
    /// Sentences without the final period.
    pub findings: Vec<String>,
    pub advice: Vec<String>,
}

/// The shares of a step, where they are known.
#[derive(Debug, Clone, Copy, Default)]
struct Shares {
    /// Busy CPUs of the machine or server, 0 to 1.
    cpu: Option<f64>,
    /// The part of them that server and load generator use.
    own: Option<f64>,
    /// Seats that serve a request, all seats, and requests that wait.
    seats: Option<(u64, u64, u64)>,
    /// The queue's part of the response time at the objective's percentile.
    queue: Option<f64>,
    /// Waiting for the GVL, as a part of the time in the app.
    gvl: Option<f64>,
    /// Requests refused with 503.
    refused: u64,
}

/// Returns whether the server runs on this machine.
pub(crate) fn is_local(description: &Description) -> bool {
    let here = |host: &str| {
        host == "localhost"
            || ["127.", "unix:", "[::1]"].iter().any(|start| host.starts_with(start))
            || host == "::1"
    };
    here(description.connect_to.as_deref().unwrap_or(&description.host))
}

/// Returns whether requests were sent late although connections were free.
pub(crate) fn is_late(trial: &Trial) -> bool {
    let at = |histogram: &load::Histogram| histogram.value_at_quantile(0.95) as f64;
    let (due, sent) = (at(&trial.outcome.latency), at(&trial.outcome.service));
    trial.outcome.crowded == 0 && due > sent * LATE + 1_000.0
}

/// Returns whether other programs take the CPUs that the load generator needs. The step then says nothing about the server.
pub(crate) fn is_displaced(trial: &Trial) -> bool {
    let busy = trial.idle.map(|idle| 1.0 - idle);
    is_late(trial) && busy.zip(own(trial)).is_some_and(|(busy, own)| busy >= USED_UP && own < busy * OWN)
}

/// Finds out what ended the rate. `percentile` is the one of the objective; `local`: the server shares this machine.
pub(crate) fn cause(trial: &Trial, percentile: f64, local: bool) -> Cause {
    let outcome = &trial.outcome;
    let total = percentile_ms(&outcome.latency, percentile);
    let found = outcome.stages.as_ref().and_then(|stages| split(stages, percentile, total));
    let mut cause = Cause::default();
    if let Some(found) = &found {
        cause.findings.push(format!("p{percentile} {}", found.sentence()));
    }
    let app = found.as_ref().map(|found| found.app + found.gvl.unwrap_or(0.0)).filter(|app| *app > 0.0);
    let shares = Shares {
        cpu: cpu(trial, local),
        own: if local { own(trial) } else { cpu(trial, local) },
        seats: trial.server.as_ref().map(|server| seats(&server.after)),
        queue: found.as_ref().filter(|found| found.total > 0.0).map(|found| found.queue / found.total),
        gvl: found.as_ref().and_then(|found| found.gvl).zip(app).map(|(gvl, app)| gvl / app),
        refused: outcome.statuses.get(&503).copied().unwrap_or(0),
    };
    describe(&mut cause, shares, trial.server.is_some(), local, outcome);
    cause
}

/// Returns the busy share of the CPUs that the server may use.
fn cpu(trial: &Trial, local: bool) -> Option<f64> {
    if local && let Some(idle) = trial.idle {
        return Some(1.0 - idle);
    }
    let server = trial.server.as_ref()?;
    let took = server.after.uptime() - server.before.uptime();
    let used = server.after.total_cpu_ms().checked_sub(server.before.total_cpu_ms())? as f64 / 1e3;
    (took > 0.0 && server.after.cores > 0.0).then(|| (used / took / server.after.cores).min(1.0))
}

/// Returns the share of this machine's CPUs that server and load generator use: by the server's statistics, or by what it reports of its responses,
/// without the front. `None` if the server tells neither.
fn own(trial: &Trial) -> Option<f64> {
    let outcome = &trial.outcome;
    let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    let told = || {
        let bands = &outcome.stages.as_ref()?.bands;
        let (sum, count) =
            bands.iter().fold((0, 0), |(sum, count), band| (sum + band.cpu.0, count + band.cpu.1));
        (count > 0 && outcome.seconds > 0.0)
            .then(|| sum as f64 / count as f64 / 1e6 * outcome.ok as f64 / outcome.seconds)
    };
    let asked = trial.server.as_ref().and_then(|server| {
        let took = server.after.uptime() - server.before.uptime();
        let used = server.after.total_cpu_ms().checked_sub(server.before.total_cpu_ms())? as f64 / 1e3;
        (took > 0.0).then(|| used / took)
    });
    let generator = outcome.cpu_seconds / outcome.seconds.max(1e-3);
    asked.or_else(told).map(|server| ((server + generator) / cores).min(1.0))
}

fn seats(server: &stats::ServerSnapshot) -> (u64, u64, u64) {
    let busy = server.workers.iter().map(|worker| u64::from(worker.busy_threads)).sum();
    let all = server.workers.iter().map(|worker| u64::from(worker.threads_max)).sum();
    (busy, all, server.queue.length)
}

fn describe(cause: &mut Cause, shares: Shares, asked: bool, local: bool, outcome: &Outcome) {
    let show = |share: f64| Unit::Fraction.show(share);
    let all_busy = shares.seats.is_some_and(|(busy, all, _)| all > 0 && busy >= all);
    if let Some((busy, all, waiting)) = shares.seats {
        cause.findings.push(format!(
            "{busy} of {all} threads of the workers were busy, {waiting} requests were waiting"
        ));
    }
    let others = shares.cpu.zip(shares.own).is_some_and(|(cpu, own)| own < cpu * OWN);
    if let Some(cpu) = shares.cpu {
        let whose = if local { "this machine's CPUs" } else { "the server's CPUs" };
        let with = match (local, shares.own) {
            (true, Some(own)) => format!(", {} by server and load generator", show(own.min(cpu))),
            _ => String::new(),
        };
        cause.findings.push(format!("{} of {whose} were busy{with}", show(cpu)));
    }
    if shares.refused > 0 {
        let share = shares.refused as f64 / outcome.sent.max(1) as f64;
        cause.findings.push(format!("the server refused {} of the requests with 503", show(share)));
    }
    if outcome.crowded > 0 && outcome.errors.unsent > 0 {
        cause.findings.push("all connections of the load generator were in use (-c)".to_owned());
    }
    if others {
        // The processor time of other programs says nothing about the server.
        return;
    }
    let waits = shares.queue.is_some_and(|queue| queue >= MAIN) || (asked && all_busy);
    match (shares.cpu, shares.gvl) {
        (Some(cpu), _) if cpu >= USED_UP && shares.own.is_some() => {
            let whose = if local { "this machine's CPUs (server and load generator together)" } else { "the server's CPUs" };
            cause.advice.push(format!(
                "{whose} are used up ({} busy): less work per request or more cores; `firebrick plan` computes how many",
                show(cpu)
            ));
        }
        (Some(cpu), Some(gvl)) if gvl >= GVL && cpu < ROOM => cause.advice.push(format!(
            "requests wait for the GVL for {} of their time in the app while CPUs are {} used: more workers rather than more threads; `firebrick tune` measures it",
            show(gvl),
            show(cpu)
        )),
        (Some(cpu), _) if waits && cpu < ROOM => cause.advice.push(format!(
            "requests wait for a seat while CPUs are {} used: more threads or workers; `firebrick tune` measures it",
            show(cpu)
        )),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn trial(idle: Option<f64>, stages: bool) -> Trial {
        let mut outcome = samples::outcome();
        if !stages {
            outcome.stages = None;
        }
        Trial { rate: 100.0, outcome, idle, server: None }
    }

    fn advised(shares: Shares) -> Vec<String> {
        let mut cause = Cause::default();
        describe(&mut cause, shares, false, true, &samples::outcome());
        cause.advice
    }

    #[test]
    fn without_figures_there_is_no_advice() {
        assert_eq!(cause(&trial(None, false), 95.0, true), Cause::default());
        let unknown = cause(&trial(None, true), 95.0, true);
        assert!(unknown.advice.is_empty() && unknown.findings[0].starts_with("p95 "), "{unknown:?}");
        assert!(advised(Shares { cpu: Some(0.4), queue: Some(0.1), ..Shares::default() }).is_empty());
        assert!(advised(Shares { cpu: Some(0.85), queue: Some(0.9), ..Shares::default() }).is_empty());
    }

    #[test]
    fn the_resource_that_ends_it_is_named() {
        let of = |cpu: f64, queue: f64, gvl: f64| {
            advised(Shares {
                cpu: Some(cpu),
                own: Some(cpu),
                queue: Some(queue),
                gvl: Some(gvl),
                ..Shares::default()
            })
            .join("")
        };
        assert!(of(0.4, 0.9, 0.0).contains("40 % used: more threads or workers"), "{}", of(0.4, 0.9, 0.0));
        assert!(of(0.5, 0.9, 0.6).contains("more workers rather than more threads"));
        assert!(of(0.98, 0.9, 0.6).contains("used up (98 % busy)"));
        let others = Shares { cpu: Some(0.98), own: Some(0.2), queue: Some(0.9), ..Shares::default() };
        assert!(advised(others).is_empty());
    }
}
