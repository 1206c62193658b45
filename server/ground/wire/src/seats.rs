//! Seats: the number of requests that a worker serves at a time.
//!
//! Contract: front, worker and planner all ask this type, so that they agree.

use crate::scoreboard::Slot;

/// The seats of a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seats {
    pub threads: u32,
    /// Fibers per thread; 0: the threads serve without fibers.
    pub fibers: u32,
}

impl Seats {
    /// Returns the seats of which there are `count` in all, with `fibers` in each thread.
    pub const fn of_count(count: u32, fibers: u32) -> Seats {
        Seats { threads: count / if fibers == 0 { 1 } else { fibers }, fibers }
    }

    /// Returns the number of requests that can be served at a time.
    pub const fn count(self) -> u32 {
        self.threads.saturating_mul(if self.fibers == 0 { 1 } else { self.fibers })
    }

    /// Returns whether fibers serve.
    pub const fn has_fibers(self) -> bool {
        self.fibers > 0
    }

    /// Returns whether more requests than are served may be handed over, in advance. Fibers do not need that:
    /// each request that a worker should hold has its own fiber.
    pub const fn in_advance(self) -> bool {
        self.fibers == 0
    }

    /// Returns the number of requests that a worker with these seats is serving according to its slot. Of
    /// fibers, the list of busy threads shows only those that run, and not those that wait.
    pub fn serving(self, slot: &Slot) -> u64 {
        if self.has_fibers() { slot.serving } else { slot.busy.len() as u64 }
    }

    /// Returns whether the fibers of all threads have been computing since `limit_us` of the monotonic clock.
    pub fn computes(self, slot: &Slot, limit_us: u64) -> bool {
        let stuck = |thread| slot.busy.iter().any(|busy| busy.thread == thread && busy.since_us < limit_us);
        (0..self.threads).all(|thread| slot.computes(thread) || stuck(thread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scoreboard::{Busy, Serving};

    fn slot(serving: u64, threads: &[u32]) -> Slot {
        let busy = |&thread| Busy { thread, serving: Serving { link: 0, id: thread }, since_us: 10 };
        Slot { serving, busy: threads.iter().map(busy).collect(), ..Slot::default() }
    }

    #[test]
    fn what_fibers_serve_is_counted_once() {
        let served = |fibers| Seats { threads: 4, fibers }.serving(&slot(5, &[0, 1, 3]));
        assert_eq!([served(0), served(7)], [3, 5]);
        assert_eq!(Seats { threads: u32::MAX, fibers: 2 }.count(), u32::MAX);
    }

    #[test]
    fn a_worker_computes_when_all_its_threads_do() {
        let seats = Seats { threads: 2, fibers: 7 };
        let computes = |busy: &[u32], limit_us| seats.computes(&slot(9, busy), limit_us);
        assert!(computes(&[0, 1], 11) && !computes(&[0, 1], 10) && !computes(&[1, 2], 11));
        let sliced = Slot { computing: 0b01, ..slot(9, &[1]) };
        assert!(seats.computes(&sliced, 11));
    }

    #[test]
    fn the_count_tells_the_threads() {
        for seats in [Seats { threads: 5, fibers: 0 }, Seats { threads: 2, fibers: 500 }] {
            assert_eq!(Seats::of_count(seats.count(), seats.fibers), seats);
            assert_eq!(seats.in_advance(), !seats.has_fibers());
        }
    }
}
