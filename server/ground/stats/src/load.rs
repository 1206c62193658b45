//! The load of a server: [`Load`] at one moment, and [`RecentLoad`] for autoscalers. Pure.

use crate::figures::figures;
use crate::server::{FiberSeats, QueueSnapshot, ServerSnapshot, WorkerSnapshot, WorkerState};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

figures! {
    /// The number of requests, and the capacity for them.
    #[derive(Default, Eq)]
    pub struct Load {
        /// Requests that wait, in the queue or in a worker.
        waiting: u64 = gauge("firebrick_requests_in_flight", stage = "queue"; "Requests for the app by where they are"),
        /// Requests being served.
        busy: u64 = gauge("firebrick_requests_in_flight", stage = "app"),
        /// Threads of the ready workers; with fibers, requests that they serve at a time.
        seats: u64 = gauge("firebrick_seats"; "Threads of the workers that take requests"),
        /// The part of these figures that belongs to the fibers beside threads, with [`fiber_paths`](fibers.md#fibers-for-some-paths).
        fibers: Option<FiberLoad> = part,
    }

    /// The load of the fibers of `fiber_paths`.
    #[derive(Default, Eq)]
    pub struct FiberLoad {
        /// Fibers of the ready workers; only with [`fiber_paths`](fibers.md#fibers-for-some-paths).
        seats: u64 = gauge("firebrick_fiber_seats"; "Those of the seats that are fibers, for fiber_paths"),
        /// Requests that wait for a fiber.
        waiting: u64 =
            gauge("firebrick_fiber_requests", stage = "queue"; "Requests for fiber_paths by where they are"),
        /// Requests that fibers are serving.
        busy: u64 = gauge("firebrick_fiber_requests", stage = "app"),
    }
}

impl Load {
    /// Returns the load of a server.
    pub fn of(server: &ServerSnapshot) -> Load {
        Load::of_workers(&server.workers, &server.queue)
    }

    /// Returns the load of these workers and their queue.
    pub fn of_workers(workers: &[WorkerSnapshot], queue: &QueueSnapshot) -> Load {
        let ready = || workers.iter().filter(|worker| worker.state == WorkerState::Ready);
        let of_fibers =
            |workers: &mut dyn Iterator<Item = &WorkerSnapshot>, what: fn(FiberSeats) -> u32| -> u64 {
                workers.filter_map(|worker| worker.fiber_paths).map(|seats| u64::from(what(seats))).sum()
            };
        Load {
            fibers: queue.for_fibers.map(|waiting| FiberLoad {
                busy: of_fibers(&mut workers.iter(), |seats| seats.busy),
                waiting,
                seats: of_fibers(&mut ready(), |seats| seats.max),
            }),
            busy: workers.iter().map(|worker| u64::from(worker.busy_threads)).sum(),
            waiting: queue.length + workers.iter().map(|worker| u64::from(worker.waiting)).sum::<u64>(),
            seats: ready().map(|worker| u64::from(worker.threads_max)).sum(),
        }
    }

    fn add(&mut self, other: &Load) {
        self.busy += other.busy;
        self.waiting += other.waiting;
        self.seats += other.seats;
        if let Some(others) = &other.fibers {
            let fibers = self.fibers.get_or_insert_default();
            fibers.busy += others.busy;
            fibers.waiting += others.waiting;
            fibers.seats += others.seats;
        }
    }

    /// Returns the requests per seat. Without seats, one seat is assumed, so that the number stays finite but
    /// grows with the waiting requests. Of threads and the fibers beside them, the larger value counts,
    /// because a free seat of one kind does not help a request that waits for the other.
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

/// The load of the last 15 seconds. A single moment says little if there are few seats: with five threads,
/// one more request is 20 %.
#[derive(Debug, Default)]
pub struct RecentLoad {
    seen: VecDeque<(Instant, Load)>,
}

impl RecentLoad {
    /// The time that it covers. Autoscalers decide every 15 s or so, and have already reacted to older load.
    pub const WINDOW: Duration = Duration::from_secs(15);
    /// The interval between samples.
    pub const EVERY: Duration = Duration::from_secs(1);

    /// Adds a sample and drops those that are too old.
    pub fn add(&mut self, load: Load, now: Instant) {
        self.seen.push_back((now, load));
        while self
            .seen
            .front()
            .is_some_and(|(at, _)| now.saturating_duration_since(*at) >= RecentLoad::WINDOW)
        {
            self.seen.pop_front();
        }
    }

    /// Returns the requests of all samples divided by the seats of all samples, so that a moment without
    /// seats counts little. `None` before the first sample.
    pub fn saturation(&self) -> Option<f64> {
        let mut sum = Load::default();
        self.seen.iter().for_each(|(_, load)| sum.add(load));
        (!self.seen.is_empty()).then(|| sum.saturation())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recent(loads: &[Load]) -> RecentLoad {
        let (mut recent, start) = (RecentLoad::default(), Instant::now());
        for (second, load) in (0..).zip(loads) {
            recent.add(load.clone(), start + RecentLoad::EVERY * second);
        }
        recent
    }

    fn load(busy: u64, waiting: u64, seats: u64) -> Load {
        Load { busy, waiting, seats, fibers: None }
    }

    #[test]
    fn it_is_the_mean_of_fifteen_seconds() {
        assert_eq!(RecentLoad::default().saturation(), None);
        assert_eq!(recent(&[load(1, 0, 4)]).saturation(), Some(0.25));
        assert_eq!(recent(&[load(0, 0, 4), load(4, 4, 4)]).saturation(), Some(1.0));
        let step = [vec![load(4, 6, 4); 30], vec![load(2, 0, 4); 15]].concat();
        assert_eq!(recent(&step[..30]).saturation(), Some(2.5));
        assert_eq!(recent(&step[..31]).saturation(), Some((14.0 * 2.5 + 0.5) / 15.0));
        assert_eq!(recent(&step).saturation(), Some(0.5));
    }

    #[test]
    fn seats_count_as_long_as_they_are_there() {
        // While a worker boots, and once without any workers: its eight requests wait for seats that come.
        assert_eq!(recent(&[load(4, 4, 4), load(8, 0, 8), load(0, 8, 0)]).saturation(), Some(2.0));
        assert_eq!(recent(&[load(0, 3, 0)]).saturation(), Some(3.0));
    }

    #[test]
    fn of_two_kinds_of_seats_the_fuller_counts() {
        let fibers = FiberLoad { busy: 10, waiting: 0, seats: 100 };
        let both = Load { busy: 13, waiting: 0, seats: 104, fibers: Some(fibers) };
        assert_eq!(recent(&[both.clone(), both]).saturation(), Some(0.75));
    }
}
