//! The counters of mruby handlers, which their front thread writes and any thread reads.
//!
//! Contract:
//! 1. Only one thread counts with a [`HandlerCounts`], so each count is a load and a store, without a lock.
//! 2. The counters outlive the VMs. When a VM ends, its tasks and its heap have to be subtracted.

use crate::figures::{Merged, figures};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters of one thread's handlers. Clones share the same counters: the thread keeps one, and snapshots
/// are taken of another.
#[derive(Debug, Clone, Default)]
pub struct HandlerCounts(Arc<Counted>);

/// Has its own cache line, so that threads do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counted(HandlerCells);

impl Deref for Counted {
    type Target = HandlerCells;

    fn deref(&self) -> &HandlerCells {
        &self.0
    }
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
}

figures! {
    /// The mruby handlers of all front threads.
    #[derive(Default, Eq)]
    pub struct HandlersSnapshot {
        /// Their figures together.
        #[serde(flatten)]
        all: HandlerFigures = flat,
        /// The same for each front thread.
        threads: Vec<HandlerFigures>,
    }

    /// The mruby handlers of one front thread, or of all together.
    #[derive(Default, Eq)]
    #[serde(default)]
    pub struct HandlerFigures: Merged, HandlerCells {
        /// In `threads[]`: the number of the thread, from 0.
        #[serde(skip_serializing_if = "Option::is_none")]
        index: Option<u64> = own,
        /// Requests that went to handlers; a request that a handler sends through the server again
        /// (`H2O.reprocess`, `x-reproxy-url`) counts again.
        requests: u64 = counter,
        /// Failures of handlers: an exception, no response, a limit (`max_tasks`, `request_heap`,
        /// `step_time`, `deadline`), a VM that broke, an `x-reproxy-url` that leads nowhere; also after the
        /// head of a response. Not failures of clients, and not a 500 that a handler returns itself.
        failures: u64 = counter,
        /// The part of `failures` that arrived while `max_tasks` were running (503).
        refused: u64 = counter,
        /// Current tasks: requests, blocks given to `task`, and those of either that were cancelled and run
        /// their `ensure`.
        tasks: u64 = gauge,
        /// Tasks that wait for something; the others are ready to run, and one of each thread may be running.
        waiting: u64 = gauge,
        /// In `threads[]`: the largest `tasks` since the start. The maxima of two threads at different times
        /// cannot be added up.
        #[serde(skip_serializing_if = "Option::is_none")]
        tasks_most: Option<u64> = own,
        /// The limit of `tasks`: `mruby.max_tasks`, the largest of all routes.
        tasks_max: u64 = gauge,
        /// Memory of the VMs, including garbage that is not collected yet. A VM that was replaced counts
        /// until its last request ends.
        heap_bytes: u64 = gauge,
        /// The limit: `mruby.heap` for each thread.
        heap_max_bytes: u64 = gauge,
        /// VMs that were replaced because they broke or were full of uncollectable objects.
        vms_replaced: u64 = counter,
        /// Number of reloads of changed handlers, of the thread with the most.
        reloads: u64 = peak,
    }
}

impl HandlersSnapshot {
    /// Returns the sum of the counters of `threads`; `None` if there are none, because there are no handlers.
    pub fn of(threads: &[HandlerCounts]) -> Option<HandlersSnapshot> {
        if threads.is_empty() {
            return None;
        }
        let threads: Vec<HandlerFigures> = (0..)
            .zip(threads)
            .map(|(index, counts)| HandlerFigures { index: Some(index), ..counts.0.load() })
            .collect();
        let mut all = HandlerFigures::default();
        threads.iter().for_each(|thread| all.add(thread));
        Some(HandlersSnapshot { all, threads })
    }

    /// Returns the thread with the least free heap, which will reach its limit first.
    pub fn fullest(&self) -> Option<&HandlerFigures> {
        self.threads.iter().max_by(|one, other| one.heap_share().total_cmp(&other.heap_share()))
    }

    /// Returns the thread with the fewest free tasks.
    pub fn busiest(&self) -> Option<&HandlerFigures> {
        self.threads.iter().max_by(|one, other| one.tasks_share().total_cmp(&other.tasks_share()))
    }
}

impl HandlerFigures {
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
        let HandlersSnapshot { all, threads } = HandlersSnapshot::of(&threads).unwrap();
        assert_eq!((all.requests, all.failures, all.refused), (3, 1, 1));
        assert_eq!((all.tasks, all.waiting, all.tasks_max), (2, 1, 40));
        assert_eq!((all.vms_replaced, all.reloads, all.heap_max_bytes), (1, 2, 2_000));
        let each: Vec<_> =
            threads.iter().map(|thread| (thread.index.unwrap(), thread.tasks_most.unwrap())).collect();
        assert_eq!(each, [(0, 3), (1, 0)]);
        assert_eq!(HandlersSnapshot::of(&[]), None);
    }

    #[test]
    fn the_heap_is_that_of_all_vms_of_a_thread() {
        let counts = HandlerCounts::default();
        let heap = || HandlersSnapshot::of(std::slice::from_ref(&counts)).unwrap().all.heap_bytes;
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
        assert_eq!(all.fullest().map(|thread| (thread.index, thread.heap_share())), Some((Some(1), 0.9)));
        assert_eq!(all.busiest().map(|thread| (thread.index, thread.tasks_share())), Some((Some(2), 0.1)));
        assert_eq!(HandlersSnapshot::default().fullest(), None);
        assert_eq!(HandlerFigures { heap_bytes: 7, ..HandlerFigures::default() }.heap_share(), 0.0);
    }
}
