//! The history of the last hour in steps of ten seconds, which `GET /history` returns and the dashboard
//! draws.
//!
//! Contract: at most [`History::POINTS`] points and one snapshot are kept.

use crate::durations::DurationSummary;
use crate::figures::figures;
use crate::interval::Interval;
use crate::server::{ServerSnapshot, WorkerState};
use crate::when;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime};

/// The history of the last hour of one server.
#[derive(Debug, Default)]
pub struct History {
    points: VecDeque<Point>,
    last: Option<(ServerSnapshot, Instant)>,
}

figures! {
    /// One step. Counts and times are those of the requests that ended in the step; all other figures are those
    /// at its end.
    pub struct Point {
        /// End of the step.
        #[serde(with = "when")]
        at: SystemTime,
        /// Length of the step.
        seconds: f64,
        /// Requests.
        requests: u64,
        /// Those with 5xx.
        errors: u64,
        /// Those with 4xx.
        client_errors: u64,
        /// Those whose client disconnected before there was a response.
        client_gone: u64,
        /// From the first byte of a request to the last of its response: `mean`, `p50`, `p95`, `p99`, `max`;
        /// 0 when there were no requests.
        total_ms: PointTimes,
        /// Waiting for a worker: the same.
        queue_ms: PointTimes,
        /// Requests that waited for a worker.
        queue: u64,
        /// Busy threads of all workers.
        busy_threads: u32,
        /// The largest possible number of threads of all workers.
        threads_max: u32,
        /// PSS of all processes.
        pss_bytes: u64,
        /// Resident memory of all processes, which counts shared memory for each process.
        rss_bytes: u64,
        /// CPU time of all processes per second: 1.5 is one and a half CPUs.
        cpus: f64,
        /// Ready workers.
        workers: u32,
        /// Workers replaced in the step.
        restarts: u32,
    }
}

/// Key figures of a histogram in milliseconds; 0 if it is empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PointTimes {
    /// The arithmetic mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
    pub max: f64,
}

/// The response to `GET /history`.
#[derive(Serialize)]
struct HistoryJson<'a> {
    step_s: u64,
    #[serde(with = "when")]
    started_at: SystemTime,
    #[serde(with = "when")]
    since: SystemTime,
    pid: u32,
    cores: f64,
    memory_limit_bytes: u64,
    points: &'a VecDeque<Point>,
}

impl History {
    /// The length of a step.
    pub const STEP: Duration = Duration::from_secs(10);
    /// The number of steps that are kept: an hour.
    pub const POINTS: usize = 360;

    /// Adds a snapshot with fine buckets, taken at `now`. The first one is only the base for the next.
    pub fn add(&mut self, snapshot: ServerSnapshot, now: Instant) {
        if let Some((last, then)) = &self.last {
            let seconds = now.saturating_duration_since(*then).as_secs_f64();
            if let Some(between) = Interval::between(last, &snapshot, seconds) {
                if self.points.len() == History::POINTS {
                    self.points.pop_front();
                }
                self.points.push_back(Point::new(&snapshot, &between));
            }
        }
        self.last = Some((snapshot, now));
    }

    /// Returns the steps, the oldest first.
    pub fn points(&self) -> impl ExactSizeIterator<Item = &Point> {
        self.points.iter()
    }

    /// Returns whether there has been no snapshot yet.
    pub fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Returns the history as JSON; `null` before the first snapshot.
    ///
    /// # Errors
    /// None in practice, because all keys are text and no number is infinite.
    pub fn to_json(&self) -> serde_json::Result<String> {
        let Some((last, _)) = &self.last else { return Ok("null".to_owned()) };
        let first = self.points.front().map(|point| {
            let step = Duration::try_from_secs_f64(point.seconds).unwrap_or_default();
            point.at.checked_sub(step).unwrap_or(point.at)
        });
        let json = HistoryJson {
            step_s: History::STEP.as_secs(),
            started_at: last.started_at,
            since: first.unwrap_or(last.taken_at),
            pid: last.pid,
            cores: last.cores,
            memory_limit_bytes: last.memory_limit_bytes,
            points: &self.points,
        };
        serde_json::to_string(&json)
    }
}

