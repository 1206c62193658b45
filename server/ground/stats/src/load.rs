//! The load of a server: [`Load`] at one moment, and [`RecentLoad`] for autoscalers. Pure.

use crate::figures::figures;
use crate::server::{PoolSnapshot, QueueSnapshot, ServerSnapshot, WorkerSnapshot, WorkerState};
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
        /// The part of these figures that belongs to the pool `fibers`, with
        /// [`fiber_paths`](fibers.md#fibers-for-some-paths).
        fibers: Option<FiberLoad> = part,
        /// Requests and seats of each pool; empty if there is only the default one.
        pools: Vec<[u64; 2]>,
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
        Load::of_workers(&server.workers, &server.queue, &server.pools)
    }

    /// Returns the load of these workers and their queues.
    pub fn of_workers(workers: &[WorkerSnapshot], queue: &QueueSnapshot, pools: &[PoolSnapshot]) -> Load {
        let sums = |of: &dyn Fn(&WorkerSnapshot) -> bool| {
            workers.iter().filter(|worker| of(worker)).fold([0; 3], |[busy, waiting, seats], worker| {
                let ready = worker.state == WorkerState::Ready;
                let its = if ready { u64::from(worker.threads_max) } else { 0 };
                [busy + u64::from(worker.busy_threads), waiting + u64::from(worker.waiting), seats + its]
            })
        };
        let [busy, waiting, seats] = sums(&|_| true);
        let of_fibers = |queued| {
            let [busy, _, seats] = sums(&|worker| worker.fiber_paths.is_some());
            FiberLoad { busy, waiting: queued, seats }
        };
        let of_pool = |pool: &PoolSnapshot| {
            let [busy, waiting, seats] = sums(&|worker| worker.pool == pool.name);
            [pool.length + busy + waiting, seats]
        };
        Load {
            fibers: queue.for_fibers.map(of_fibers),
            busy,
            waiting: queue.length + waiting,
            seats,
            pools: pools.iter().map(of_pool).collect(),
        }
    }

    fn add(&mut self, other: &Load) {
        self.busy += other.busy;
        self.waiting += other.waiting;
        self.seats += other.seats;
        self.pools.resize(self.pools.len().max(other.pools.len()), [0; 2]);
        for ([requests, seats], [more, others]) in self.pools.iter_mut().zip(&other.pools) {
            (*requests, *seats) = (*requests + more, *seats + others);
        }
    }

    /// Returns the requests per seat. Without seats, one seat is assumed, so that the number stays finite but
    /// grows with the waiting requests. Of several pools, the largest value counts, because a free seat of one
    /// does not help a request that waits for another.
    pub fn saturation(&self) -> f64 {
        let of = |requests: u64, seats: u64| requests as f64 / seats.max(1) as f64;
        let all = [[self.busy + self.waiting, self.seats]];
        let pools = if self.pools.is_empty() { all.as_slice() } else { &self.pools };
        pools.iter().map(|&[requests, seats]| of(requests, seats)).fold(0.0, f64::max)
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
        Load { busy, waiting, seats, ..Load::default() }
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
        // While a worker boots, and once without any workers: its eight requests wait for future seats.
        assert_eq!(recent(&[load(4, 4, 4), load(8, 0, 8), load(0, 8, 0)]).saturation(), Some(2.0));
        assert_eq!(recent(&[load(0, 3, 0)]).saturation(), Some(3.0));
    }

    #[test]
    fn of_several_pools_the_fuller_counts() {
        let both = Load { pools: vec![[10, 100], [3, 4]], ..load(13, 0, 104) };
        assert_eq!(recent(&[both.clone(), both]).saturation(), Some(0.75));
    }
}
