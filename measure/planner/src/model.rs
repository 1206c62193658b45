//! Predicts all shapes from a few measured cells, with a fitted closed queueing model of Ruby processes.
//!
//! A request waits for things outside, holds its process's lock (GVL) while Ruby runs, and needs the CPU. CPU
//! time is measured. The lock time shows in the gain from additional threads, so the fit determines it: the
//! share of lock time that makes the predicted rates of all cells closest to the measured ones (`closed`).
//! Predictions for other shapes are within `Estimate`'s bounds for the published tables in
//! tests/it/tables.rs.

use serde::{Deserialize, Serialize};

use crate::cell::{Cell, Shape, Times, on_threads};
use crate::closed::{Demand, throughput};
use crate::memory::Memory;
use crate::service::Service;

/// A value with bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The most likely value.
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Estimate {
    /// Returns `value` with a relative error of `error`.
    pub fn within(value: f64, error: f64) -> Estimate {
        Estimate { value, low: value / (1.0 + error), high: value * (1.0 + error) }
    }
}

/// The limit of a shape's throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// Threads: all of them wait for something outside; more threads would help.
    Threads,
    /// The lock (GVL) of each process: more processes would help.
    Lock,
    /// The machine's cores.
    Cores,
    /// There are no more concurrent requests.
    Users,
}

/// The prediction for a shape that was not measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    pub processes: u32,
    /// Threads per process.
    pub threads: u32,
    /// Fibers per thread; 0 where threads serve requests.
    #[serde(default)]
    pub fibers: u32,
    /// Concurrent requests that it applies to.
    pub users: u32,
    /// Requests per second.
    pub rate_per_s: Estimate,
    /// Latency at the clients.
    pub latency_ms: Times,
    /// Memory of all processes; 0 if no cell has memory.
    pub pss_bytes: Estimate,
    /// Cores in use.
    pub cpu_cores: f64,
    pub bottleneck: Bottleneck,
}

impl Prediction {
    pub fn shape(&self) -> Shape {
        Shape::new(self.processes, self.threads).with_fibers(self.fibers)
    }
}

/// The fitted model. Times in milliseconds per request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Time waiting outside Ruby: sleeping, a database, another service.
    pub wait_ms: f64,
    /// Time holding the lock (GVL).
    pub lock_ms: f64,
    /// Time on a CPU, with the lock or (C code that releases it) without.
    pub cpu_ms: f64,
    /// Whether `cpu_ms` was measured; otherwise it is assumed to equal the lock time.
    pub cpu_measured: bool,
    /// Whether the cells determine the lock time: they differ in threads, or CPU time was measured.
    pub lock_known: bool,
    /// Cores of the measured machine.
    pub cores: f64,
    /// Coefficient of variation of the time in the app.
    pub cv: f64,
    /// Relative error of the fitted rates (root mean square).
    pub error: f64,
    /// Concurrent requests of the cells (median).
    pub users: u32,
    /// The memory model, if memory was measured.
    pub memory: Option<Memory>,
    /// Largest shape measured; beyond it, bounds widen.
    pub reach: Shape,
}

/// The resolution of the search for the lock share, and the fractions of lock time without CPU that it tries.
const STEPS: u32 = 200;
const IDLE: [f64; 6] = [0.0, 0.25, 0.5, 0.75, 0.9, 1.0];
/// Fits whose errors differ by less count as equally good.
const NEARLY: f64 = 0.02;
/// The error of a cell (as a logarithm) is capped at this, so that outliers do not dominate.
const FAR: f64 = 0.3;
/// The smallest error of every prediction.
const FLOOR: f64 = 0.10;
/// Additional error if the lock or the cores are the limit, where other load on the machine matters too.
const CROWDED: f64 = 0.14;