impl Point {
    fn new(snapshot: &ServerSnapshot, between: &Interval) -> Point {
        let workers = &snapshot.workers;
        let ready = workers.iter().filter(|worker| worker.state == WorkerState::Ready).count();
        Point {
            at: snapshot.taken_at,
            seconds: rounded(between.seconds),
            requests: between.requests.total,
            errors: between.requests.server_errors,
            client_errors: between.requests.client_errors,
            client_gone: between.requests.client_gone,
            total_ms: PointTimes::from(&between.total_ms),
            queue_ms: PointTimes::from(&between.queue_ms),
            queue: snapshot.queue.length,
            busy_threads: workers.iter().map(|worker| worker.busy_threads).sum(),
            threads_max: workers.iter().map(|worker| worker.threads_max).sum(),
            pss_bytes: snapshot.total_pss_bytes(),
            rss_bytes: snapshot.total_rss_bytes(),
            cpus: rounded(between.cpus),
            workers: u32::try_from(ready).unwrap_or(u32::MAX),
            restarts: between.restarts,
        }
    }
}

impl From<&DurationSummary> for PointTimes {
    fn from(all: &DurationSummary) -> PointTimes {
        PointTimes { mean: rounded(all.mean), p50: all.p50, p95: all.p95, p99: all.p99, max: all.max }
    }
}

/// Rounds to a thousandth, because 360 points are sent often and no more digits are shown.
fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tests::server;
    use crate::{Finished, Recorder, Snapshot};

    /// Creates the history of `steps` snapshots, ten seconds and `each` requests apart.
    fn hour(steps: u64, each: u64) -> History {
        let (recorder, mut history, begun) = (Recorder::new(), History::default(), Instant::now());
        for step in 0..steps {
            let mut snapshot = server(2);
            snapshot.taken_at += History::STEP * step as u32;
            snapshot.cpu_ms += 5_000 * step;
            snapshot.front = Snapshot::of([&recorder]);
            history.add(snapshot, begun + History::STEP * step as u32);
            (0..each).for_each(|_| {
                recorder.finished(&Finished {
                    status: 503,
                    total_us: 1_000 * (step + 1),
                    ..Finished::default()
                });
            });
        }
        history
    }

    #[test]
    fn a_point_is_what_came_in_its_step() {
        let history = hour(3, 5);
        let points: Vec<&Point> = history.points().collect();
        assert_eq!(points.len(), 2);
        assert_eq!((points[1].requests, points[1].errors, points[1].seconds), (5, 5, 10.0));
        assert!((points[1].total_ms.p99 - 2.0).abs() <= 0.02, "{:?}", points[1].total_ms);
        assert_eq!((points[1].cpus, points[1].workers, points[1].pss_bytes), (0.5, 2, 25 << 20));
        assert_eq!((points[1].busy_threads, points[1].threads_max), (4, 10));
    }

    #[test]
    fn no_more_than_an_hour_is_kept() {
        let history = hour(400, 1);
        assert_eq!(history.points().len(), History::POINTS);
        assert!(history.points().zip(history.points().skip(1)).all(|(a, b)| a.at < b.at));
    }

    #[test]
    fn json_says_since_when() {
        assert!(History::default().is_empty() && !hour(1, 1).is_empty());
        assert_eq!(History::default().to_json().unwrap(), "null");
        let json: serde_json::Value = serde_json::from_str(&hour(3, 1).to_json().unwrap()).unwrap();
        assert_eq!(json["points"].as_array().unwrap().len(), 2);
        assert_eq!((&json["step_s"], &json["since"]), (&10.into(), &"2026-01-31T12:01:00.000Z".into()));
        let point: Point = serde_json::from_value(json["points"][1].clone()).unwrap();
        assert_eq!(point.requests, 1);
        let one: serde_json::Value = serde_json::from_str(&hour(1, 1).to_json().unwrap()).unwrap();
        assert_eq!(one["points"].as_array().unwrap().len(), 0);
    }

    #[test]
    fn another_server_makes_no_point() {
        let mut history = hour(2, 1);
        let mut other = server(2);
        other.pid += 1;
        history.add(other, Instant::now() + Duration::from_secs(60));
        assert_eq!(history.points().len(), 1);
    }
}
