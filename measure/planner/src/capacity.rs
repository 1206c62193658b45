//! The throughput of one instance, limited by threads, locks or cores.

use serde::{Deserialize, Serialize};

use crate::facts::{Size, TrafficFacts};
use crate::queue::Queue;
use crate::service::Service;
use crate::slo::Slo;

/// The resource that limits an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Every request holds a thread, or a fiber, for its whole time in the app.
    Threads,
    /// Only one thread of a process runs Ruby at a time.
    Workers,
    /// CPU time.
    Cores,
}

/// An instance as a queue with a number of servers and a service time.
#[derive(Debug, Clone)]
pub struct Capacity {
    pub limit: Resource,
    /// How many requests can use the resource at once.
    pub servers: u32,
    /// How long a request uses the resource, in milliseconds.
    pub busy_ms: f64,
    /// Response time without waiting, in milliseconds: `busy_ms` plus the time that does not use the resource.
    pub whole_ms: f64,
    /// Highest throughput in requests per second. Above it, the queue grows without bound.
    pub rate_per_s: f64,
    service: Service,
    whole: Service,
    arrival_cv: f64,
}

impl Capacity {
    /// Returns the capacity of an instance of `size` for the requests described by `facts`.
    pub fn of(facts: &TrafficFacts, size: &Size) -> Capacity {
        let threads = (Resource::Threads, size.seats(), facts.response_ms);
        let cpu = facts.cpu_ms.filter(|ms| *ms > 0.0);
        let running = cpu.map(|cpu| {
            // Half a core is a slow core: one request at a time, taking twice as long.
            let cores = size.cores.unwrap_or_else(|| f64::from(size.workers));
            if cores < f64::from(size.workers) {
                let whole = cores.ceil();
                (Resource::Cores, whole as u32, cpu * whole / cores)
            } else {
                (Resource::Workers, size.workers, cpu)
            }
        });
        let rate = |(_, servers, ms): (Resource, u32, f64)| f64::from(servers) * 1_000.0 / ms;
        let scarce = running.filter(|running| rate(*running) < rate(threads)).unwrap_or(threads);
        let (limit, servers, busy_ms) = scarce;
        let beside =
            cpu.filter(|_| limit != Resource::Threads).map_or(0.0, |cpu| (facts.response_ms - cpu).max(0.0));
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

    /// Returns the queue at `rate_per_s` requests per second, with times in milliseconds; `None` above the capacity.
    pub fn queue(&self, rate_per_s: f64) -> Option<Queue> {
        let queue = Queue::new(self.servers, rate_per_s / 1_000.0, &self.service, self.arrival_cv)?;
        Some(queue.within(&self.whole))
    }

    /// Returns the highest rate that meets `slo`; `None` if not even a very low utilisation meets it.
    pub fn rate_within(&self, slo: Slo) -> Option<f64> {
        let keeps = |rate: f64| {
            self.queue(rate)
                .is_some_and(|queue| queue.response_exceeds(slo.under_ms) <= 1.0 - slo.percentile / 100.0)
        };
        // An objective that only an idle server meets counts as not met.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(workers: u32, threads: u32, cores: Option<f64>) -> Size {
        Size { name: None, workers, threads, fibers: 0, cores, price: None }
    }

    fn of(response: f64, cpu: Option<f64>, size: &Size) -> Capacity {
        Capacity::of(&TrafficFacts { cpu_ms: cpu, ..TrafficFacts::new(1.0, response) }, size)
    }

    fn near(found: f64, wanted: f64) {
        assert!((found - wanted).abs() <= 1e-3 * wanted.abs(), "{found} is not {wanted}");
    }

    #[test]
    fn the_limiting_resource() {
        let threads = of(7.0, None, &size(1, 1, None));
        assert_eq!(threads.limit, Resource::Threads);
        near(threads.rate_per_s, 142.857);
        let threads = of(100.0, Some(3.0), &size(2, 5, Some(2.0)));
        assert_eq!((threads.limit, threads.servers), (Resource::Threads, 10));
        near(threads.rate_per_s, 100.0);
        let workers = of(7.0, Some(3.0), &size(2, 5, Some(4.0)));
        assert_eq!(
            (workers.limit, workers.servers, workers.busy_ms, workers.whole_ms),
            (Resource::Workers, 2, 3.0, 7.0)
        );
        near(workers.rate_per_s, 666.667);
        let cores = of(7.0, Some(3.0), &size(4, 5, Some(2.0)));
        assert_eq!((cores.limit, cores.servers), (Resource::Cores, 2));
        let half = of(7.0, Some(3.0), &size(1, 5, Some(0.5)));
        assert_eq!((half.limit, half.servers, half.busy_ms), (Resource::Cores, 1, 6.0));
        near(half.rate_per_s, 166.667);
        near(of(7.0, Some(3.0), &size(4, 50, Some(2.5))).rate_per_s, 833.333);
    }

    #[test]
    fn fibers_hold_requests_and_do_not_compute() {
        let fibers = Size { fibers: 1_000, ..size(1, 1, Some(2.0)) };
        let waiting = of(1_000.0, Some(0.5), &fibers);
        assert_eq!((waiting.limit, waiting.servers), (Resource::Threads, 1_000));
        near(waiting.rate_per_s, 1_000.0);
        // A worker runs Ruby on one core, however many fibers it has.
        let computing = of(50.0, Some(1.0), &Size { threads: 2, ..fibers.clone() });
        assert_eq!((computing.limit, computing.servers), (Resource::Workers, 1));
        near(computing.rate_per_s, 1_000.0);
        assert_eq!(fibers.seats(), 1_000);
        assert_eq!(Size { workers: 3, threads: 2, ..fibers }.seats(), 6_000);
    }

    #[test]
    fn the_highest_rate_within_an_objective() {
        // M/M/1: p95 < t holds as long as μ - λ > -ln 0.05 / t.
        let one = of(10.0, None, &size(1, 1, None));
        let slo = Slo { percentile: 95.0, under_ms: 100.0 };
        let rate = one.rate_within(slo).unwrap();
        assert!((rate - (100.0 - 29.957)).abs() < 0.5, "{rate}");
        assert_eq!(one.rate_within(Slo { percentile: 95.0, under_ms: 20.0 }), None);
        assert!(one.queue(100.0).is_none());
    }
}
