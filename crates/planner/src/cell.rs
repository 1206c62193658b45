//! One measured cell of a table of processes x threads: what went in, what came out. Written by `firebrick tune`, read
//! by everything here.

use serde::{Deserialize, Serialize};

/// So many processes with so many threads each; written `2x10`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shape {
    /// Worker processes; at least 1.
    pub processes: u32,
    /// Threads of each; at least 1.
    pub threads: u32,
}

impl Shape {
    /// `processes` x `threads`.
    pub fn new(processes: u32, threads: u32) -> Shape {
        Shape { processes, threads }
    }

    /// Requests that it can have in the app at once.
    pub fn slots(self) -> u32 {
        self.processes.saturating_mul(self.threads)
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.processes, self.threads)
    }
}

/// Mean, spread and percentiles of times in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation over mean.
    pub cv: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// What held a measurement back other than the app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// The load generator could not ask faster.
    LoadGenerator,
    /// The machine had no CPU left, and not all of it went into the server.
    Machine,
}

/// Memory of all processes after so many requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MemoryPoint {
    /// Requests answered since the server started (warm-up included).
    pub requests: u64,
    /// Proportional set size in bytes.
    pub pss_bytes: u64,
}

/// A measured cell. `None` is what nobody told; `default()` of a number is what did not happen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cell {
    /// Worker processes.
    pub processes: u32,
    /// Threads of each.
    pub threads: u32,
    /// Requests that the load generator kept under way (closed model); 0 for an open model.
    pub users: u32,
    /// Right answers.
    pub requests: u64,
    /// Wrong or missing ones.
    pub errors: u64,
    /// How long it took.
    pub seconds: f64,
    /// Right answers per second (median of the repeats).
    pub rate_per_s: f64,
    /// As the clients saw it.
    pub latency_ms: Times,
    /// Mean wall time in the app.
    pub app_ms: Option<f64>,
    /// Mean CPU time of a request's thread in the app.
    pub cpu_ms: Option<f64>,
    /// Mean wait of a request for the GVL; needs Ruby 3.2.
    pub gvl_ms: Option<f64>,
    /// Mean wait for a worker.
    pub queue_ms: Option<f64>,
    /// Proportional memory of all processes at its highest; 0 when unknown.
    pub pss_bytes: u64,
    /// Resident memory of all processes at its highest; 0 when unknown.
    pub rss_bytes: u64,
    /// Memory as it went, oldest first; shows leaks.
    pub memory: Vec<MemoryPoint>,
    /// CPU time of all processes of the server per second of wall time.
    pub cpu_cores: Option<f64>,
    /// Cores that the server could have used.
    pub cores: Option<f64>,
    /// How often it was measured; 0 counts as once.
    pub repeats: u32,
    /// Largest minus smallest rate of the repeats, over their median; 0 when measured once.
    pub spread: f64,
    /// What else was the limit.
    pub limited_by: Option<Limit>,
    /// Why there are no figures: what the server said when it did not start, or died.
    pub crashed: Option<String>,
}

impl Cell {
    /// Its shape.
    pub fn shape(&self) -> Shape {
        Shape::new(self.processes, self.threads)
    }

    /// Whether its rate tells something about the app: it ran, answered, and nothing else was the limit.
    pub fn tells(&self) -> bool {
        self.crashed.is_none()
            && self.limited_by.is_none()
            && self.rate_per_s.is_finite()
            && self.rate_per_s > 0.0
    }

    /// CPU milliseconds per request: of all processes when known, else of the request's thread.
    pub fn cpu_per_request_ms(&self) -> Option<f64> {
        let whole =
            self.cpu_cores.filter(|_| self.rate_per_s > 0.0).map(|cores| cores * 1_000.0 / self.rate_per_s);
        whole.or(self.cpu_ms).filter(|ms| ms.is_finite() && *ms >= 0.0)
    }
}
