//! Seats: the number of requests that a worker serves at a time.
//!
//! Contract: front, worker and planner all ask this type, so that they agree.

/// The seats of a worker, or of a part of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seats {
    pub threads: u32,
    /// Fibers per thread; 0: the threads serve without fibers.
    pub fibers: u32,
}

impl Seats {
    /// Returns the seats of a process of `threads` threads, each with `fibers` fibers. `apart` (`fiber_paths`):
    /// the threads have none, and one more thread has them, whose seats are returned separately.
    pub const fn of_process(threads: u32, fibers: u32, apart: bool) -> (Seats, Option<Seats>) {
        if apart && fibers > 0 {
            (Seats { threads, fibers: 0 }, Some(Seats { threads: 1, fibers }))
        } else {
            (Seats { threads, fibers }, None)
        }
    }

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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_threads_or_fibers_or_both() {
        let counts = |threads, fibers, apart| {
            let (own, beside) = Seats::of_process(threads, fibers, apart);
            (own.count(), beside.map(Seats::count))
        };
        assert_eq!(counts(3, 0, false), (3, None));
        assert_eq!(counts(3, 7, false), (21, None));
        assert_eq!(counts(3, 7, true), (3, Some(7)));
        assert_eq!(counts(3, 0, true), (3, None), "there is no fiber for any path");
        assert_eq!(Seats { threads: u32::MAX, fibers: 2 }.count(), u32::MAX);
    }

    #[test]
    fn the_count_tells_the_threads() {
        for seats in [Seats { threads: 5, fibers: 0 }, Seats { threads: 2, fibers: 500 }] {
            assert_eq!(Seats::of_count(seats.count(), seats.fibers), seats);
            assert_eq!(seats.in_advance(), !seats.has_fibers());
        }
    }
}
