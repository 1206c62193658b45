//! The seating of a worker process: its threads and links, by pool.
//!
//! Why: a process has seats in every pool. With `fiber_paths` its threads serve one pool, and one more thread
//! with fibers the other. Only this file knows that; the other files ask for the seats of a pool by its
//! number.
//!
//! Contract: a process numbers its threads and its links pool by pool, in the order of the pools, and has one
//! link per pool and front thread.

use crate::spawner;
use queue::{Dispatch, PoolIndex};
use settings::Settings;
use std::ops::Range;
use wire::Seats;
use wire::scoreboard::{Busy, Layout, Slot};

/// The seats of a worker process, by pool.
#[derive(Debug)]
pub struct Seating {
    seats: Vec<Seats>,
    fronts: u16,
}

impl Seating {
    /// Returns the seating of the workers that these settings start.
    pub fn of(settings: &Settings) -> Seating {
        let apart = !settings.fiber_paths.is_empty();
        let (own, beside) = Seats::of_process(settings.threads.max.into(), spawner::fibers(settings), apart);
        Seating::new([own].into_iter().chain(beside), settings.front_threads as u16)
    }

    pub(crate) fn new(seats: impl IntoIterator<Item = Seats>, fronts: u16) -> Seating {
        Seating { seats: seats.into_iter().collect(), fronts }
    }

    /// Returns the queues of the pools. `in_advance`: workers can return requests that they have not started.
    pub(crate) fn queues(&self, max_queue: usize, in_advance: bool) -> impl Iterator<Item = Dispatch> {
        self.seats.iter().map(move |seats| match seats.in_advance() && in_advance {
            true => Dispatch::new(max_queue),
            false => Dispatch::new(max_queue).without_prefetching(),
        })
    }

    /// Returns the number of requests that a worker serves at a time.
    pub fn count(&self) -> u32 {
        self.seats.iter().map(|seats| seats.count()).sum()
    }

    /// Returns the number of fibers per thread, where fibers serve.
    pub fn fibers(&self) -> u32 {
        self.seats.iter().map(|seats| seats.fibers).max().unwrap_or(0)
    }

    /// Returns the number of front threads.
    pub(crate) fn fronts(&self) -> u16 {
        self.fronts
    }

    /// Returns whether fibers serve this pool.
    #[inline]
    pub(crate) fn has_fibers(&self, pool: PoolIndex) -> bool {
        self.seats[usize::from(pool.0)].has_fibers()
    }

    /// Returns the pool of `fiber_paths` and its seats, if the workers have threads for the other paths.
    pub fn fiber_paths(&self) -> Option<(PoolIndex, Seats)> {
        Some((PoolIndex(1), *self.seats.get(1)?))
    }

    /// Returns the seats of each pool as a worker has reported them.
    pub(crate) fn reported(&self, seats: u16, fiber_seats: u16) -> Vec<u32> {
        [seats, fiber_seats].iter().zip(&self.seats).map(|(&count, _)| count.max(1).into()).collect()
    }

    /// Returns the layout of a worker's slot of the scoreboard.
    pub(crate) fn layout(&self) -> Layout {
        let threads: u32 = self.seats.iter().map(|seats| seats.threads).sum();
        Layout { threads: threads as usize, links: usize::from(self.fronts) * self.seats.len() }
    }

    /// Returns the front thread and the pool of each link, in the order of their numbers.
    pub(crate) fn links(&self) -> impl Iterator<Item = (u16, PoolIndex)> {
        let pools = (0..).map(PoolIndex).take(self.seats.len());
        pools.flat_map(|pool| (0..self.fronts).map(move |thread| (thread, pool)))
    }

    /// Returns the number of the link of a front thread to the seats of a pool.
    pub(crate) fn link_number(&self, thread: u16, pool: PoolIndex) -> u16 {
        thread + self.fronts * u16::from(pool.0)
    }

    /// Returns the pools that fibers serve, with the numbers of the threads that run them.
    pub(crate) fn loops(&self) -> impl Iterator<Item = (PoolIndex, Range<u32>)> {
        let mut next = 0;
        let numbered = (0..).map(PoolIndex).zip(&self.seats).map(move |(pool, seats)| {
            let first = next;
            next += seats.threads;
            (pool, seats, first..next)
        });
        numbered.filter(|(_, seats, _)| seats.has_fibers()).map(|(pool, _, threads)| (pool, threads))
    }

