//! The budget, the shapes that are compared within it, and the result.

use crate::cell::{Shape, Times};
use crate::slo::Slo;
use serde::{Deserialize, Serialize};

/// The least gains that count, as factors: more requests per second, less memory, a shorter 99th percentile.
const MORE: f64 = 1.05;
const LESS_MEMORY: f64 = 0.9;
const SHORTER: f64 = 0.8;
/// Rates that differ by less count as equal.
pub(crate) const NOISE: f64 = 0.03;

/// Resources and requirements; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// Memory of all processes together.
    pub memory_bytes: Option<u64>,
    /// Cores; fewer than in the measurement reduce the rates accordingly.
    pub cpus: Option<f64>,
    /// Database connections; each thread may need one.
    pub db_connections: Option<u32>,
    /// Response time objective: at `rate_per_s` if given, otherwise under the load of the measurement.
    pub slo: Option<Slo>,
    /// Required requests per second. With it, the least memory wins; without it, the highest rate.
    pub rate_per_s: Option<f64>,
}

/// A shape and its performance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    pub shape: Shape,
    /// Whether the shape was measured, rather than predicted from others.
    pub measured: bool,
    /// The highest rate on the budget's cores, in requests per second.
    pub rate_per_s: f64,
    /// Latency at the clients: at the budget's rate if it is given and the model's lock time is known, else
    /// under the load of the measurement.
    pub latency_ms: Times,
    /// Memory; 0 if unknown.
    pub pss_bytes: f64,
    /// The number of requests for which sentences quote durations.
    pub requests: u64,
    /// The relative difference between its measurements.
    pub spread: f64,
}

/// An alternative shape, compared with the best.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunnerUp {
    pub choice: Choice,
    /// A sentence such as "2x10 needs a fifth of the memory of 10x10 and takes 2 s more for 600 requests".
    pub words: String,
}

/// A shape that does not fit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rejected {
    pub shape: Shape,
    /// A reason such as "needs 735 MiB, 512 MiB available".
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The shape; `None` if nothing fits the budget.
    pub best: Option<Choice>,
    /// The reasons, as sentences; or what to change if nothing fits.
    pub reasons: Vec<String>,
    /// At most two alternatives.
    pub runners_up: Vec<RunnerUp>,
    /// Shapes that do not fit, with reasons.
    pub rejected: Vec<Rejected>,
}

impl Choice {
    /// Returns whether this shape with fibers is clearly better than `without`, a shape without them: enough
    /// to justify their demands on the app.
    pub fn gains_over(&self, without: &Choice, budget: &Budget) -> bool {
        let known = self.pss_bytes > 0.0 && without.pss_bytes > 0.0;
        let lighter = known && self.pss_bytes <= without.pss_bytes * LESS_MEMORY;
        let sooner = without.latency_ms.p99 > 0.0 && self.latency_ms.p99 <= without.latency_ms.p99 * SHORTER;
        let as_fast = self.rate_per_s >= without.rate_per_s * (1.0 - NOISE);
        match budget.rate_per_s {
            // Both shapes reach the rate.
            Some(wanted) if without.rate_per_s > wanted && self.rate_per_s > wanted => lighter,
            _ => self.rate_per_s >= without.rate_per_s * MORE || (as_fast && (lighter || sooner)),
        }
    }
}
