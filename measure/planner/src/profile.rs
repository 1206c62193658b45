//! The profile of an app from measured cells: the use of its time, its memory, and its crashes.

use serde::{Deserialize, Serialize};

use crate::cell::{Cell, Shape};
use crate::memory::{Leak, Memory};
use crate::model::Model;
use crate::usl::Usl;

/// The category of an app by its main use of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AppKind {
    /// Waiting for something outside: threads help.
    Waiting,
    /// Using the CPU: processes help, up to the number of cores (threads only if it releases the lock).
    Computing,
    /// Both: processes and threads help.
    Mixed,
    /// Holding the lock without using the CPU (C code that waits without releasing it): processes help, threads do not.
    LockHog,
    /// Not enough measurements.
    Unknown,
}

/// Shapes that did not run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Crash {
    pub shapes: Vec<Shape>,
    /// The smallest number of processes with which it always fails; `None` if there is no such number.
    pub from_processes: Option<u32>,
    /// The smallest number of threads with which it always fails.
    pub from_threads: Option<u32>,
    /// The error of the first of these shapes.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    pub kind: AppKind,
    /// Fraction of a request's time spent waiting for something outside. With `running` and `holding` it adds up to 1.
    pub waiting: f64,
    /// Fraction spent running on a CPU.
    pub running: f64,
    /// Fraction spent holding the lock without running.
    pub holding: f64,
    /// Fraction of the time in the app spent waiting for the lock, in the measured cell with the highest value; `None`
    /// if the server did not report it.
    pub lock_wait: Option<f64>,
    /// The speed-up by threads; `None` without suitable cells.
    pub threads_bring: Option<ThreadSpeedup>,
    /// The fitted model.
    pub model: Option<Model>,
    /// The memory model; `None` if unknown.
    pub memory: Option<Memory>,
    pub leak: Option<Leak>,
    pub crash: Option<Crash>,
    /// Scalability law of threads (for a fixed number of processes), if there are enough cells.
    pub threads_law: Option<Usl>,
    /// Scalability law of processes (for a fixed number of threads), if there are enough cells.
    pub processes_law: Option<Usl>,
    /// The profile as sentences, most important first.
    pub words: Vec<String>,
}

/// Throughput of the most threads relative to one, with the same number of processes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ThreadSpeedup {
    pub threads: u32,
    /// Factor over one thread.
    pub times: f64,
}

/// Above this fraction, the app counts as waiting.
const MOSTLY_WAITING: f64 = 0.92;
/// Above this fraction, the app counts as computing.
const MOSTLY_RUNNING: f64 = 0.75;
/// Above this fraction, the app counts as holding the lock idly.
const HOGGING: f64 = 0.25;

/// Returns the profile of the app behind these cells, without sentences.
pub(crate) fn measured(cells: &[Cell]) -> Profile {
    let model = Model::fit(cells).ok();
    let (waiting, running, holding) = model.as_ref().map_or((0.0, 0.0, 0.0), shares);
    let kind = match &model {
        Some(model) if model.lock_known => kind(waiting, running, holding),
        _ => AppKind::Unknown,
    };
    Profile {
        kind,
        waiting,
        running,
        holding,
        lock_wait: lock_wait(cells),
        threads_bring: threads_bring(cells),
        memory: Memory::fit(cells),
        leak: Leak::find(cells),
        crash: crash(cells),
        threads_law: law(cells, |cell| (cell.processes, cell.threads)),
        processes_law: law(cells, |cell| (cell.threads, cell.processes)),
        model,
        words: Vec::new(),
    }
}

fn kind(waiting: f64, running: f64, holding: f64) -> AppKind {
    if holding > HOGGING {
        AppKind::LockHog
    } else if waiting > MOSTLY_WAITING {
        AppKind::Waiting
    } else if running > MOSTLY_RUNNING {
        AppKind::Computing
    } else {
        AppKind::Mixed
    }
}

