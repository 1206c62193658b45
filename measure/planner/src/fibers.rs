//! Decides whether requests on fibers are worth a try; finds the shapes to compare: from the measured share
//! of a request's time that it waits, and from two measured shapes.

use crate::cell::Cell;
use crate::choice::{Budget, Choice};
use crate::choose;
use crate::profile::{AppKind, Profile};
use crate::recommend::evaluated;

/// The share of its time that a request must wait. A request that waits for half of its time keeps a process
/// busy with one more thread.
pub const WAITS: f64 = 0.5;
/// Returns the share of a request's time that it waits outside Ruby: neither on the CPU nor for the GVL. The
/// value is the server's measurement where no other thread interfered, else that of the fitted model. `None`
/// if neither is known.
pub fn waiting(cells: &[Cell], profile: &Profile) -> Option<f64> {
    let fitted = profile.model.as_ref().filter(|model| model.lock_known).map(|_| profile.waiting);
    let served = cells.iter().filter(|cell| cell.crashed.is_none() && cell.fibers == 0);
    // Without the wait for the GVL (before Ruby 3.2), only a thread on its own shows the share.
    let alone = served.filter(|cell| cell.threads == 1 || cell.gvl_ms.is_some());
    let share = |cell: &Cell| {
        let app = cell.app_ms.filter(|ms| *ms > 0.0)?;
        Some(((app - cell.cpu_ms? - cell.gvl_ms.unwrap_or(0.0)) / app).clamp(0.0, 1.0))
    };
    let mut shares: Vec<f64> = alone.filter_map(share).collect();
    shares.sort_by(f64::total_cmp);
    let measured = shares.get(shares.len() / 2).copied();
    measured.or(fitted)
}

/// Returns whether the app waits enough, and lets other requests run meanwhile.
pub fn worth_a_try(cells: &[Cell], profile: &Profile) -> bool {
    // Only the model detects code that holds the GVL while it waits.
    let lets_others_run = !matches!(profile.kind, AppKind::LockHog | AppKind::Computing);
    lets_others_run && waiting(cells, profile).is_some_and(|share| share >= WAITS)
}

