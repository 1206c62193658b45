//! What one instance can do: which of threads, locks and cores it runs out of first.

use serde::{Deserialize, Serialize};

use crate::facts::{Facts, Size};
use crate::queue::Queue;
use crate::service::Service;
use crate::slo::Slo;

/// What an instance runs out of first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Each request holds a thread for all of its time in the app.
    Threads,
    /// Ruby runs in one thread of a process at a time.
    Workers,
    /// CPU time.
    Cores,
}

/// An instance as a queue: so many servers, so long for each request.
#[derive(Debug, Clone)]
pub struct Capacity {
    /// What is scarce.
    pub limit: Limit,
    /// How many requests it is used by at once.
    pub servers: u32,
    /// Milliseconds that a request uses it for.
    pub busy_ms: f64,
    /// Milliseconds of a request that does not wait: at least `busy_ms`, the rest passes beside.
    pub whole_ms: f64,
    /// Requests per second that it can take at most: beyond, the queue grows without end.
    pub rate_per_s: f64,
    service: Service,
    whole: Service,
    arrival_cv: f64,
}

impl Capacity {
    /// Of an instance of `size` for the requests that `facts` describe.
    pub fn of(facts: &Facts, size: &Size) -> Capacity {
        let slots = size.workers.saturating_mul(size.threads);
        let threads = (Limit::Threads, slots, facts.response_ms);
        let cpu = facts.cpu_ms.filter(|ms| *ms > 0.0);
        let running = cpu.map(|cpu| {
            // Half a core is a slow one: requests of one at a time, which take twice as long.
            let cores = size.cores.unwrap_or_else(|| f64::from(size.workers));
            if cores < f64::from(size.workers) {
                let whole = cores.ceil();
                (Limit::Cores, whole as u32, cpu * whole / cores)
            } else {
                (Limit::Workers, size.workers, cpu)
            }
        });
        let rate = |(_, servers, ms): (Limit, u32, f64)| f64::from(servers) * 1_000.0 / ms;
        let scarce = running.filter(|running| rate(*running) < rate(threads)).unwrap_or(threads);
        let (limit, servers, busy_ms) = scarce;
        let beside =
            cpu.filter(|_| limit != Limit::Threads).map_or(0.0, |cpu| (facts.response_ms - cpu).max(0.0));
        let whole_ms = busy_ms + beside;
        Capacity {
            limit,
            servers,
            busy_ms,
            whole_ms,
            rate_per_s: rate(scarce),
            service: Service::new(busy_ms, facts.cv),
            whole: Service::new(whole_ms, facts.cv),
            arrival_cv: facts.arrival_cv,
        }
    }

    /// The queue at `rate_per_s` requests per second, times in milliseconds; `None` when that is too much.
    pub fn queue(&self, rate_per_s: f64) -> Option<Queue> {
        let queue = Queue::new(self.servers, rate_per_s / 1_000.0, &self.service, self.arrival_cv)?;
        Some(queue.within(&self.whole))
    }

    /// The most requests per second that keep `slo`; `None` when it is broken even by one that is hardly
    /// ever busy.
    pub fn rate_within(&self, slo: Slo) -> Option<f64> {
        let keeps = |rate: f64| {
            self.queue(rate)
                .is_some_and(|queue| queue.response_exceeds(slo.under_ms) <= 1.0 - slo.percentile / 100.0)
        };
        // What holds only for servers that are never busy does not hold.
        let (mut low, mut high) = (self.rate_per_s * 1e-3, self.rate_per_s);
        if !keeps(low) {
            return None;
        }
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if keeps(middle) { low = middle } else { high = middle }
        }
        Some(low)
    }

    /// Requests that are in hand at once: each thread holds one, whatever is scarce.
    pub fn in_hand(size: &Size) -> u64 {
        u64::from(size.workers) * u64::from(size.threads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(workers: u32, threads: u32, cores: Option<f64>) -> Size {
        Size { name: None, workers, threads, cores, price: None }
    }

    fn of(response: f64, cpu: Option<f64>, size: &Size) -> Capacity {
        Capacity::of(&Facts { cpu_ms: cpu, ..Facts::new(1.0, response) }, size)
    }

    fn near(found: f64, wanted: f64) {
        assert!((found - wanted).abs() <= 1e-3 * wanted.abs(), "{found} is not {wanted}");
    }

    #[test]
    fn whatever_runs_out_first() {
        let threads = of(7.0, None, &size(1, 1, None));
        assert_eq!(threads.limit, Limit::Threads);
        near(threads.rate_per_s, 142.857);
        let threads = of(100.0, Some(3.0), &size(2, 5, Some(2.0)));
        assert_eq!((threads.limit, threads.servers), (Limit::Threads, 10));
        near(threads.rate_per_s, 100.0);
        let workers = of(7.0, Some(3.0), &size(2, 5, Some(4.0)));
        assert_eq!(
            (workers.limit, workers.servers, workers.busy_ms, workers.whole_ms),
            (Limit::Workers, 2, 3.0, 7.0)
        );
        near(workers.rate_per_s, 666.667);
        let cores = of(7.0, Some(3.0), &size(4, 5, Some(2.0)));
        assert_eq!((cores.limit, cores.servers), (Limit::Cores, 2));
        let half = of(7.0, Some(3.0), &size(1, 5, Some(0.5)));
        assert_eq!((half.limit, half.servers, half.busy_ms), (Limit::Cores, 1, 6.0));
        near(half.rate_per_s, 166.667);
        near(of(7.0, Some(3.0), &size(4, 50, Some(2.5))).rate_per_s, 833.333);
    }

    #[test]
    fn the_rate_within_a_promise_is_the_largest() {
        // M/M/1: p95 < t holds as long as μ - λ > -ln 0.05 / t.
        let one = of(10.0, None, &size(1, 1, None));
        let slo = Slo { percentile: 95.0, under_ms: 100.0 };
        let rate = one.rate_within(slo).unwrap();
        assert!((rate - (100.0 - 29.957)).abs() < 0.5, "{rate}");
        assert_eq!(one.rate_within(Slo { percentile: 95.0, under_ms: 20.0 }), None);
        assert!(one.queue(100.0).is_none());
    }
}
