//! Memory of shapes that were not measured, and memory leaks.

use serde::{Deserialize, Serialize};

use crate::cell::{Cell, MemoryPoint, Shape, on_threads};
use crate::squares::{Equation, solve};

/// Memory as base + processes x per_process + threads in use x per_thread, in bytes; where fibers serve
/// requests, + fibers in use x per_fiber.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Independent of the shape.
    pub base_bytes: f64,
    pub per_process_bytes: f64,
    /// Per thread in use at the same time.
    pub per_thread_bytes: f64,
    /// Per fiber in use at the same time: measured, or Ruby's usual need.
    #[serde(default = "usual_fiber")]
    pub per_fiber_bytes: f64,
    /// Typical relative error of the fit.
    pub error: f64,
}

/// The bytes of a fiber that waits in the middle of a small request.
const FIBER_BYTES: f64 = 20_480.0;

fn usual_fiber() -> f64 {
    FIBER_BYTES
}

/// Sets of unknowns (base, processes, threads), most plausible first.
const SETS: [[bool; 3]; 6] = [
    [false, true, false],
    [true, true, false],
    [false, true, true],
    [true, true, true],
    [true, false, true],
    [true, false, false],
];

impl Memory {
    /// Fits the cells with known memory; `None` if there are none. With one cell, all memory is attributed to its
    /// processes.
    pub fn fit(cells: &[Cell]) -> Option<Memory> {
        let known: Vec<&Cell> = cells
            .iter()
            .filter(|cell| cell.crashed.is_none() && cell.pss_bytes > 0 && cell.processes > 0)
            .collect();
        let (known, fibers) = (on_threads(known.clone()), known);
        let equation = |cell: &&Cell| {
            let result = cell.pss_bytes as f64;
            let factors = [1.0, f64::from(cell.processes), in_use(cell.shape(), cell.users)];
            Equation { factors, result, weight: 1.0 / (result * result) }
        };
        let equations: Vec<Equation> = known.iter().map(equation).collect();
        let [base_bytes, per_process_bytes, per_thread_bytes] = solve(&equations, &SETS)?;
        let per_fiber_bytes = FIBER_BYTES;
        let mut fitted =
            Memory { base_bytes, per_process_bytes, per_thread_bytes, per_fiber_bytes, error: 0.0 };
        fitted.per_fiber_bytes = fitted.fiber(&fibers);
        let off =
            |cell: &&Cell| (fitted.bytes(cell.shape(), cell.users) / cell.pss_bytes as f64 - 1.0).powi(2);
        let error = (known.iter().map(off).sum::<f64>() / known.len() as f64).sqrt();
        Some(Memory { error, ..fitted })
    }

    /// Returns the bytes of `shape` with `users` concurrent requests (0: as many as it has threads).
    pub fn bytes(&self, shape: Shape, users: u32) -> f64 {
        let threads = shape.processes.saturating_mul(shape.threads);
        let serving = match shape.fibers {
            0 => self.per_thread_bytes * in_use(shape, users),
            _ => self.per_thread_bytes * f64::from(threads) + self.per_fiber_bytes * in_use(shape, users),
        };
        self.base_bytes + self.per_process_bytes * f64::from(shape.processes) + serving
    }

    /// Returns the bytes of a fiber: the part of the memory of cells with fibers beyond processes and threads.
    fn fiber(&self, cells: &[&Cell]) -> f64 {
        let with = cells.iter().filter(|cell| cell.fibers > 0);
        let all = with.map(|cell| {
            let others = Memory { per_fiber_bytes: 0.0, ..*self }.bytes(cell.shape(), cell.users);
            ((cell.pss_bytes as f64 - others).max(0.0), in_use(cell.shape(), cell.users))
        });
        let (bytes, fibers) = all.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        if fibers > 0.0 { bytes / fibers } else { FIBER_BYTES }
    }
}

/// Returns the threads, or fibers, that serve at the same time.
fn in_use(shape: Shape, users: u32) -> f64 {
    f64::from(if users > 0 { shape.slots().min(users) } else { shape.slots() })
}

/// Memory that keeps growing with the number of requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Leak {
    pub bytes_per_request: f64,
    /// Requests until memory doubles, for the smallest shape that shows it.
    pub doubles_after: u64,
}

/// Least growth that counts as a leak, in bytes and as a fraction of all memory.
const LEAST_GROWTH: (f64, f64) = (1_048_576.0, 0.03);

impl Leak {
    /// Finds a leak, if at least half of the cells with enough samples show steady growth.
    pub fn find(cells: &[Cell]) -> Option<Leak> {
        let watched: Vec<&Cell> = cells.iter().filter(|cell| cell.memory.len() >= 6).collect();
        let mut found: Vec<Leak> = watched.iter().filter_map(|cell| growth(&cell.memory)).collect();
        if found.is_empty() || found.len() * 2 < watched.len() {
            return None;
        }
        let doubles_after = found.iter().map(|leak| leak.doubles_after).min()?;
        found.sort_by(|a, b| a.bytes_per_request.total_cmp(&b.bytes_per_request));
        Some(Leak { doubles_after, ..found[found.len() / 2] })
    }
}

