//! Facts from a running server: its history of the last hour, or the requests while it is observed.

use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

use control::client::{ControlClient, explain};
use planner::Seats;
use planner::bill::{Improvement, RouteShare};
use planner::format::{figure, millis};
use serde::Deserialize;
use settings::{Argument, ControlAddress, ProcessEnvironment, WithoutSecrets};
use stats::{DurationSummary, Interval, RouteSnapshot, RoutesSnapshot, ServerSnapshot, WorkerSnapshot};

use super::SourceWish;
use crate::sourced::{Memory, SourceFacts, Sourced};

/// Fewer requests give unreliable rates and times.
const FEW: u64 = 100;

/// Queries the server with control address `text`.
pub(super) fn query(text: &str, asked: SourceWish) -> Result<SourceFacts, String> {
    let address = ControlAddress::from_str(text).map_err(|_| {
        format!("`{text}` is not a control address; expected tcp://HOST:PORT, unix://PATH or a path")
    })?;
    let token = asked
        .token
        .clone()
        .or_else(|| std::env::var("FIREBRICK_CONTROL_TOKEN").ok().filter(|token| !token.is_empty()));
    let client = ControlClient::new(address, token);
    observe(&client, &format!("the server on {}", client.address()), &asked)
        .map_err(|error| error.to_string())
}

