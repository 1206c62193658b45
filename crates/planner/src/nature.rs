//! What an app is, from cells that were measured: where its time goes, what its memory does, where it breaks.

use serde::{Deserialize, Serialize};

use crate::cell::{Cell, Shape};
use crate::memory::{Leak, Memory};
use crate::model::Model;
use crate::said;
use crate::usl::Usl;

/// What an app does most of its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It waits for something outside: threads help.
    Waiting,
    /// It uses the CPU: processes help, up to the cores (and threads only when it does so without the lock).
    Computing,
    /// Both: processes and threads.
    Mixed,
    /// It holds the lock while it does not use the CPU (C code that waits without letting go of it): processes help,
    /// threads do not.
    LockHog,
    /// Too little was measured to say.
    Unknown,
}

/// Shapes that did not run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Crash {
    /// Which.
    pub shapes: Vec<Shape>,
    /// From so many processes on it fails, whatever the threads; `None` when there is no such line.
    pub from_processes: Option<u32>,
    /// From so many threads on it fails, whatever the processes.
    pub from_threads: Option<u32>,
    /// What the first of them said.
    pub text: String,
}

/// What an app is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Nature {
    /// In one word.
    pub kind: Kind,
    /// Share of an undisturbed request's time that it waits for something outside; with `running` and `holding` 1.
    pub waiting: f64,
    /// Share that it runs on a CPU.
    pub running: f64,
    /// Share that it holds the lock without running.
    pub holding: f64,
    /// Share of the time in the app that was spent waiting for the lock, in the measured cell where that was most; `None`
    /// when the server did not tell.
    pub lock_wait: Option<f64>,
    /// What the most threads of one process did, in rates of one thread; `None` without such cells.
    pub threads_bring: Option<ThreadsBring>,
    /// The model behind it.
    pub model: Option<Model>,
    /// Memory; `None` when no cell told it.
    pub memory: Option<Memory>,
    /// Whether memory goes on growing.
    pub leak: Option<Leak>,
    /// What did not run.
    pub crash: Option<Crash>,
    /// Law of threads (one number of processes), when there are cells for it.
    pub threads_law: Option<Usl>,
    /// Law of processes (one number of threads), when there are cells for it.
    pub processes_law: Option<Usl>,
    /// All this in plain words, most important first.
    pub words: Vec<String>,
}

/// How much more the most threads do than one, with as many processes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ThreadsBring {
    /// So many threads.
    pub threads: u32,
    /// So many times the rate of one.
    pub times: f64,
}

/// Above this share of its time it waits and does little else.
const MOSTLY_WAITING: f64 = 0.92;
/// Above this share it runs and does little else.
const MOSTLY_RUNNING: f64 = 0.75;
/// Above this share the lock is held for nothing.
const HOGGING: f64 = 0.25;

/// What the app behind these cells is.
pub fn nature(cells: &[Cell]) -> Nature {
    let model = Model::fit(cells).ok();
    let (waiting, running, holding) = model.as_ref().map_or((0.0, 0.0, 0.0), shares);
    let kind = match &model {
        Some(model) if model.lock_known => kind(waiting, running, holding),
        _ => Kind::Unknown,
    };
    let mut nature = Nature {
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
    };
    nature.words = said::nature(&nature);
    nature
}

fn kind(waiting: f64, running: f64, holding: f64) -> Kind {
    if holding > HOGGING {
        Kind::LockHog
    } else if waiting > MOSTLY_WAITING {
        Kind::Waiting
    } else if running > MOSTLY_RUNNING {
        Kind::Computing
    } else {
        Kind::Mixed
    }
}

/// Waiting, running, holding the lock without running.
fn shares(model: &Model) -> (f64, f64, f64) {
    let alone = model.alone_ms();
    let holding = (model.lock_ms - model.cpu_ms).max(0.0);
    (model.wait_ms / alone, model.cpu_ms / alone, holding / alone)
}

fn lock_wait(cells: &[Cell]) -> Option<f64> {
    let share = |cell: &Cell| Some(cell.gvl_ms? / cell.app_ms.filter(|ms| *ms > 0.0)?);
    cells.iter().filter(|cell| cell.crashed.is_none()).filter_map(share).max_by(f64::total_cmp)
}

fn threads_bring(cells: &[Cell]) -> Option<ThreadsBring> {
    let told: Vec<&Cell> = cells.iter().filter(|cell| cell.tells() && cell.users > 1).collect();
    let most = told.iter().filter(|cell| cell.threads > 1 && told.iter().any(|one| is_single(one, cell)));
    let most = most.max_by_key(|cell| (std::cmp::Reverse(cell.processes), cell.threads))?;
    let single = told.iter().find(|one| is_single(one, most))?;
    Some(ThreadsBring { threads: most.threads, times: most.rate_per_s / single.rate_per_s })
}

/// Whether `one` is `many` with a single thread.
fn is_single(one: &Cell, many: &Cell) -> bool {
    one.threads == 1 && one.processes == many.processes && one.users == many.users
}