/// Returns the best measured shape with fibers, and the best without; those within the budget, if there are any.
pub fn rivals(cells: &[Cell], budget: &Budget) -> (Option<Choice>, Option<Choice>) {
    let best = |fibers: bool| {
        let of = |budget: &Budget| {
            let fits: Vec<Choice> = evaluated(cells, budget)
                .into_iter()
                .filter(|choice| (choice.shape.fibers > 0) == fibers)
                .collect();
            choose::best_of(fits.iter(), budget).cloned()
        };
        of(budget).or_else(|| of(&Budget { cpus: budget.cpus, ..Budget::default() }))
    };
    (best(true), best(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Shape, Times};
    use crate::{profile, recommend};

    /// Returns a cell of an app on two cores, with a request's milliseconds and the part of them on the CPU.
    fn cell(shape: Shape, app_ms: f64, cpu_ms: f64, users: u32, mib: u64) -> Cell {
        let demand = crate::closed::Demand { wait: app_ms - cpu_ms, lock: cpu_ms, cpu: cpu_ms };
        let present = shape.slots().min(users);
        let rate = crate::closed::throughput(demand, shape.processes, present, 2.0) * 1_000.0;
        let p99 = f64::from(users) * 1_000.0 / rate;
        Cell {
            processes: shape.processes,
            threads: shape.threads,
            fibers: shape.fibers,
            users,
            requests: 600,
            rate_per_s: rate,
            latency_ms: Times { mean: p99, p50: p99, p95: p99, p99, cv: 0.1 },
            app_ms: Some(app_ms),
            cpu_ms: Some(cpu_ms),
            cpu_cores: Some(rate * cpu_ms / 1_000.0),
            cores: Some(2.0),
            pss_bytes: mib << 20,
            ..Cell::default()
        }
    }

    fn share(cells: &[Cell]) -> f64 {
        waiting(cells, &profile(cells)).unwrap()
    }

    #[test]
    fn the_waiting_share_is_that_of_a_thread_on_its_own() {
        let alone = cell(Shape::new(1, 1), 50.0, 1.0, 30, 30);
        // Next to other computing threads, the time in the app is mostly waiting for the GVL.
        let crowd =
            Cell { app_ms: Some(500.0), cpu_ms: Some(1.0), ..cell(Shape::new(1, 8), 50.0, 1.0, 30, 30) };
        assert!((share(&[alone.clone(), crowd]) - 0.98).abs() < 0.03);
        let computing =
            [cell(Shape::new(1, 1), 10.0, 9.8, 30, 30), cell(Shape::new(1, 8), 10.0, 9.8, 30, 30)];
        assert!(share(&computing) < 0.1 && !worth_a_try(&computing, &profile(&computing)));
        let one = [alone];
        assert!(worth_a_try(&one, &profile(&one)));
        let told = Cell { gvl_ms: Some(30.0), ..cell(Shape::new(1, 8), 50.0, 1.0, 30, 30) };
        assert!((share(&[told]) - 0.38).abs() < 0.02, "GVL waits are no waits");
        assert_eq!(waiting(&[], &profile(&[])), None);
    }

    #[test]
    fn code_that_holds_the_lock_while_it_waits_is_not_worth_a_try() {
        let hog = |threads: u32| Cell {
            rate_per_s: 20.0,
            cpu_cores: Some(0.01),
            ..cell(Shape::new(1, threads), 50.0, 0.5, 30, 30)
        };
        let cells = [hog(1), hog(8)];
        assert!(!worth_a_try(&cells, &profile(&cells)), "{:?}", profile(&cells));
    }

    #[test]
    fn fibers_win_by_rate_or_memory_and_not_by_little() {
        let threads = cell(Shape::new(1, 8), 50.0, 0.1, 64, 40);
        let fibers = cell(Shape::new(1, 1).with_fibers(100), 50.0, 0.1, 64, 41);
        let best = |cells: &[Cell]| recommend(cells, &[], &Budget::default()).best.unwrap().shape;
        assert_eq!(best(&[threads.clone(), fibers.clone()]), fibers.shape());
        let many = cell(Shape::new(1, 64), 50.0, 0.1, 64, 42);
        assert_eq!(best(&[many.clone(), fibers.clone()]), many.shape(), "as fast, about as much memory");
        let heavy = Cell { pss_bytes: 60 << 20, ..many };
        assert_eq!(best(&[heavy, fibers.clone()]), fibers.shape());
        let (with, without) = rivals(&[threads.clone(), fibers.clone()], &Budget::default());
        assert_eq!((with.unwrap().shape, without.unwrap().shape), (fibers.shape(), threads.shape()));
        let enough = Budget { rate_per_s: Some(50.0), ..Budget::default() };
        let found = recommend(&[threads.clone(), fibers], &[], &enough).best.unwrap().shape;
        assert_eq!(found, threads.shape(), "both do what is wanted, in as much memory");
    }

    #[test]
    fn connections_count_fibers() {
        let fibers = cell(Shape::new(2, 2).with_fibers(100), 50.0, 0.1, 64, 41);
        assert_eq!((fibers.shape().slots(), fibers.shape().to_string()), (400, "2x2x100".to_owned()));
        let few = Budget { db_connections: Some(100), ..Budget::default() };
        let found = recommend(&[fibers], &[], &few);
        assert!(
            found.best.is_none() && found.rejected[0].why.contains("400 database connections"),
            "{found:?}"
        );
    }

    #[test]
    fn a_crash_with_fibers_says_nothing_about_threads() {
        let mut fibers = cell(Shape::new(1, 1).with_fibers(100), 50.0, 0.1, 64, 41);
        fibers.crashed = Some("Sequel".to_owned());
        let threads = cell(Shape::new(1, 8), 50.0, 0.1, 64, 40);
        let found = recommend(&[fibers, threads.clone()], &[], &Budget::default());
        assert_eq!(found.best.unwrap().shape, threads.shape());
    }

    #[test]
    fn the_memory_of_a_fiber_is_what_is_beyond_processes_and_threads() {
        let mut cells = [(1, 1), (1, 10), (2, 1), (2, 10)]
            .map(|(p, t)| {
                let mut one = cell(Shape::new(p, t), 50.0, 0.1, 1_000, 0);
                one.pss_bytes = 10_000_000 + u64::from(p) * 20_000_000 + u64::from(p * t) * 200_000;
                one
            })
            .to_vec();
        let shape = Shape::new(1, 1).with_fibers(1_000);
        let guessed = crate::Memory::fit(&cells).unwrap();
        assert!((guessed.bytes(shape, 1_000) - 30_200_000.0 - 1_000.0 * 20_480.0).abs() < 1e5, "{guessed:?}");
        let mut one = cell(shape, 50.0, 0.1, 1_000, 0);
        one.pss_bytes = 30_200_000 + 1_000 * 50_000;
        cells.push(one);
        let known = crate::Memory::fit(&cells).unwrap();
        assert!((known.per_fiber_bytes - 50_000.0).abs() < 500.0, "{known:?}");
        assert!((known.per_thread_bytes - 200_000.0).abs() < 1_000.0, "{known:?}");
    }
}