impl Model {
    /// Fits the model to cells of a closed load.
    ///
    /// # Errors
    /// No cell is usable; the text says what is missing.
    pub fn fit(cells: &[Cell]) -> Result<Model, String> {
        let usable = on_threads(cells.iter().filter(|cell| is_usable(cell)).collect());
        if usable.is_empty() {
            return Err("no usable cell: at least one must run with a fixed number of concurrent requests, without crashing and without being limited by the load generator".to_owned());
        }
        let cores = usable.iter().filter_map(|cell| cell.cores).fold(0.0, f64::max);
        let cores = if cores > 0.0 { cores } else { 1.0 };
        let cpu = median(usable.iter().filter_map(|cell| cell.cpu_per_request_ms()));
        let (demand, error) = match cpu {
            Some(cpu) => fit_lock(&usable, cores, cpu),
            None => fit_lock_and_cpu(&usable, cores),
        };
        let several_threads = usable.iter().any(|cell| cell.threads > 1 && cell.users > 1);
        let one = |of: fn(&&&Cell) -> u32| usable.iter().map(|cell| of(&cell)).max().unwrap_or(1);
        Ok(Model {
            wait_ms: demand.wait,
            lock_ms: demand.lock,
            cpu_ms: demand.cpu,
            cpu_measured: cpu.is_some(),
            lock_known: several_threads || cpu.is_some(),
            cores,
            cv: variation(&usable),
            error,
            users: median(usable.iter().map(|cell| f64::from(cell.users))).map_or(1, |users| users as u32),
            memory: Memory::fit(cells),
            reach: Shape::new(one(|cell| cell.processes), one(|cell| cell.threads)),
        })
    }

    /// Returns the response time of a request on its own, in milliseconds.
    pub fn alone_ms(&self) -> f64 {
        self.wait_ms + self.lock_ms + (self.cpu_ms - self.lock_ms).max(0.0)
    }

    /// Returns the prediction for `shape` under `users` concurrent requests, on the measured number of cores.
    pub fn predict(&self, shape: Shape, users: u32) -> Prediction {
        let (users, present) = (users.max(1), shape.slots().min(users.max(1)).max(1));
        let per_ms = throughput(self.demand(), shape.processes.max(1), present, self.cores);
        let bottleneck = self.bottleneck(shape, users);
        let crowded = matches!(bottleneck, Bottleneck::Lock | Bottleneck::Cores);
        let error = self.error_at(shape) + if crowded { CROWDED } else { 0.0 };
        let memory = self.memory.map_or_else(Estimate::default, |memory| {
            Estimate::within(memory.bytes(shape, users), 2.0 * memory.error + error)
        });
        Prediction {
            processes: shape.processes,
            threads: shape.threads,
            fibers: shape.fibers,
            users,
            rate_per_s: Estimate::within(per_ms * 1_000.0, error),
            latency_ms: self.latency(f64::from(users), f64::from(present), per_ms),
            pss_bytes: memory,
            cpu_cores: per_ms * self.cpu_ms,
            bottleneck,
        }
    }

    /// Returns the error of the fit, plus 5 % for each doubling beyond the measured shapes.
    fn error_at(&self, shape: Shape) -> f64 {
        let beyond = |wanted: u32, known: u32| (f64::from(wanted) / f64::from(known.max(1))).max(1.0).log2();
        let doublings =
            beyond(shape.processes, self.reach.processes) + beyond(shape.threads, self.reach.threads);
        FLOOR + 1.5 * self.error + 0.05 * doublings.min(6.0)
    }

    fn demand(&self) -> Demand {
        Demand { wait: self.wait_ms, lock: self.lock_ms, cpu: self.cpu_ms }
    }

    /// Returns the latency, with the mean by Little's law: a request waits until the earlier ones are done,
    /// then takes its time in the app.
    fn latency(&self, users: f64, present: f64, per_ms: f64) -> Times {
        let (app, queue) = (present / per_ms, (users - present).max(0.0) / per_ms);
        let mean = app + queue;
        let variance = (app * self.cv).powi(2) + (users - present).max(0.0) * (self.cv / per_ms).powi(2);
        let cv = variance.sqrt() / mean;
        let spread = Service::new(mean, cv);
        Times {
            mean,
            cv,
            p50: spread.percentile(50.0),
            p95: spread.percentile(95.0),
            p99: spread.percentile(99.0),
        }
    }

