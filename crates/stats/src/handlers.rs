//! The counters of mruby handlers, which their front thread writes and any thread reads.
//!
//! Contract:
//! 1. Only one thread counts with a [`HandlerCounts`], so each count is a load and a store, without a lock.
//! 2. The counters outlive the VMs. When a VM ends, its tasks and its heap have to be subtracted.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters of one thread's handlers. Clones share the same counters: the thread keeps one, and snapshots
/// are taken of another.
#[derive(Debug, Clone, Default)]
pub struct HandlerCounts(Arc<Counted>);

/// Has its own cache line, so that threads do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counted {
    requests: AtomicU64,
    failures: AtomicU64,
    refused: AtomicU64,
    tasks: AtomicU64,
    tasks_most: AtomicU64,
    tasks_max: AtomicU64,
    waiting: AtomicU64,
    heap_bytes: AtomicU64,
    heap_max_bytes: AtomicU64,
    vms_replaced: AtomicU64,
    reloads: AtomicU64,
}

/// Changes a number without an atomic operation. Not allowed for numbers that other threads write too.
fn change(number: &AtomicU64, to: impl FnOnce(u64) -> u64) -> u64 {
    let now = to(number.load(Relaxed));
    number.store(now, Relaxed);
    now
}

fn more(number: &AtomicU64) -> u64 {
    change(number, |count| count.wrapping_add(1))
}

fn fewer(number: &AtomicU64) {
    change(number, |count| count.saturating_sub(1));
}

impl HandlerCounts {
    /// Sets the limits of a VM: bytes of heap, and tasks at a time.
    pub fn limits(&self, heap_max_bytes: u64, tasks_max: u64) {
        self.0.heap_max_bytes.store(heap_max_bytes, Relaxed);
        self.0.tasks_max.store(tasks_max, Relaxed);
    }

    /// Counts a request for the handlers.
    #[inline]
    pub fn asked(&self) {
        more(&self.0.requests);
    }

    /// Counts a request that the handlers failed to serve.
    pub fn failed(&self) {
        more(&self.0.failures);
    }

    /// Counts a request for which no task was available. It is also a failure.
    pub fn refused(&self) {
        more(&self.0.refused);
    }

    /// Counts the beginning of a task.
    #[inline]
    pub fn began(&self) {
        let tasks = more(&self.0.tasks);
        if tasks > self.0.tasks_most.load(Relaxed) {
            self.0.tasks_most.store(tasks, Relaxed);
        }
    }

    /// Counts the end of a task.
    #[inline]
    pub fn ended(&self) {
        fewer(&self.0.tasks);
    }

    /// Counts a task that begins to wait.
    #[inline]
    pub fn suspended(&self) {
        more(&self.0.waiting);
    }

    /// Counts a task that continues after waiting.
    #[inline]
    pub fn resumed(&self) {
        fewer(&self.0.waiting);
    }

    /// Changes the heap size of a VM from `before` bytes at the last call to `now`.
    #[inline]
    pub fn heap(&self, before: usize, now: usize) {
        if before != now {
            change(&self.0.heap_bytes, |bytes| (bytes + now as u64).saturating_sub(before as u64));
        }
    }

    /// Counts a VM that was unusable and was replaced.
    pub fn replaced(&self) {
        more(&self.0.vms_replaced);
    }

    /// Counts the activation of changed handlers.
    pub fn reloaded(&self) {
        more(&self.0.reloads);
    }

    fn look(&self, index: u32) -> HandlerThread {
        let now = |number: &AtomicU64| number.load(Relaxed);
        let counted = &*self.0;
        HandlerThread {
            index,
            requests: now(&counted.requests),
            failures: now(&counted.failures),
            refused: now(&counted.refused),
            tasks: now(&counted.tasks),
            waiting: now(&counted.waiting),
            tasks_most: now(&counted.tasks_most),
            tasks_max: now(&counted.tasks_max),
            heap_bytes: now(&counted.heap_bytes),
            heap_max_bytes: now(&counted.heap_max_bytes),
            vms_replaced: now(&counted.vms_replaced),
            reloads: now(&counted.reloads),
        }
    }
}

/// The mruby handlers of all front threads together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandlersSnapshot {
    /// Requests for the handlers.
    pub requests: u64,
    /// Requests that the handlers failed to serve.
    pub failures: u64,
    /// Failures because no task was available (`mruby.max_tasks`).
    pub refused: u64,
    /// Existing tasks: requests, and blocks given to `task`.
    pub tasks: u64,
    /// Tasks that wait.
    pub waiting: u64,
    /// The largest possible number of tasks in all threads.
    pub tasks_max: u64,
    /// The heap bytes of all VMs.
    pub heap_bytes: u64,
    /// The largest possible heap in all threads.
    pub heap_max_bytes: u64,
    /// VMs that failed or were full, and were replaced.
    pub vms_replaced: u64,
    /// How often changed handlers were activated, by the thread with the highest count.
    pub reloads: u64,
    /// The figures of each front thread.
    pub threads: Vec<HandlerThread>,
}