/// Queries the server of the app in `dir`.
pub(super) fn query_folder(dir: &Path, asked: SourceWish) -> Result<SourceFacts, String> {
    let folder = Argument { key: "dir", flag: "--from".to_owned(), values: vec![dir.display().to_string()] };
    let loaded = settings::load(&[folder], &WithoutSecrets(&ProcessEnvironment))
        .map_err(|errors| errors.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    let off = || format!("the control socket of the server in {} is disabled", dir.display());
    let control = loaded.settings.control.ask.clone().ok_or_else(off)?;
    let client = ControlClient::new(control, asked.token.clone().or(loaded.settings.control.token.clone()));
    observe(&client, &format!("the server in {}", dir.display()), &asked)
        .map_err(|error| explain(&error, dir))
}

fn observe(
    client: &ControlClient,
    source: &str,
    asked: &SourceWish,
) -> Result<SourceFacts, control::client::Error> {
    let mut found = SourceFacts { source: source.to_owned(), ..SourceFacts::default() };
    let before = client.stats()?;
    if asked.routes {
        routes(&client.routes()?, &mut found);
    }
    if let Some(look_ms) = asked.look_ms {
        let begun = Instant::now();
        std::thread::sleep(Duration::from_secs_f64(look_ms / 1_000.0));
        let after = client.stats()?;
        let seconds = begun.elapsed().as_secs_f64();
        shape(&after, source, &mut found);
        times_between(&before, &after, source, &mut found);
        if let Some(between) = Interval::between(&before, &after, seconds) {
            observed(&between, source, &mut found);
        }
        return Ok(found);
    }
    shape(&before, source, &mut found);
    times(&before.front.app_ms, &before.front.app_cpu_ms, source, &mut found);
    // Servers of an earlier version have no history; the time since their start is used instead.
    let history = client.get("/history").ok().and_then(|text| serde_json::from_str::<History>(&text).ok());
    match history.and_then(|history| busiest(&history.points)) {
        Some((rate, average, span_s)) => {
            let span = millis(span_s * 1_000.0);
            // The history counts all requests, but requests for files need no worker.
            let share = to_app(&before);
            found.rate =
                Some(Sourced::new(rate * share, format!("{source}: the busiest minute of the last {span}")));
            found.average_rate = Some(Sourced::new(average * share, format!("{source}: the last {span}")));
        }
        None => since_start(&before, source, &mut found),
    }
    Ok(found)
}

/// Reads what the routes take, and the advice.
fn routes(routes: &RoutesSnapshot, found: &mut SourceFacts) {
    let all: u64 = routes.routes.iter().map(|route| route.app_ms.count).sum();
    let share = |route: &RouteSnapshot| RouteShare {
        route: route.route.clone(),
        time: route.share,
        requests: route.app_ms.count as f64 / all.max(1) as f64,
    };
    found.routes = routes.routes.iter().filter(|route| route.app_ms.count > 0).map(share).collect();
    let advice = routes.advice.iter().flatten();
    found.advice = advice
        .filter(|finding| finding.frees > 0.0)
        .map(|finding| Improvement { text: finding.text.clone(), frees: finding.frees })
        .collect();
    if found.routes.is_empty() {
        found.notes.push(
            "There is no bill by route: no request has reached the app, or stats.routes is 0.".to_owned(),
        );
    }
}

fn observed(between: &Interval, source: &str, found: &mut SourceFacts) {
    let requests = between.app_ms.count;
    let rate = between.per_second(requests);
    if rate > 0.0 {
        found.rate = Some(Sourced::new(
            rate,
            format!(
                "{source}: {} requests to the app while observed for {}",
                figure(requests as f64),
                millis(between.seconds * 1_000.0)
            ),
        ));
    }
    if requests < FEW {
        found.notes.push(format!("Only {requests} requests reached the app while observed, too few for a reliable result; observe longer, or give --rate."));
    }
}

/// Returns the fraction of requests that reached the app.
fn to_app(server: &ServerSnapshot) -> f64 {
    let (app, all) = (server.front.app_ms.count, server.front.total_ms.count);
    if all > 0 && app > 0 { (app as f64 / all as f64).min(1.0) } else { 1.0 }
}

fn since_start(server: &ServerSnapshot, source: &str, found: &mut SourceFacts) {
    let (uptime, requests) = (server.uptime(), server.front.app_ms.count);
    if uptime > 1.0 && requests > 0 {
        let from = format!("{source}: average since its start {} ago", millis(uptime * 1_000.0));
        found.rate = Some(Sourced::new(requests as f64 / uptime, from));
        found.notes.push("The rate is an average: your busiest minute has a higher rate. Give it with --rate, or --from with an access log.".to_owned());
    }
}

#[derive(Deserialize)]
struct History {
    points: Vec<Point>,
}

#[derive(Deserialize)]
struct Point {
    seconds: f64,
    requests: u64,
}

/// Returns requests per second in the busiest minute and on average, and the length of the history in
/// seconds; `None` for less than a minute, or without requests.
fn busiest(points: &[Point]) -> Option<(f64, f64, f64)> {
    let sum = |points: &[Point]| -> (f64, f64) {
        (
            points.iter().map(|point| point.requests as f64).sum(),
            points.iter().map(|point| point.seconds).sum(),
        )
    };
    let (requests, seconds) = sum(points);
    let most = points
        .windows(6)
        .map(sum)
        .filter(|(_, seconds)| *seconds > 0.0)
        .map(|(requests, seconds)| requests / seconds);
    let most = most.max_by(f64::total_cmp)?;
    (most > 0.0 && seconds > 0.0).then_some((most, requests / seconds, seconds))
}

/// Reads workers, threads and cores.
pub(super) fn shape(server: &ServerSnapshot, source: &str, found: &mut SourceFacts) {
    let workers = u32::try_from(server.workers.len()).unwrap_or(u32::MAX);
    let (threads, fibers) = threads_and_fibers(&server.workers);
    if workers > 0 && threads > 0 {
        found.workers = Some(Sourced::new(workers, source));
        found.threads = Some(Sourced::new(threads, source));
        found.fibers = (fibers > 0).then(|| Sourced::new(fibers, source));
    }
    let worker = server.workers.iter().map(|worker| worker.pss_bytes).max().unwrap_or(0);
    if worker > 0 {
        found.memory = Some(Sourced::new(Memory { base: server.pss_bytes, worker }, source));
    }
    if server.cores > 0.0 {
        found.cores = Some(Sourced::new(server.cores, source));
    }
}

/// Returns threads and fibers of the largest worker; of several pools, the mean of all workers. The counted threads
/// of a worker with fibers are seats: a fiber holds a request, but has no core.
fn threads_and_fibers(workers: &[WorkerSnapshot]) -> (u32, u32) {
    let Some(largest) = workers.iter().max_by_key(|worker| worker.threads_max) else { return (0, 0) };
    if workers.iter().all(|worker| worker.pool == largest.pool) {
        let Seats { threads, fibers } = Seats::of_count(largest.threads_max, largest.fibers);
        return (threads, fibers);
    }
    let seats: u32 = workers.iter().map(|worker| worker.threads_max).sum();
    let mean = seats.div_ceil(workers.len() as u32);
    // Most fibers only wait.
    if largest.fibers > 0 { (1, mean) } else { (mean, 0) }
}

/// Reads the times in the app between two snapshots.
pub(super) fn times_between(
    before: &ServerSnapshot,
    after: &ServerSnapshot,
    source: &str,
    found: &mut SourceFacts,
) {
    let app = after.front.app_ms.since(&before.front.app_ms);
    let cpu = after.front.app_cpu_ms.since(&before.front.app_cpu_ms);
    times(&app, &cpu, source, found);
}

fn times(app: &DurationSummary, cpu: &DurationSummary, source: &str, found: &mut SourceFacts) {
    if app.count == 0 || app.mean <= 0.0 {
        return;
    }
    let count = figure(app.count as f64);
    found.response_ms =
        Some(Sourced::new(app.mean, format!("{source}: mean time in the app of {count} requests")));
    if let Some(cv) = variation(app) {
        found.cv = Some(Sourced::new(cv, format!("{source}: variation in the app")));
    }
    if cpu.count > 0 && cpu.mean > 0.0 && cpu.mean <= app.mean {
        found.cpu_ms = Some(Sourced::new(cpu.mean, format!("{source}: mean CPU time in the app")));
    }
    if app.count < FEW {
        found.notes.push(format!(
            "The time in the app is from only {count} requests, too few for a reliable result."
        ));
    }
}

/// Returns the coefficient of variation of a histogram.
fn variation(times: &DurationSummary) -> Option<f64> {
    // Coarse buckets count with their middle, fine ones with their upper bound.
    let coarse = times.buckets.first().is_some_and(|bucket| bucket.le == 0.1) && times.buckets.len() == 17;
    let (mut below, mut seen) = (0.0, 0);
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for bucket in &times.buckets {
        let here = bucket.count.saturating_sub(seen) as f64;
        let value = if coarse { f64::midpoint(below, bucket.le) } else { bucket.le };
        (count, sum, squares) = (count + here, sum + here * value, squares + here * value * value);
        (below, seen) = (bucket.le, bucket.count);
    }
    let mean = sum / count;
    let cv = (squares / count - mean * mean).max(0.0).sqrt() / mean;
    (count > 1.0 && cv.is_finite()).then_some(cv)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::Durations;

    #[test]
    fn the_busiest_minute_is_six_points() {
        let point = |requests| Point { seconds: 10.0, requests };
        let mut points: Vec<Point> = (0..60).map(|_| point(10)).collect();
        for busy in &mut points[20..26] {
            busy.requests = 100;
        }
        let (most, average, seconds) = busiest(&points).unwrap();
        assert_eq!((most, seconds), (10.0, 600.0));
        assert!((average - (540.0 + 600.0) / 600.0).abs() < 1e-9);
        assert!(busiest(&points[..5]).is_none());
        assert!(busiest(&[]).is_none());
    }

    #[test]
    fn seats_are_threads_and_fibers() {
        let worker = |fibers: u32| -> WorkerSnapshot {
            let worker = serde_json::json!({
                "index": 0, "pid": 2, "state": "ready", "phase": 0, "started_at": "2026-01-31T12:00:00Z",
                "last_checkin": "2026-01-31T12:00:00Z", "requests": 0, "failures": 0, "busy_threads": 700,
                "threads_started": 2, "threads_max": 1_000, "fibers": fibers, "in_flight": 700, "pss_bytes": 0,
                "restarts": 0,
            });
            serde_json::from_value(worker).unwrap()
        };
        assert_eq!(threads_and_fibers(&[worker(500)]), (2, 500));
        assert_eq!(threads_and_fibers(&[worker(0)]), (1_000, 0), "threads serve");
        let few = WorkerSnapshot { pool: "slow".to_owned(), threads_max: 5, ..worker(0) };
        assert_eq!(threads_and_fibers(&[worker(1_000), few.clone()]), (1, 503), "a pool of fibers");
        assert_eq!(threads_and_fibers(&[worker(0), few]), (503, 0));
        assert_eq!(threads_and_fibers(&[]), (0, 0));
    }

    #[test]
    fn variation_from_buckets() {
        let mut durations = Durations::default();
        (0..1_000).for_each(|i| durations.record(if i % 2 == 0 { 1_000 } else { 3_000 }));
        let cv = variation(&durations.summary()).unwrap();
        assert!((cv - 0.5).abs() < 0.02, "{cv}");
        assert_eq!(variation(&DurationSummary::default()), None);
    }
}