    /// Returns the resource of which more would help most; differences of less than a tenth do not count.
    fn bottleneck(&self, shape: Shape, users: u32) -> Bottleneck {
        let rate =
            |processes: u32, slots: u32, cores: f64| throughput(self.demand(), processes, slots, cores);
        let present = shape.slots().min(users).max(1);
        let now = rate(shape.processes, present, self.cores);
        let options = [
            (
                Bottleneck::Threads,
                if shape.slots() < users {
                    rate(shape.processes, (present * 2).min(users), self.cores)
                } else {
                    0.0
                },
            ),
            (Bottleneck::Lock, rate(shape.processes * 2, present, self.cores)),
            (Bottleneck::Cores, rate(shape.processes, present, self.cores * 2.0)),
        ];
        let best = options.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        match best {
            Some((limit, rate)) if rate > now * 1.1 => limit,
            _ if shape.slots() >= users => Bottleneck::Users,
            // With single threads, one more process is one more lock and one more thread.
            _ if rate(shape.processes * 2, (present * 2).min(users), self.cores) > now * 1.1 => {
                Bottleneck::Lock
            }
            _ => Bottleneck::Cores,
        }
    }
}

/// Returns the prediction for `shape` under the load of the cells: [`Model::fit`], then [`Model::predict`].
///
/// # Errors
/// The errors of [`Model::fit`].
pub fn predict(cells: &[Cell], shape: Shape) -> Result<Prediction, String> {
    let model = Model::fit(cells)?;
    Ok(model.predict(shape, model.users))
}

fn is_usable(cell: &Cell) -> bool {
    cell.is_valid() && cell.users > 0 && cell.processes > 0 && cell.threads > 0
}

/// Compares the rates of all cells under `demand` with the measured ones. Returns the factor that corrects
/// all times, and the remaining error. An outlier, caused by other load on the machine, does not move the
/// other cells: the factor is a median, and errors are capped at [`FAR`].
fn compare(cells: &[&Cell], cores: f64, demand: Demand) -> (f64, f64) {
    let off = |cell: &&Cell| {
        let present = cell.shape().slots().min(cell.users);
        let rate = throughput(demand, cell.processes, present, cores) * 1_000.0;
        // Cells whose repeats differed count less.
        ((rate / cell.rate_per_s).ln(), 1.0 / (0.03 + cell.spread.clamp(0.0, 1.0)).powi(2))
    };
    let mut offs: Vec<(f64, f64)> = cells.iter().map(off).collect();
    offs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let weight: f64 = offs.iter().map(|(_, weight)| weight).sum();
    let middle = middle(&offs, weight / 2.0);
    let squared = |off: f64| (off - middle).abs().min(FAR).powi(2);
    let error = offs.iter().map(|(off, share)| squared(*off) * share).sum::<f64>() / weight;
    (middle.exp(), error.sqrt())
}

/// Returns the weighted median, interpolated between neighbours.
fn middle(sorted: &[(f64, f64)], half: f64) -> f64 {
    let mut passed = 0.0;
    let mut before: Option<(f64, f64)> = None;
    for &(off, weight) in sorted {
        let at = passed + weight / 2.0;
        if at >= half {
            return match before {
                Some((last, last_at)) if at > last_at => {
                    last + (off - last) * (half - last_at) / (at - last_at)
                }
                _ => off,
            };
        }
        before = Some((off, at));
        passed += weight;
    }
    sorted.last().map_or(0.0, |(off, _)| *off)
}