/// Returns the fractions of time waiting, running, and holding the lock without running.
fn shares(model: &Model) -> (f64, f64, f64) {
    let alone = model.alone_ms();
    let holding = (model.lock_ms - model.cpu_ms).max(0.0);
    (model.wait_ms / alone, model.cpu_ms / alone, holding / alone)
}

fn lock_wait(cells: &[Cell]) -> Option<f64> {
    let share = |cell: &Cell| Some(cell.gvl_ms? / cell.app_ms.filter(|ms| *ms > 0.0)?);
    let served = cells.iter().filter(|cell| cell.crashed.is_none() && cell.fibers == 0);
    served.filter_map(share).max_by(f64::total_cmp)
}

fn threads_bring(cells: &[Cell]) -> Option<ThreadSpeedup> {
    let valid: Vec<&Cell> =
        cells.iter().filter(|cell| cell.is_valid() && cell.users > 1 && cell.fibers == 0).collect();
    let most = valid.iter().filter(|cell| cell.threads > 1 && valid.iter().any(|one| is_single(one, cell)));
    let most = most.max_by_key(|cell| (std::cmp::Reverse(cell.processes), cell.threads))?;
    let single = valid.iter().find(|one| is_single(one, most))?;
    Some(ThreadSpeedup { threads: most.threads, times: most.rate_per_s / single.rate_per_s })
}

/// Returns whether `one` has the same processes as `many` and a single thread.
fn is_single(one: &Cell, many: &Cell) -> bool {
    one.threads == 1 && one.processes == many.processes && one.users == many.users
}

/// Returns the shapes that did not run, and the numbers from which on they always fail.
pub(crate) fn crash(cells: &[Cell]) -> Option<Crash> {
    // A failure with fibers says nothing about processes and threads.
    let (failed, ran): (Vec<&Cell>, Vec<&Cell>) =
        cells.iter().filter(|cell| cell.fibers == 0).partition(|cell| cell.crashed.is_some());
    let text = failed.first()?.crashed.clone()?;
    let line = |of: fn(&Cell) -> u32| {
        let from = failed.iter().map(|cell| of(cell)).min()?;
        let below = ran.iter().all(|cell| of(cell) < from);
        (!ran.is_empty() && below).then_some(from)
    };
    let (from_processes, from_threads) = (line(|cell| cell.processes), line(|cell| cell.threads));
    Some(Crash {
        shapes: failed.iter().map(|cell| cell.shape()).collect(),
        from_processes,
        from_threads,
        text,
    })
}

