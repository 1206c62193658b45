//! From a few measured cells to all others: a closed queueing model of Ruby processes.
//!
//! A request waits for things outside (z), holds its process's lock while Ruby runs (g), and needs the CPU (d). The
//! requests in the app are as many as there are threads or users; each process has one lock, all share the cores.

use serde::{Deserialize, Serialize};

use crate::cell::{Cell, Shape, Times};

/// A value and the bounds between which it is expected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The most likely.
    pub value: f64,
    /// Not less than.
    pub low: f64,
    /// Not more than.
    pub high: f64,
}

/// What ends the growth of a shape's throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bottleneck {
    /// Threads: all of them wait for something outside, more of them would help.
    Threads,
    /// The lock of each process: more processes would help.
    Lock,
    /// The machine's cores.
    Cores,
    /// There are no more requests at a time than this.
    Users,
}

/// What a shape would do that was not measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Processes.
    pub processes: u32,
    /// Threads of each.
    pub threads: u32,
    /// Requests under way at a time that it is said for.
    pub users: u32,
    /// Requests per second.
    pub rate_per_s: Estimate,
    /// As clients would see it.
    pub latency_ms: Times,
    /// Memory of all processes; zero when no cell told memory.
    pub pss_bytes: Estimate,
    /// Cores in use.
    pub cpu_cores: f64,
    /// What ends its growth.
    pub bottleneck: Bottleneck,
}

impl Prediction {
    /// Its shape.
    pub fn shape(&self) -> Shape {
        Shape::new(self.processes, self.threads)
    }
}

/// The model, fitted. Times in milliseconds per request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Waiting for something outside Ruby: sleeping, a database, another service.
    pub wait_ms: f64,
    /// Holding the lock (GVL).
    pub lock_ms: f64,
    /// On a CPU.
    pub cpu_ms: f64,
    /// Whether `cpu_ms` was measured; otherwise it is taken for the time that the lock is held.
    pub cpu_measured: bool,
    /// Cores that it was measured on.
    pub cores: f64,
    /// Relative error of the fitted rates (root of the mean square).
    pub error: f64,
    /// Requests under way at a time in the cells (their median).
    pub users: u32,
}

impl Model {
    /// Fits the model to cells of a closed load.
    ///
    /// # Errors
    /// When no cell tells anything; the text says what is missing.
    pub fn fit(cells: &[Cell]) -> Result<Model, String> {
        let _ = cells;
        Err("not yet".to_owned())
    }

    /// What `shape` would do under `users` requests at a time.
    pub fn predict(&self, shape: Shape, users: u32) -> Prediction {
        let _ = (shape, users);
        unimplemented!("signatures first")
    }
}

/// What `shape` would do, under the load that the cells were measured with: [`Model::fit`], [`Model::predict`].
///
/// # Errors
/// Those of [`Model::fit`].
pub fn predict(cells: &[Cell], shape: Shape) -> Result<Prediction, String> {
    let model = Model::fit(cells)?;
    Ok(model.predict(shape, model.users))
}