/// The mruby handlers of one front thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandlerThread {
    /// The index of the thread, from 0.
    pub index: u32,
    /// See [`HandlersSnapshot`].
    pub requests: u64,
    /// See [`HandlersSnapshot`].
    pub failures: u64,
    /// See [`HandlersSnapshot`].
    pub refused: u64,
    /// See [`HandlersSnapshot`].
    pub tasks: u64,
    /// See [`HandlersSnapshot`].
    pub waiting: u64,
    /// The largest `tasks` since the start.
    pub tasks_most: u64,
    /// The limit of `tasks` (`mruby.max_tasks`, the largest of all routes).
    pub tasks_max: u64,
    /// The heap bytes of its VM, and of earlier VMs that still have requests.
    pub heap_bytes: u64,
    /// The heap limit of its VM (`mruby.heap`).
    pub heap_max_bytes: u64,
    /// See [`HandlersSnapshot`].
    pub vms_replaced: u64,
    /// How often changed handlers were activated.
    pub reloads: u64,
}

impl HandlersSnapshot {
    /// Returns the sum of the counters of `threads`; `None` if there are none, because there are no handlers.
    pub fn of(threads: &[HandlerCounts]) -> Option<HandlersSnapshot> {
        if threads.is_empty() {
            return None;
        }
        let threads: Vec<HandlerThread> =
            (0..).zip(threads).map(|(index, counts)| counts.look(index)).collect();
        let sum = |of: fn(&HandlerThread) -> u64| threads.iter().map(of).fold(0, u64::saturating_add);
        Some(HandlersSnapshot {
            requests: sum(|thread| thread.requests),
            failures: sum(|thread| thread.failures),
            refused: sum(|thread| thread.refused),
            tasks: sum(|thread| thread.tasks),
            waiting: sum(|thread| thread.waiting),
            tasks_max: sum(|thread| thread.tasks_max),
            heap_bytes: sum(|thread| thread.heap_bytes),
            heap_max_bytes: sum(|thread| thread.heap_max_bytes),
            vms_replaced: sum(|thread| thread.vms_replaced),
            reloads: threads.iter().map(|thread| thread.reloads).max().unwrap_or_default(),
            threads,
        })
    }

    /// Returns the thread with the least free heap, which will reach its limit first.
    pub fn fullest(&self) -> Option<&HandlerThread> {
        self.threads.iter().max_by(|one, other| one.heap_share().total_cmp(&other.heap_share()))
    }

    /// Returns the thread with the fewest free tasks.
    pub fn busiest(&self) -> Option<&HandlerThread> {
        self.threads.iter().max_by(|one, other| one.tasks_share().total_cmp(&other.tasks_share()))
    }
}

impl HandlerThread {
    /// Returns the used share of the heap limit.
    pub fn heap_share(&self) -> f64 {
        share(self.heap_bytes, self.heap_max_bytes)
    }

    /// Returns the used share of the task limit.
    pub fn tasks_share(&self) -> f64 {
        share(self.tasks, self.tasks_max)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up() {
        let threads = [HandlerCounts::default(), HandlerCounts::default()];
        for thread in &threads {
            thread.limits(1_000, 20);
            thread.asked();
        }
        let (one, other) = (&threads[0], &threads[1]);
        one.asked();
        (0..3).for_each(|_| one.began());
        one.suspended();
        one.suspended();
        one.resumed();
        one.ended();
        other.failed();
        other.refused();
        other.replaced();
        one.reloaded();
        one.reloaded();
        other.reloaded();
        let all = HandlersSnapshot::of(&threads).unwrap();
        assert_eq!((all.requests, all.failures, all.refused), (3, 1, 1));
        assert_eq!((all.tasks, all.waiting, all.tasks_max), (2, 1, 40));
        assert_eq!((all.vms_replaced, all.reloads, all.heap_max_bytes), (1, 2, 2_000));
        let each: Vec<_> = all.threads.iter().map(|thread| (thread.index, thread.tasks_most)).collect();
        assert_eq!(each, [(0, 3), (1, 0)]);
        assert_eq!(HandlersSnapshot::of(&[]), None);
    }

    #[test]
    fn the_heap_is_that_of_all_vms_of_a_thread() {
        let counts = HandlerCounts::default();
        let heap = || HandlersSnapshot::of(std::slice::from_ref(&counts)).unwrap().heap_bytes;
        counts.heap(0, 300);
        counts.heap(0, 500);
        assert_eq!(heap(), 800);
        counts.heap(300, 100);
        assert_eq!(heap(), 600);
        counts.heap(500, 0);
        counts.heap(100, 0);
        assert_eq!(heap(), 0);
    }

    #[test]
    fn the_thread_that_is_next_to_its_limit_is_found() {
        let threads = [HandlerCounts::default(), HandlerCounts::default(), HandlerCounts::default()];
        threads.iter().for_each(|thread| thread.limits(1_000, 10));
        threads[1].heap(0, 900);
        threads[2].heap(0, 800);
        threads[2].began();
        let all = HandlersSnapshot::of(&threads).unwrap();
        assert_eq!(all.fullest().map(|thread| (thread.index, thread.heap_share())), Some((1, 0.9)));
        assert_eq!(all.busiest().map(|thread| (thread.index, thread.tasks_share())), Some((2, 0.1)));
        assert_eq!(HandlersSnapshot::default().fullest(), None);
        assert_eq!(HandlerThread { heap_bytes: 7, ..HandlerThread::default() }.heap_share(), 0.0);
    }
}
