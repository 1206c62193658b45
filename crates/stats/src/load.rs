//! How full a server is: [`Load`]. Pure.

use crate::server::{FiberSeats, ServerSnapshot, WorkerSnapshot, WorkerState};

/// How much there is to do, and who could do it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// Requests that are served.
    pub busy: u64,
    /// Requests that wait, in the queue or in a worker.
    pub waiting: u64,
    /// Threads and fibers of workers that take requests.
    pub seats: u64,
    /// Of all that, what concerns the fibers beside threads.
    pub fibers: Option<FiberLoad>,
}

/// The same of the fibers of `fiber_paths`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FiberLoad {
    /// Requests that are served.
    pub busy: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Fibers of workers that take requests.
    pub seats: u64,
}

impl Load {
    /// The load of a server.
    pub fn of(server: &ServerSnapshot) -> Load {
        let ready = || server.workers.iter().filter(|worker| worker.state == WorkerState::Ready);
        let of_fibers =
            |workers: &mut dyn Iterator<Item = &WorkerSnapshot>, what: fn(FiberSeats) -> u32| -> u64 {
                workers.filter_map(|worker| worker.fiber_paths).map(|seats| u64::from(what(seats))).sum()
            };
        Load {
            fibers: server.queue.for_fibers.map(|waiting| FiberLoad {
                busy: of_fibers(&mut server.workers.iter(), |seats| seats.busy),
                waiting,
                seats: of_fibers(&mut ready(), |seats| seats.max),
            }),
            busy: server.workers.iter().map(|worker| u64::from(worker.busy_threads)).sum(),
            waiting: server.queue.length
                + server.workers.iter().map(|worker| u64::from(worker.waiting)).sum::<u64>(),
            seats: ready().map(|worker| u64::from(worker.threads_max)).sum(),
        }
    }

    /// Without seats, as if there were one: a number that grows with what waits, and that is not infinite. Of threads and fibers beside
    /// them the greater: a free seat of one kind is no help to a request that waits for the other.
    pub fn saturation(&self) -> f64 {
        let of = |busy: u64, waiting: u64, seats: u64| (busy + waiting) as f64 / seats.max(1) as f64;
        let Some(fibers) = &self.fibers else { return of(self.busy, self.waiting, self.seats) };
        let threads = of(
            self.busy.saturating_sub(fibers.busy),
            self.waiting.saturating_sub(fibers.waiting),
            self.seats.saturating_sub(fibers.seats),
        );
        threads.max(of(fibers.busy, fibers.waiting, fibers.seats))
    }
}