/// Finds the lock time for a known CPU time; it equals the CPU time unless the cells indicate otherwise.
fn fit_lock(cells: &[&Cell], cores: f64, cpu: f64) -> (Demand, f64) {
    // The initial estimate of the time of a request on its own, refined in each round.
    let mut alone = fastest(cells).max(cpu);
    let mut best = Fit { demand: Demand { wait: alone - cpu, lock: cpu, cpu }, error: f64::INFINITY };
    for _ in 0..8 {
        let at_cpu = (cpu / alone * f64::from(STEPS)).round() as u32;
        let fits = (0..=STEPS).map(|step| {
            let lock = if step == at_cpu { cpu } else { alone * f64::from(step) / f64::from(STEPS) };
            let demand = Demand { wait: (alone - lock.max(cpu)).max(0.0), lock, cpu };
            let (factor, error) = compare(cells, cores, demand);
            Fit { demand, error: error.hypot(factor.ln()) }
        });
        best = simplest(fits, |demand| (demand.lock - cpu).abs()).unwrap_or(best);
        let (factor, _) = compare(cells, cores, best.demand);
        alone = (alone * factor).max(cpu);
    }
    (best.demand, best.error)
}

/// Finds lock and CPU time if the CPU time is unknown; they are assumed to be equal unless the cells indicate
/// otherwise.
fn fit_lock_and_cpu(cells: &[&Cell], cores: f64) -> (Demand, f64) {
    let shares = IDLE
        .into_iter()
        .flat_map(|idle| (0..=STEPS).map(move |step| (idle, f64::from(step) / f64::from(STEPS))));
    let fits = shares.map(|(idle, lock)| {
        let demand = Demand { wait: 1.0 - lock, lock, cpu: lock * (1.0 - idle) };
        let (factor, error) = compare(cells, cores, demand);
        let scaled = |time: f64| time * factor;
        Fit {
            demand: Demand { wait: scaled(demand.wait), lock: scaled(demand.lock), cpu: scaled(demand.cpu) },
            error,
        }
    });
    let best = simplest(fits, |demand| {
        (demand.lock + 10.0 * (demand.lock - demand.cpu)) / (demand.lock + demand.wait)
    });
    best.map_or((Demand { wait: 1.0, lock: 0.0, cpu: 0.0 }, f64::INFINITY), |best| (best.demand, best.error))
}

struct Fit {
    demand: Demand,
    error: f64,
}

/// Returns, among the fits nearly as good as the best (measured rates have an error of a few percent), the
/// one with the fewest assumptions.
fn simplest(fits: impl Iterator<Item = Fit>, claims: impl Fn(&Demand) -> f64) -> Option<Fit> {
    let fits: Vec<Fit> = fits.collect();
    let least = fits.iter().map(|one| one.error).fold(f64::INFINITY, f64::min);
    let near = fits.into_iter().filter(|one| one.error <= least + NEARLY);
    near.min_by(|a, b| (claims(&a.demand) + a.error).total_cmp(&(claims(&b.demand) + b.error)))
}

/// Returns the shortest time in the app that a cell implies: slots divided by rate.
fn fastest(cells: &[&Cell]) -> f64 {
    let one = |cell: &&Cell| {
        let present = f64::from(cell.shape().slots().min(cell.users));
        present * 1_000.0 / cell.rate_per_s
    };
    cells.iter().map(one).fold(f64::INFINITY, f64::min)
}

/// Returns the variation of the time in the app that explains the cells' latencies; 0.5 if unknown.
fn variation(cells: &[&Cell]) -> f64 {
    let one = |cell: &&&Cell| {
        let (users, present) = (f64::from(cell.users), f64::from(cell.shape().slots().min(cell.users)));
        let per_ms = cell.rate_per_s / 1_000.0;
        let deviation = cell.latency_ms.mean * cell.latency_ms.cv;
        let unit = ((present / per_ms).powi(2) + (users - present) / per_ms.powi(2)).sqrt();
        (deviation > 0.0).then(|| deviation / unit)
    };
    median(cells.iter().filter_map(|cell| one(&cell))).unwrap_or(0.5).clamp(0.05, 3.0)
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
