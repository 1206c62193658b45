//! A pool of workers: the requests of some paths, with workers, seats and a queue of their own.

use std::fmt;
use std::time::Duration;

use super::queue::Fair;
use super::threads::Threads;

/// A pool. All pools share the template; a worker serves the requests of its pool only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    pub name: String,
    /// Path prefixes without a trailing slash. The default pool has none, because it has all other paths.
    pub paths: Vec<String>,
    /// The number of workers; that of the default pool is the number at the start.
    pub workers: u32,
    /// Threads of each worker: one if fibers serve in a pool other than the default.
    pub threads: Threads,
    /// Fibers per thread; 0: each thread serves one request at a time.
    pub fibers: u32,
    /// By what the clients of waiting requests are told apart.
    pub fair: Fair,
    /// The most requests that may wait.
    pub max_queue: usize,
    /// How long a request may wait.
    pub queue: Duration,
    /// How long a worker may take to begin a response.
    pub worker: Option<Duration>,
}

impl Pool {
    /// The name of the pool of all paths that belong to no other.
    pub const DEFAULT: &str = "default";
    /// The name of the pool that `fiber_paths` makes.
    pub const FIBERS: &str = "fibers";
    /// The most pools beside the default.
    pub const MOST: usize = 16;

    /// Returns the paths as text: `/events, /cable`.
    pub fn paths_text(&self) -> String {
        let shown = |path: &String| if path.is_empty() { "/".to_owned() } else { path.clone() };
        self.paths.iter().map(shown).collect::<Vec<_>>().join(", ")
    }
}

/// Writes `2 workers x 1:5 threads for /reports`.
impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.workers == 1 { "worker" } else { "workers" };
        write!(f, "{} {plural} x ", self.workers)?;
        match self.fibers {
            0 => write!(f, "{} threads", self.threads)?,
            fibers => write!(f, "{fibers} fibers")?,
        }
        write!(f, " for {}", self.paths_text())
    }
}
