//! One measured cell of a table of processes x threads. `firebrick tune` writes it; it is the input of
//! everything in this crate.

use serde::{Deserialize, Serialize};
use wire::Seats;

/// A number of processes and of threads per process, written `2x10`; with fibers `2x1x100`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shape {
    /// Worker processes; at least 1.
    pub processes: u32,
    /// Threads per process; at least 1.
    pub threads: u32,
    /// Fibers per thread; 0 where threads serve requests.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fibers: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Shape {
    pub fn new(processes: u32, threads: u32) -> Shape {
        Shape { processes, threads, fibers: 0 }
    }

    /// Returns the same shape with `fibers` in each thread.
    pub fn with_fibers(self, fibers: u32) -> Shape {
        Shape { fibers, ..self }
    }

    /// Returns the most requests that can be in a process at once.
    pub fn seats(self) -> u32 {
        Seats { threads: self.threads, fibers: self.fibers }.count()
    }

    /// Returns the most requests that can be in the app at once.
    pub fn slots(self) -> u32 {
        self.processes.saturating_mul(self.seats())
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.processes, self.threads)?;
        if self.fibers > 0 { write!(f, "x{}", self.fibers) } else { Ok(()) }
    }
}

/// Mean, variation and percentiles of times in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    pub mean: f64,
    /// Coefficient of variation: standard deviation divided by the mean.
    pub cv: f64,
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl Times {
    /// Returns any percentile, interpolated between the three known ones on a logarithmic scale (exact for an
    /// exponential tail).
    pub(crate) fn percentile(&self, percentile: f64) -> f64 {
        let rareness = |percentile: f64| -(1.0 - percentile / 100.0).ln();
        let between = |(a, low): (f64, f64), (b, high): (f64, f64)| {
            low + (high - low) * (rareness(percentile) - rareness(a)) / (rareness(b) - rareness(a))
        };
        let (p50, p95, p99) = ((50.0, self.p50), (95.0, self.p95), (99.0, self.p99));
        match percentile {
            p if p <= 50.0 => self.p50,
            p if p <= 95.0 => between(p50, p95),
            _ => between(p95, p99),
        }
    }
}

/// A limit other than the app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitedBy {
    /// The load generator was at its limit.
    LoadGenerator,
    /// The machine's CPUs were used up, partly by other programs.
    Machine,
}

/// Memory of all processes after a number of requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MemoryPoint {
    /// Requests handled since the server started (warm-up included).
    pub requests: u64,
    /// Proportional set size in bytes.
    pub pss_bytes: u64,
}

/// A measured cell. `None` means unknown; numbers default to 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cell {
    /// Worker processes.
    pub processes: u32,
    /// Threads per process.
    pub threads: u32,
    /// Fibers per thread; 0 where threads served requests.
    pub fibers: u32,
    /// Concurrent users of the closed model; 0 for an open model.
    pub users: u32,
    /// Successful responses.
    pub requests: u64,
    /// Failed requests.
    pub errors: u64,
    pub seconds: f64,
    /// Successful responses per second (median of the repeats).
    pub rate_per_s: f64,
    /// Latency at the clients.
    pub latency_ms: Times,
    /// Mean wall time in the app.
    pub app_ms: Option<f64>,
    /// Mean CPU time of a request's thread in the app.
    pub cpu_ms: Option<f64>,
    /// Mean wait of a request for the GVL; needs Ruby 3.2.
    pub gvl_ms: Option<f64>,
    /// Mean time in the queue.
    pub queue_ms: Option<f64>,
    /// Peak proportional memory of all processes; 0 if unknown.
    pub pss_bytes: u64,
    /// Peak resident memory of all processes; 0 if unknown.
    pub rss_bytes: u64,
    /// Memory over time, oldest first; shows leaks.
    pub memory: Vec<MemoryPoint>,
    /// CPU time of all server processes per second of wall time.
    pub cpu_cores: Option<f64>,
    /// Cores available to the server.
    pub cores: Option<f64>,
    /// How often the cell was measured; 0 counts as once.
    pub repeats: u32,
    /// Largest minus smallest rate of the repeats, divided by their median; 0 if measured once.
    pub spread: f64,
    /// The limit of the measurement, if it was not the app.
    pub limited_by: Option<LimitedBy>,
    /// The reason why there are no results: the server's error when it did not start, or crashed.
    pub crashed: Option<String>,
}

impl Cell {
    pub fn shape(&self) -> Shape {
        Shape::new(self.processes, self.threads).with_fibers(self.fibers)
    }

    /// Returns whether the rate describes the app: the app ran, responded, and nothing else limited it.
    pub fn is_valid(&self) -> bool {
        self.crashed.is_none()
            && self.limited_by.is_none()
            && self.rate_per_s.is_finite()
            && self.rate_per_s > 0.0
    }

    /// Returns CPU milliseconds per request: of all processes if known, else of the request's thread.
    pub fn cpu_per_request_ms(&self) -> Option<f64> {
        let whole =
            self.cpu_cores.filter(|_| self.rate_per_s > 0.0).map(|cores| cores * 1_000.0 / self.rate_per_s);
        whole.or(self.cpu_ms).filter(|ms| ms.is_finite() && *ms >= 0.0)
    }
}

/// Returns the cells without fibers, if there are any. Fibers cost other CPU time than threads, which would
/// blur the app's own needs.
pub(crate) fn on_threads(cells: Vec<&Cell>) -> Vec<&Cell> {
    let threads: Vec<&Cell> = cells.iter().copied().filter(|cell| cell.fibers == 0).collect();
    if threads.is_empty() { cells } else { threads }
}