/// Detects growth. Warm-up fills caches and heaps and then levels off; a leak grows in the second half as in the first.
fn growth(course: &[MemoryPoint]) -> Option<Leak> {
    let (first, last) = course.split_at(course.len() / 2);
    let (early, late) = (slope(first)?, slope(last)?);
    let (begin, end) = (last.first()?, last.last()?);
    let grown = late * end.requests.saturating_sub(begin.requests) as f64;
    let enough = grown > LEAST_GROWTH.0 && grown > LEAST_GROWTH.1 * begin.pss_bytes as f64;
    let steady = late > 0.5 * early && straight(last, late);
    let doubles_after = (end.pss_bytes as f64 / late) as u64;
    (enough && steady).then_some(Leak { bytes_per_request: late, doubles_after })
}

/// Returns bytes per request by linear regression.
fn slope(course: &[MemoryPoint]) -> Option<f64> {
    let (x, y) = means(course);
    let off = |point: &MemoryPoint| (point.requests as f64 - x, point.pss_bytes as f64 - y);
    let both: f64 = course.iter().map(off).map(|(x, y)| x * y).sum();
    let alone: f64 = course.iter().map(off).map(|(x, _)| x * x).sum();
    (alone > 0.0).then(|| both / alone)
}

/// Returns whether the line explains most of the variation.
fn straight(course: &[MemoryPoint], slope: f64) -> bool {
    let (x, y) = means(course);
    let all: f64 = course.iter().map(|point| (point.pss_bytes as f64 - y).powi(2)).sum();
    let line = |point: &MemoryPoint| y + slope * (point.requests as f64 - x);
    let left: f64 = course.iter().map(|point| (point.pss_bytes as f64 - line(point)).powi(2)).sum();
    left < 0.4 * all
}

fn means(course: &[MemoryPoint]) -> (f64, f64) {
    let n = course.len().max(1) as f64;
    let x = course.iter().map(|point| point.requests as f64).sum::<f64>() / n;
    let y = course.iter().map(|point| point.pss_bytes as f64).sum::<f64>() / n;
    (x, y)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1_048_576.0;

    fn cell(processes: u32, threads: u32, mib: f64) -> Cell {
        Cell { processes, threads, users: 30, pss_bytes: (mib * MIB) as u64, ..Cell::default() }
    }

    fn course(of: impl Fn(f64) -> f64) -> Cell {
        let point = |i: u64| MemoryPoint { requests: i * 100, pss_bytes: (of(i as f64) * MIB) as u64 };
        Cell { memory: (0..20).map(point).collect(), ..cell(1, 1, 50.0) }
    }

    #[test]
    fn base_process_and_thread() {
        let made = |p: u32, t: u32| cell(p, t, 10.0 + 20.0 * f64::from(p) + 0.5 * f64::from((p * t).min(30)));
        let memory = Memory::fit(&[made(1, 1), made(1, 10), made(2, 1), made(2, 10), made(1, 100)]).unwrap();
        assert!((memory.base_bytes / MIB - 10.0).abs() < 0.01, "{memory:?}");
        assert!((memory.per_process_bytes / MIB - 20.0).abs() < 0.01);
        assert!((memory.per_thread_bytes / MIB - 0.5).abs() < 0.01);
        assert!((memory.bytes(Shape::new(10, 10), 30) / MIB - 225.0).abs() < 0.1);
        assert!(memory.error < 1e-3);
    }

    #[test]
    fn few_cells_determine_less() {
        assert_eq!(Memory::fit(&[]), None);
        assert_eq!(Memory::fit(&[cell(1, 1, 0.0)]), None);
        let one = Memory::fit(&[cell(2, 5, 80.0)]).unwrap();
        assert_eq!((one.base_bytes, one.per_thread_bytes), (0.0, 0.0));
        assert!((one.per_process_bytes / MIB - 40.0).abs() < 1e-6, "{one:?}");
        let two = Memory::fit(&[cell(1, 5, 50.0), cell(2, 5, 80.0)]).unwrap();
        assert!((two.bytes(Shape::new(4, 5), 30) / MIB - 140.0).abs() < 1.0, "{two:?}");
    }

    #[test]
    fn steady_growth_is_a_leak() {
        let leak = Leak::find(&[course(|i| 50.0 + 2.0 * i)]).unwrap();
        assert!((leak.bytes_per_request - 2.0 * MIB / 100.0).abs() < 10.0, "{leak:?}");
        assert!((4_300..4_500).contains(&leak.doubles_after), "{leak:?}");
        // In steps, as heaps grow.
        assert!(Leak::find(&[course(|i| 50.0 + 6.0 * (i / 3.0).floor())]).is_some());
    }

    #[test]
    fn growth_that_levels_off_is_not_a_leak() {
        assert_eq!(Leak::find(&[course(|i| 50.0 + 30.0 * (1.0 - (-i / 3.0).exp()))]), None);
        assert_eq!(Leak::find(&[course(|i| 50.0 + f64::from(i as u32 % 2))]), None);
        assert_eq!(Leak::find(&[course(|_| 50.0)]), None);
        assert_eq!(Leak::find(&[course(|i| 50.0 - i)]), None);
        assert_eq!(Leak::find(&[cell(1, 1, 50.0)]), None);
    }
}
