//! Observations beside the verdicts: one user alone, and the circumstances of each step.

use load::Outcome;

use super::evidence::Evidence;
use crate::document;

/// The rate and the response times that one user alone gets.
pub(crate) struct Alone {
    /// Responses per second.
    pub rate: f64,
    pub p50_ms: f64,
    pub evidence: Evidence,
}

/// The circumstances of a step, apart from its responses.
pub(crate) struct Trial {
    pub rate: f64,
    pub outcome: Outcome,
    /// The idle share of this machine's CPUs.
    pub idle: Option<f64>,
    /// The server's statistics, if it has a control socket to ask: before the step, and in its last moments.
    pub server: Option<document::Server>,
}

/// All of a search.
pub(crate) struct Findings {
    /// The time that it took.
    pub seconds: f64,
    /// In the order of the steps.
    pub trials: Vec<Trial>,
    /// Remarks on the input and on the server, without the final period.
    pub remarks: Vec<String>,
}
