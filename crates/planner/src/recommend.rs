//! Which shape to run under a budget, and why.

use serde::{Deserialize, Serialize};

use crate::cell::{Cell, Shape, Times};
use crate::model::Prediction;
use crate::slo::Slo;

/// What there is, and what is wanted; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// For all processes together.
    pub memory_bytes: Option<u64>,
    /// Cores; fewer than it was measured on lower the rates accordingly.
    pub cpus: Option<f64>,
    /// Each thread of each process may need one.
    pub db_connections: Option<u32>,
    /// How fast answers have to be.
    pub slo: Option<Slo>,
    /// Requests per second that have to be served. With it the least memory wins, without it the largest rate.
    pub rate_per_s: Option<f64>,
}

/// A shape and what it does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Which.
    pub shape: Shape,
    /// Measured, or predicted from others.
    pub measured: bool,
    /// Requests per second, under the budget's cores.
    pub rate_per_s: f64,
    /// As clients see it.
    pub latency_ms: Times,
    /// Memory; 0 when unknown.
    pub pss_bytes: f64,
}

/// What one would gain and lose with another shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunnerUp {
    /// Which.
    pub choice: Choice,
    /// Such as "2x10 costs a fifth of the memory of 10x10 and takes 2 s more".
    pub words: String,
}

/// A shape that is out of the question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rejected {
    /// Which.
    pub shape: Shape,
    /// Such as "needs 735 MiB, 512 MiB are there".
    pub why: String,
}

/// What to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The shape; `None` when nothing fits the budget.
    pub best: Option<Choice>,
    /// Why, in plain words; what to change when nothing fits.
    pub reasons: Vec<String>,
    /// At most two others that are worth a thought.
    pub runners_up: Vec<RunnerUp>,
    /// What is out of the question, and why.
    pub rejected: Vec<Rejected>,
}

/// The best shape of those measured and predicted (a measured one hides its prediction) under `budget`.
pub fn recommend(cells: &[Cell], predictions: &[Prediction], budget: &Budget) -> Recommendation {
    let _ = (cells, predictions, budget);
    unimplemented!("signatures first")
}