/// Fits the law along one axis: of the cells with the same first value of `axis`, the group with the most
/// second values.
fn law(cells: &[Cell], axis: fn(&Cell) -> (u32, u32)) -> Option<Usl> {
    let valid: Vec<&Cell> = cells.iter().filter(|cell| cell.is_valid() && cell.fibers == 0).collect();
    let points = |shared: u32| -> Vec<(f64, f64)> {
        let group = valid.iter().filter(|cell| axis(cell).0 == shared);
        // More threads than concurrent requests are not used.
        let used = |cell: &Cell| if cell.users > 0 { axis(cell).1.min(cell.users) } else { axis(cell).1 };
        group.map(|cell| (f64::from(used(cell)), cell.rate_per_s)).collect()
    };
    let mut shared: Vec<u32> = valid.iter().map(|cell| axis(cell).0).collect();
    shared.sort_unstable();
    shared.dedup();
    shared
        .into_iter()
        .filter_map(|shared| Usl::fit(&points(shared)))
        .reduce(|best, next| if next.points > best.points { next } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closed::{Demand, throughput};
    use crate::memory::Leak;
    use crate::profile;

    /// Returns the cells of an app with this demand, on two cores under 30 users.
    fn cells(demand: Demand, with_cpu: bool) -> Vec<Cell> {
        let cell = |&(processes, threads): &(u32, u32)| {
            let present = (processes * threads).min(30);
            let rate = throughput(demand, processes, present, 2.0) * 1_000.0;
            let cpu_cores = with_cpu.then_some(rate * demand.cpu / 1_000.0);
            Cell {
                processes,
                threads,
                users: 30,
                rate_per_s: rate,
                cpu_cores,
                cores: Some(2.0),
                pss_bytes: 1 << 24,
                ..Cell::default()
            }
        };
        [(1, 1), (1, 10), (2, 1), (4, 4), (10, 1)].iter().map(cell).collect()
    }

    fn kind_of(wait: f64, lock: f64, cpu: f64, with_cpu: bool) -> AppKind {
        profile(&cells(Demand { wait, lock, cpu }, with_cpu)).kind
    }

    #[test]
    fn known_profiles_are_recognized_with_and_without_cpu_times() {
        for tell in [true, false] {
            assert_eq!(kind_of(100.0, 1.0, 1.0, tell), AppKind::Waiting);
            assert_eq!(kind_of(0.5, 27.0, 27.0, tell), AppKind::Computing);
            assert_eq!(kind_of(60.0, 25.0, 25.0, tell), AppKind::Mixed);
            assert_eq!(kind_of(0.5, 50.0, 0.5, tell), AppKind::LockHog);
        }
        // C code that computes without the lock is recognized only with CPU times.
        let outside = profile(&cells(Demand { wait: 0.0, lock: 2.0, cpu: 30.0 }, true));
        assert_eq!(outside.kind, AppKind::Computing);
        assert!(outside.model.unwrap().lock_ms < 20.0);
    }

    #[test]
    fn the_fit_recovers_the_demand() {
        for (wait, lock, cpu) in [(100.0, 5.0, 5.0), (40.0, 20.0, 20.0), (10.0, 30.0, 5.0)] {
            let model = profile(&cells(Demand { wait, lock, cpu }, true)).model.unwrap();
            assert!((model.lock_ms - lock).abs() < 0.1 * (wait + lock) && model.error < 0.05, "{model:?}");
            assert!((model.wait_ms - wait).abs() < 0.1 * (wait + lock), "{model:?}");
        }
    }

    #[test]
    fn an_outlier_does_not_spoil_the_fit() {
        let mut all = cells(Demand { wait: 100.0, lock: 5.0, cpu: 5.0 }, true);
        for factor in [0.4, 3.0] {
            all[3].rate_per_s *= factor;
            let model = profile(&all).model.unwrap();
            assert!((model.alone_ms() - 105.0).abs() < 8.0, "{model:?}");
            all[3].rate_per_s /= factor;
        }
    }

    #[test]
    fn too_few_cells_are_unknown() {
        let all = cells(Demand { wait: 50.0, lock: 10.0, cpu: 10.0 }, false);
        assert_eq!(profile(&all[..1]).kind, AppKind::Unknown);
        assert_eq!(profile(&[]).kind, AppKind::Unknown);
        assert!(!profile(&[]).words.is_empty());
    }

    #[test]
    fn crashing_shapes_have_a_boundary() {
        let mut all = cells(Demand { wait: 50.0, lock: 10.0, cpu: 10.0 }, true);
        for cell in all.iter_mut().filter(|cell| cell.processes >= 2) {
            (cell.crashed, cell.rate_per_s) = (Some("out of licences".to_owned()), 0.0);
        }
        let found = profile(&all);
        let crash = found.crash.unwrap();
        assert_eq!((crash.from_processes, crash.from_threads, crash.shapes.len()), (Some(2), None, 3));
        assert!(
            found
                .words
                .iter()
                .any(|words| words.contains("2 processes") && words.contains("out of licences")),
            "{:?}",
            found.words
        );
    }

    #[test]
    fn a_leak_is_reported_first() {
        let mut all = cells(Demand { wait: 50.0, lock: 10.0, cpu: 10.0 }, true);
        let point = |i: u64| crate::cell::MemoryPoint { requests: i * 100, pss_bytes: (50 + i) << 20 };
        all[0].memory = (0..20).map(point).collect();
        let found = profile(&all);
        assert!(matches!(found.leak, Some(Leak { doubles_after: 6_000..8_000, .. })), "{:?}", found.leak);
        assert!(found.words[1].contains("leak"), "{:?}", found.words);
    }
}