    /// Returns whether this thread runs fibers. Of these, the list of busy threads shows only the one that
    /// runs, and not those that wait.
    pub(crate) fn is_loop(&self, thread: u32) -> bool {
        self.loops().any(|(_, threads)| threads.contains(&thread))
    }

    /// Returns the number of requests that a worker is serving according to its slot.
    pub fn serving(&self, slot: &Slot) -> u64 {
        let on_threads = |busy: &&Busy| !self.is_loop(busy.thread);
        slot.serving + slot.busy.iter().filter(on_threads).count() as u64
    }

    /// Returns whether all threads of a loop have been computing since `limit_us` of the monotonic clock.
    pub(crate) fn computes(slot: &Slot, mut threads: Range<u32>, limit_us: u64) -> bool {
        let stuck = |thread| slot.busy.iter().any(|busy| busy.thread == thread && busy.since_us < limit_us);
        threads.all(|thread| slot.computes(thread) || stuck(thread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::scoreboard::Serving;

    fn seating(threads: u32, fibers: u32, apart: bool) -> Seating {
        let (own, beside) = Seats::of_process(threads, fibers, apart);
        Seating::new([own].into_iter().chain(beside), 2)
    }

    fn slot(serving: u64, threads: &[u32]) -> Slot {
        let busy = |&thread| Busy { thread, serving: Serving { link: 0, id: thread }, since_us: 10 };
        Slot { serving, busy: threads.iter().map(busy).collect(), ..Slot::default() }
    }

    #[test]
    fn threads_alone_fibers_alone_and_both() {
        let shape = |seating: &Seating| (seating.count(), seating.layout().threads, seating.layout().links);
        let [threads, fibers, both] = [seating(3, 0, false), seating(3, 7, false), seating(3, 7, true)];
        assert_eq!([shape(&threads), shape(&fibers), shape(&both)], [(3, 3, 2), (21, 3, 2), (10, 4, 4)]);
        assert_eq!([threads.fibers(), fibers.fibers(), both.fibers()], [0, 7, 7]);
        assert_eq!(both.fiber_paths(), Some((PoolIndex(1), Seats { threads: 1, fibers: 7 })));
        assert!(threads.fiber_paths().is_none() && fibers.fiber_paths().is_none());
        let loops = |seating: &Seating| seating.loops().collect::<Vec<_>>();
        assert_eq!(loops(&threads), []);
        assert_eq!(loops(&fibers), [(PoolIndex(0), 0..3)]);
        assert_eq!(loops(&both), [(PoolIndex(1), 3..4)]);
        assert_eq!((both.reported(0, 9), threads.reported(2, 0)), (vec![1, 9], vec![2]));
    }

    #[test]
    fn a_link_has_one_number() {
        let both = seating(3, 7, true);
        let numbers: Vec<_> = both.links().map(|(thread, pool)| both.link_number(thread, pool)).collect();
        assert_eq!(numbers, [0, 1, 2, 3]);
        assert_eq!(both.links().nth(3), Some((1, PoolIndex(1))));
        assert_eq!(both.links().nth(4), None);
    }

    #[test]
    fn what_a_loop_serves_is_counted_once() {
        let served = |seating: &Seating| seating.serving(&slot(5, &[0, 1, 3]));
        assert_eq!(seating(4, 0, false).serving(&slot(0, &[0, 1, 3])), 3);
        assert_eq!([served(&seating(4, 7, false)), served(&seating(3, 7, true))], [5, 7]);
    }

    #[test]
    fn a_worker_computes_when_all_threads_of_its_loop_do() {
        let computes = |busy: &[u32], limit_us| Seating::computes(&slot(9, busy), 0..2, limit_us);
        assert!(computes(&[0, 1], 11) && !computes(&[0, 1], 10) && !computes(&[1, 2], 11));
        let sliced = Slot { computing: 0b01, ..slot(9, &[1]) };
        assert!(Seating::computes(&sliced, 0..2, 11));
    }
}