/// What did not run, and where the line is.
pub(crate) fn crash(cells: &[Cell]) -> Option<Crash> {
    let (failed, ran): (Vec<&Cell>, Vec<&Cell>) = cells.iter().partition(|cell| cell.crashed.is_some());
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

/// The law along one axis: of the cells that share what `axis` gives first, the group with most different second values.
fn law(cells: &[Cell], axis: fn(&Cell) -> (u32, u32)) -> Option<Usl> {
    let told: Vec<&Cell> = cells.iter().filter(|cell| cell.tells()).collect();
    let points = |shared: u32| -> Vec<(f64, f64)> {
        let group = told.iter().filter(|cell| axis(cell).0 == shared);
        // More threads than requests at a time are not used.
        let used = |cell: &Cell| if cell.users > 0 { axis(cell).1.min(cell.users) } else { axis(cell).1 };
        group.map(|cell| (f64::from(used(cell)), cell.rate_per_s)).collect()
    };
    let mut shared: Vec<u32> = told.iter().map(|cell| axis(cell).0).collect();
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

    /// Cells as an app of that demand makes them on two cores under 30 users.
    fn cells(demand: Demand, tell_cpu: bool) -> Vec<Cell> {
        let cell = |&(processes, threads): &(u32, u32)| {
            let present = (processes * threads).min(30);
            let rate = throughput(demand, processes, present, 2.0) * 1_000.0;
            let cpu_cores = tell_cpu.then_some(rate * demand.cpu / 1_000.0);
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

    fn kind_of(wait: f64, lock: f64, cpu: f64, tell_cpu: bool) -> Kind {
        nature(&cells(Demand { wait, lock, cpu }, tell_cpu)).kind
    }

    #[test]
    fn known_natures_are_recognised_with_and_without_cpu_times() {
        for tell in [true, false] {
            assert_eq!(kind_of(100.0, 1.0, 1.0, tell), Kind::Waiting);
            assert_eq!(kind_of(0.5, 27.0, 27.0, tell), Kind::Computing);
            assert_eq!(kind_of(60.0, 25.0, 25.0, tell), Kind::Mixed);
            assert_eq!(kind_of(0.5, 50.0, 0.5, tell), Kind::LockHog);
        }
        // C code that computes without the lock: CPU times have to be known.
        let outside = nature(&cells(Demand { wait: 0.0, lock: 2.0, cpu: 30.0 }, true));
        assert_eq!(outside.kind, Kind::Computing);
        assert!(outside.model.unwrap().lock_ms < 20.0);
    }

    #[test]
    fn the_fit_finds_what_was_put_in() {
        for (wait, lock, cpu) in [(100.0, 5.0, 5.0), (40.0, 20.0, 20.0), (10.0, 30.0, 5.0)] {
            let model = nature(&cells(Demand { wait, lock, cpu }, true)).model.unwrap();
            assert!((model.lock_ms - lock).abs() < 0.1 * (wait + lock) && model.error < 0.05, "{model:?}");
            assert!((model.wait_ms - wait).abs() < 0.1 * (wait + lock), "{model:?}");
        }
    }

    #[test]
    fn one_cell_that_went_wrong_does_not_spoil_the_fit() {
        let mut all = cells(Demand { wait: 100.0, lock: 5.0, cpu: 5.0 }, true);
        for factor in [0.4, 3.0] {
            all[3].rate_per_s *= factor;
            let model = nature(&all).model.unwrap();
            assert!((model.alone_ms() - 105.0).abs() < 8.0, "{model:?}");
            all[3].rate_per_s /= factor;
        }
    }

    #[test]
    fn too_little_is_unknown() {
        let all = cells(Demand { wait: 50.0, lock: 10.0, cpu: 10.0 }, false);
        assert_eq!(nature(&all[..1]).kind, Kind::Unknown);
        assert_eq!(nature(&[]).kind, Kind::Unknown);
        assert!(!nature(&[]).words.is_empty());
    }

    #[test]
    fn what_crashes_has_a_line() {
        let mut all = cells(Demand { wait: 50.0, lock: 10.0, cpu: 10.0 }, true);
        for cell in all.iter_mut().filter(|cell| cell.processes >= 2) {
            (cell.crashed, cell.rate_per_s) = (Some("out of licences".to_owned()), 0.0);
        }
        let found = nature(&all);
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
    fn a_leak_is_said_first() {
        let mut all = cells(Demand { wait: 50.0, lock: 10.0, cpu: 10.0 }, true);
        let point = |i: u64| crate::cell::MemoryPoint { requests: i * 100, pss_bytes: (50 + i) << 20 };
        all[0].memory = (0..20).map(point).collect();
        let found = nature(&all);
        assert!(matches!(found.leak, Some(Leak { doubles_after: 6_000..8_000, .. })), "{:?}", found.leak);
        assert!(found.words[1].contains("leak"), "{:?}", found.words);
    }
}
