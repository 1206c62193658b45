//! A running server as facts: what it remembers of the last hour, or what happens while it is watched.

use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

use control::client::{Client, explain};
use planner::words::{figure, millis};
use serde::Deserialize;
use settings::{Argument, ControlAddress, ProcessEnvironment};
use stats::{DurationSummary, Interval, ServerSnapshot};

use crate::known::{Found, Known};

/// Fewer requests say little about rates and times.
const FEW: u64 = 100;

/// Asks the server whose control address is `text`.
pub(super) fn ask(text: &str, look_ms: Option<f64>, token: Option<String>) -> Result<Found, String> {
    let address = ControlAddress::from_str(text).map_err(|_| {
        format!("`{text}` is no control address; expected tcp://HOST:PORT, unix://PATH or a path")
    })?;
    let token =
        token.or_else(|| std::env::var("FIREBRICK_CONTROL_TOKEN").ok().filter(|token| !token.is_empty()));
    let client = Client::new(address, token);
    observe(&client, &format!("the server on {}", client.address()), look_ms)
        .map_err(|error| error.to_string())
}

/// Asks the server of the app in `dir`.
pub(super) fn ask_of_folder(
    dir: &Path,
    look_ms: Option<f64>,
    token: Option<String>,
) -> Result<Found, String> {
    let folder = Argument { key: "dir", flag: "--from".to_owned(), values: vec![dir.display().to_string()] };
    let loaded = settings::load(&[folder], &ProcessEnvironment)
        .map_err(|errors| errors.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    let off = || {
        format!(
            "the control socket of the server in {} is turned off, so there is nobody to ask",
            dir.display()
        )
    };
    let control = loaded.settings.control.ask.clone().ok_or_else(off)?;
    let client = Client::new(control, token.or(loaded.settings.control.token.clone()));
    observe(&client, &format!("the server in {}", dir.display()), look_ms)
        .map_err(|error| explain(&error, dir))
}

fn observe(client: &Client, source: &str, look_ms: Option<f64>) -> Result<Found, control::client::Error> {
    let mut found = Found { source: source.to_owned(), ..Found::default() };
    let before = client.stats()?;
    if let Some(look_ms) = look_ms {
        let begun = Instant::now();
        std::thread::sleep(Duration::from_secs_f64(look_ms / 1_000.0));
        let after = client.stats()?;
        let seconds = begun.elapsed().as_secs_f64();
        shape(&after, source, &mut found);
        times_between(&before, &after, source, &mut found);
        if let Some(between) = Interval::between(&before, &after, seconds) {
            watched(&between, source, &mut found);
        }
        return Ok(found);
    }
    shape(&before, source, &mut found);
    times(&before.front.app_ms, &before.front.app_cpu_ms, source, &mut found);
    // A server of an earlier version remembers nothing; then there is the time since its start.
    let history = client.get("/history").ok().and_then(|text| serde_json::from_str::<History>(&text).ok());
    match history.and_then(|history| busiest(&history.points)) {
        Some((rate, average, span_s)) => {
            let span = millis(span_s * 1_000.0);
            // It remembers all requests; what files answer needs no worker.
            let share = to_app(&before);
            found.rate =
                Some(Known::new(rate * share, format!("{source}: the busiest minute of the last {span}")));
            found.average_rate = Some(Known::new(average * share, format!("{source}: the last {span}")));
        }
        None => since_start(&before, source, &mut found),
    }
    Ok(found)
}

fn watched(between: &Interval, source: &str, found: &mut Found) {
    let requests = between.app_ms.count;
    let rate = between.per_second(requests);
    if rate > 0.0 {
        found.rate = Some(Known::new(
            rate,
            format!(
                "{source}: {} requests to the app while it was watched for {}",
                figure(requests as f64),
                millis(between.seconds * 1_000.0)
            ),
        ));
    }
    if requests < FEW {
        found.notes.push(format!("Only {requests} requests reached the app while it was watched, which says little; watch longer, or give --rate."));
    }
}

/// The share of requests that went to the app.
fn to_app(server: &ServerSnapshot) -> f64 {
    let (app, all) = (server.front.app_ms.count, server.front.total_ms.count);
    if all > 0 && app > 0 { (app as f64 / all as f64).min(1.0) } else { 1.0 }
}

fn since_start(server: &ServerSnapshot, source: &str, found: &mut Found) {
    let (uptime, requests) = (server.uptime(), server.front.app_ms.count);
    if uptime > 1.0 && requests > 0 {
        let from = format!("{source}: on average since its start {} ago", millis(uptime * 1_000.0));
        found.rate = Some(Known::new(requests as f64 / uptime, from));
        found.notes.push("The rate is an average: your busiest minute is busier. Give it with --rate, or --from with an access log.".to_owned());
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

/// Requests per second in the busiest minute and on average, and how many seconds that is known of; `None` for less than a
/// minute, or when nothing came.
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

/// Workers, threads and cores.
pub(super) fn shape(server: &ServerSnapshot, source: &str, found: &mut Found) {
    let workers = u32::try_from(server.workers.len()).unwrap_or(u32::MAX);
    let threads = server.workers.iter().map(|worker| worker.threads_max).max().unwrap_or(0);
    if workers > 0 && threads > 0 {
        found.workers = Some(Known::new(workers, source));
        found.threads = Some(Known::new(threads, source));
    }
    if server.cores > 0.0 {
        found.cores = Some(Known::new(server.cores, source));
    }
}

/// Times in the app between two pictures.
pub(super) fn times_between(
    before: &ServerSnapshot,
    after: &ServerSnapshot,
    source: &str,
    found: &mut Found,
) {
    let app = after.front.app_ms.since(&before.front.app_ms);
    let cpu = after.front.app_cpu_ms.since(&before.front.app_cpu_ms);
    times(&app, &cpu, source, found);
}

fn times(app: &DurationSummary, cpu: &DurationSummary, source: &str, found: &mut Found) {
    if app.count == 0 || app.mean <= 0.0 {
        return;
    }
    let count = figure(app.count as f64);
    found.response_ms =
        Some(Known::new(app.mean, format!("{source}: mean time in the app of {count} requests")));
    if let Some(cv) = variation(app) {
        found.cv = Some(Known::new(cv, format!("{source}: variation in the app")));
    }
    if cpu.count > 0 && cpu.mean > 0.0 && cpu.mean <= app.mean {
        found.cpu_ms = Some(Known::new(cpu.mean, format!("{source}: mean CPU time in the app")));
    }
    if app.count < FEW {
        found.notes.push(format!("Only {count} requests tell how long the app takes, which says little."));
    }
}

/// Standard deviation over mean of what was counted in buckets: each counts as the middle of its bucket.
fn variation(times: &DurationSummary) -> Option<f64> {
    // Few buckets that are always the same ones stand for all that lies between; fine ones for values just below them.
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
    fn variation_from_buckets() {
        let mut durations = Durations::default();
        (0..1_000).for_each(|i| durations.record(if i % 2 == 0 { 1_000 } else { 3_000 }));
        let cv = variation(&durations.summary()).unwrap();
        assert!((cv - 0.5).abs() < 0.02, "{cv}");
        assert_eq!(variation(&DurationSummary::default()), None);
    }
}
