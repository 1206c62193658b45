//! Facts with their sources. Flags override measurements, which override defaults.

use planner::bill::{Improvement, RouteShare};
use serde::Serialize;

/// A value with its source as text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Sourced<T> {
    pub value: T,
    pub from: String,
}

impl<T> Sourced<T> {
    pub(crate) fn new(value: T, from: impl Into<String>) -> Sourced<T> {
        Sourced { value, from: from.into() }
    }
}

/// Memory of a server in bytes, as its proportional set size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The memory of front and template.
    pub base: u64,
    /// The memory of the largest worker.
    pub worker: u64,
}

impl Memory {
    /// Returns the memory of a server with `workers` workers.
    pub(crate) fn of(self, workers: u32) -> u64 {
        self.base + self.worker * u64::from(workers)
    }
}

/// The facts from a source; times in milliseconds, rates per second.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SourceFacts {
    /// The source, for messages: `the access log access.log`.
    pub source: String,
    /// Rate in the busiest minute.
    pub rate: Option<Sourced<f64>>,
    pub average_rate: Option<Sourced<f64>>,
    /// Mean time in the app.
    pub response_ms: Option<Sourced<f64>>,
    pub cv: Option<Sourced<f64>>,
    pub cpu_ms: Option<Sourced<f64>>,
    pub workers: Option<Sourced<u32>>,
    pub threads: Option<Sourced<u32>>,
    /// Fibers per thread; `None` where threads serve requests, or where the source has no value.
    pub fibers: Option<Sourced<u32>>,
    pub cores: Option<Sourced<f64>>,
    pub memory: Option<Sourced<Memory>>,
    /// The figures and the advice of the routes; of a running server, with `--live`.
    pub routes: Vec<RouteShare>,
    pub advice: Vec<Improvement>,
    /// Remarks for the output.
    pub notes: Vec<String>,
}
