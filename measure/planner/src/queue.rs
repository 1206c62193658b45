//! One queue with c servers: waiting and response times.
//!
//! The probability of waiting is Erlang C's. The mean wait is corrected for the variation of arrivals and
//! services (Allen-Cunneen: times (ca² + cs²)/2). Waiting times of requests that wait are exponential: exact
//! for M/M/c, an approximation otherwise. Response times add the distribution of the service time.
//! tests/it/simulation.rs compares this with a simulation and states the errors.

use crate::erlang;
use crate::service::Service;

/// A stable queue.
#[derive(Debug, Clone)]
pub struct Queue {
    pub servers: u32,
    /// Requests per unit of time.
    pub rate: f64,
    /// Utilisation of each server, 0 to 1.
    pub utilisation: f64,
    /// Probability that a request waits.
    pub waits: f64,
    /// Mean wait over all requests.
    pub mean_wait: f64,
    /// Time of a request that does not wait: the time that it occupies a server, plus any other time.
    whole: Service,
}

impl Queue {
    /// Returns the queue of `servers` with service time `service`, at `rate` requests per unit of its time.
    /// `ca` is the coefficient of variation of the gaps between arrivals (1: independent users). `None` if
    /// the queue is not stable or a number is invalid.
    pub fn new(servers: u32, rate: f64, service: &Service, ca: f64) -> Option<Queue> {
        let load = rate * service.mean;
        let sound = servers > 0 && rate > 0.0 && service.mean > 0.0 && service.cv >= 0.0 && ca >= 0.0;
        if !sound || !load.is_finite() || load >= f64::from(servers) {
            return None;
        }
        let waits = erlang::c(servers, load);
        let regular = waits * service.mean / (f64::from(servers) - load);
        let mean_wait = regular * (ca * ca + service.cv * service.cv) / 2.0;
        let utilisation = load / f64::from(servers);
        Some(Queue { servers, rate, utilisation, waits, mean_wait, whole: service.clone() })
    }

    /// Returns the same queue with a server that is only part of a request: `whole` is all of the request
    /// except waiting.
    #[must_use]
    pub fn within(self, whole: &Service) -> Queue {
        Queue { whole: whole.clone(), ..self }
    }

    /// Returns the mean response time.
    pub fn mean_response(&self) -> f64 {
        self.mean_wait + self.whole.mean
    }

    /// Returns the requests in the system, waiting or being served (Little's law).
    pub fn present(&self) -> f64 {
        self.rate * self.mean_response()
    }

    /// Returns the fraction of requests that wait longer than `time`.
    pub fn wait_exceeds(&self, time: f64) -> f64 {
        if self.mean_wait <= 0.0 {
            return 0.0;
        }
        self.waits * (-time * self.waits / self.mean_wait).exp()
    }

    /// Returns a percentile (0 to 100) of the waiting time.
    pub fn wait_percentile(&self, percentile: f64) -> f64 {
        let left = 1.0 - percentile / 100.0;
        if self.mean_wait <= 0.0 || left >= self.waits {
            return 0.0;
        }
        self.mean_wait / self.waits * (self.waits / left).ln()
    }

    /// Returns the fraction of requests with a response time longer than `time`.
    pub fn response_exceeds(&self, time: f64) -> f64 {
        let exceeds = |taken: f64| if taken > time { 1.0 } else { self.wait_exceeds(time - taken) };
        self.whole.points().iter().map(|point| point.weight * exceeds(point.time)).sum()
    }

    /// Returns a percentile (0 to 100) of the response time.
    pub fn response_percentile(&self, percentile: f64) -> f64 {
        let left = 1.0 - percentile / 100.0;
        let mut high = self.mean_response();
        while self.response_exceeds(high) > left && high.is_finite() {
            high *= 2.0;
        }
        let mut low = 0.0;
        for _ in 0..50 {
            let middle = f64::midpoint(low, high);
            if self.response_exceeds(middle) > left { low = middle } else { high = middle }
        }
        high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(servers: u32, rate: f64, mean: f64, cv: f64) -> Queue {
        Queue::new(servers, rate, &Service::new(mean, cv), 1.0).unwrap()
    }

    fn near(found: f64, wanted: f64) {
        assert!((found - wanted).abs() <= 0.005 * wanted.abs(), "{found} is not {wanted}");
    }

    #[test]
    fn one_exponential_server() {
        // M/M/1: responses are exponential with mean 1/(μ-λ).
        let queue = queue(1, 0.8, 1.0, 1.0);
        near(queue.mean_response(), 5.0);
        near(queue.mean_wait, 4.0);
        near(queue.waits, 0.8);
        near(queue.present(), 4.0);
        for percentile in [50.0_f64, 95.0, 99.0] {
            near(queue.response_percentile(percentile), -5.0 * (1.0 - percentile / 100.0).ln());
        }
        near(queue.wait_percentile(95.0), 5.0 * (0.8_f64 / 0.05).ln());
        assert_eq!(queue.wait_percentile(20.0), 0.0);
    }

    #[test]
    fn gross_and_harris() {
        // Fundamentals of Queueing Theory, example 2.2 (eye clinic): three servers, 6 per hour, 20 minutes each:
        // p0 = 1/9, Lq = 8/9, Wq = 8.89 minutes, W = 28.89 minutes, L = 26/9.
        let clinic = queue(3, 6.0, 1.0 / 3.0, 1.0);
        near(clinic.mean_wait * 60.0, 8.889);
        near(clinic.mean_response() * 60.0, 28.889);
        near(clinic.rate * clinic.mean_wait, 8.0 / 9.0);
        near(clinic.present(), 26.0 / 9.0);
    }

    #[test]
    fn one_server_matches_pollaczek_khinchine() {
        // M/G/1: λ E[S²] / 2(1-ρ); constant services give half the wait of exponential ones.
        near(queue(1, 0.5, 1.0, 0.0).mean_wait, 0.5);
        near(queue(1, 0.5, 1.0, 1.0).mean_wait, 1.0);
        near(queue(1, 0.5, 1.0, 2.0).mean_wait, 2.5);
    }

    #[test]
    fn an_unstable_queue_is_none() {
        let service = Service::new(1.0, 1.0);
        for (servers, rate, ca) in [
            (1, 1.0, 1.0),
            (0, 0.1, 1.0),
            (2, 2.1, 1.0),
            (1, 0.0, 1.0),
            (1, f64::NAN, 1.0),
            (1, -1.0, 1.0),
            (1, 0.5, f64::NAN),
        ] {
            assert!(Queue::new(servers, rate, &service, ca).is_none(), "{servers} {rate} {ca}");
        }
        assert!(Queue::new(1, 0.5, &Service::new(0.0, 1.0), 1.0).is_none());
    }

    #[test]
    fn without_variation_there_is_no_wait() {
        let queue = Queue::new(2, 1.9, &Service::new(1.0, 0.0), 0.0).unwrap();
        assert_eq!((queue.mean_wait, queue.wait_exceeds(0.0), queue.wait_percentile(99.0)), (0.0, 0.0, 0.0));
        near(queue.response_percentile(99.0), 1.0);
    }

    #[test]
    fn other_time_is_added() {
        let alone = queue(2, 1.0, 1.0, 0.0);
        let (mean, p99) = (alone.mean_response(), alone.response_percentile(99.0));
        let within = alone.within(&Service::new(4.0, 0.0));
        near(within.mean_response(), mean + 3.0);
        near(within.response_percentile(99.0), p99 + 3.0);
    }
}
