//! Statistics of the shape that follows an objective of response times.

use crate::figures::figures;
use crate::when;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::SystemTime;

figures! {
    /// The objective of response times, and the shape that follows it ([shape](shape.md)).
    pub struct ShapeSnapshot {
        /// The objective: `p95 < 200ms`.
        objective: String,
        /// Its time.
        objective_ms: f64 = gauge("firebrick_slo_seconds"; "Time of the objective of response times (slo)"),
        /// Whether it held in the last 10 s; null without requests.
        holds: Option<bool> = gauge("firebrick_slo_holds"; "Whether the objective held in the last 10 s"),
        /// The response time at its percentile in the last 10 s; null without requests.
        response_ms: Option<f64> = gauge(
            "firebrick_slo_response_seconds"; "Response time at the percentile of the objective, in the last 10 s"
        ),
        /// The share of requests that missed it in the last 10 s, from 0 to 1: late responses and refused requests.
        missed: Option<f64> = gauge(
            "firebrick_slo_missed_ratio"; "Share of requests that missed the objective in the last 10 s"
        ),
        /// Responses of the default pool since the start.
        responses: u64 = counter("firebrick_slo_responses"; "Responses that were compared with the objective"),
        /// Of these, those that began too late.
        late: u64 = counter("firebrick_slo_late_responses"; "Responses that missed the objective"),
        /// Requests that the queue of the default pool refused.
        refused: u64 = counter("firebrick_slo_refused_requests"; "Requests that the queue of the default pool refused"),
        /// The shape that the server began with, if the last run has learnt it: `shape`, `learnt_at`; null otherwise.
        last_run: Option<LastRunShape>,
        /// The number of workers in the shape.
        workers: u32,
        /// The least and the most workers.
        workers_bounds: [u32; 2],
        /// The requests that each worker may hold at a time: threads, or fibers.
        seats: u32 = gauge("firebrick_shape_seats"; "Requests that each worker of the default pool may hold at a time"),
        /// The least and the most of these.
        seats_bounds: [u32; 2],
        /// The longest wait of a request in the queue, under overload; null otherwise.
        wait_limit_ms: Option<f64> = gauge(
            "firebrick_shape_wait_limit_seconds"; "Longest wait in the queue under overload; missing without overload"
        ),
        /// The trials that have been kept, since the start.
        kept: u64 = counter("firebrick_shape_steps", verdict = "kept"; "Steps of the shape, by what became of them"),
        /// The trials that did not help.
        reverted: u64 = counter("firebrick_shape_steps", verdict = "reverted"),
        /// The steps towards less.
        shrunk: u64 = counter("firebrick_shape_steps", verdict = "shrunk"),
        /// The limits that forbade a step.
        forbidden: u64 = counter("firebrick_shape_steps", verdict = "refused"),
        /// How often requests began to be refused because of overload.
        overloads: u64 = counter("firebrick_shape_steps", verdict = "overload"),
        /// The last steps, the oldest first: `at`, `verdict` (`trying`, `kept`, `reverted`, `undecided`, `shrunk`, `refused`, `overload`,
        /// `relieved`), `from`, `to`, `why`, and the figures `before` and `after` (`rate`, `response_ms`, `missed`, `app_ms`), which may be null.
        steps: Vec<ShapeStepSnapshot>,
    }
}

/// A shape that the last run has learnt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastRunShape {
    /// Workers and seats of each: `2x8`.
    pub shape: String,
    #[serde(with = "when")]
    pub learnt_at: SystemTime,
}

/// Writes `2x8, learnt at 2026-01-31T12:00:00Z`.
impl fmt::Display for LastRunShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, learnt at {:.0}", self.shape, when::timestamp(self.learnt_at))
    }
}

/// A step of the shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShapeStepSnapshot {
    /// When it began, or was decided.
    #[serde(with = "when")]
    pub at: SystemTime,
    /// The verdict, in one word.
    pub verdict: String,
    /// Workers and seats of each: `2x8`.
    pub from: String,
    pub to: String,
    pub why: String,
    pub before: Option<ShapeFigures>,
    pub after: Option<ShapeFigures>,
}

/// The figures of a while.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ShapeFigures {
    /// Responses per second.
    pub rate: f64,
    /// The response time at the percentile of the objective.
    pub response_ms: f64,
    /// The share of requests that missed the objective, from 0 to 1.
    pub missed: f64,
    /// The mean time in the app.
    pub app_ms: f64,
}
