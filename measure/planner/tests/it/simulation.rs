//! Compares the formulas with a simulation: one queue, c servers, independent arrivals, and service times
//! that are constant, exponential, gamma or log-normal. The bounds are those in docs/plan.md.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use planner::queue::Queue;
use planner::service::Service;

struct Random(fastrand::Rng);

impl Random {
    /// Returns a number above 0 and below 1.
    fn uniform(&mut self) -> f64 {
        self.0.f64().max(f64::MIN_POSITIVE)
    }

    fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Returns a gamma-distributed number of mean 1 (Marsaglia and Tsang 2000).
    fn gamma(&mut self, cv: f64) -> f64 {
        let shape = 1.0 / (cv * cv);
        let boost = if shape < 1.0 { self.uniform().powf(1.0 / shape) } else { 1.0 };
        let d = (if shape < 1.0 { shape + 1.0 } else { shape }) - 1.0 / 3.0;
        loop {
            let x = self.normal();
            let v = (1.0 + x / (9.0 * d).sqrt()).powi(3);
            if v > 0.0 && self.uniform().ln() < x * x / 2.0 + d - d * v + d * v.ln() {
                return d * v * boost / shape;
            }
        }
    }

    /// Returns a log-normal number of mean 1.
    fn log_normal(&mut self, cv: f64) -> f64 {
        let variance = (1.0 + cv * cv).ln();
        (self.normal() * variance.sqrt() - variance / 2.0).exp()
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Spread {
    Constant,
    Exponential,
    Gamma(f64),
    LogNormal(f64),
}

impl Spread {
    fn draw(self, random: &mut Random) -> f64 {
        match self {
            Spread::Constant => 1.0,
            Spread::Exponential => random.exponential(),
            Spread::Gamma(cv) => random.gamma(cv),
            Spread::LogNormal(cv) => random.log_normal(cv),
        }
    }

    fn cv(self) -> f64 {
        match self {
            Spread::Constant => 0.0,
            Spread::Exponential => 1.0,
            Spread::Gamma(cv) | Spread::LogNormal(cv) => cv,
        }
    }
}

struct Simulated {
    waited: f64,
    mean_wait: f64,
    responses: Vec<f64>,
}

impl Simulated {
    fn percentile(&mut self, percentile: f64) -> f64 {
        let at = ((self.responses.len() - 1) as f64 * percentile / 100.0) as usize;
        *self.responses.select_nth_unstable_by(at, f64::total_cmp).1
    }
}

/// Simulates a first-come, first-served queue; the mean service time is 1.
fn simulate(servers: u32, utilisation: f64, spread: Spread, requests: usize) -> Simulated {
    let seed = u64::from(servers) << 32 | (utilisation * 1_000.0) as u64;
    let mut random = Random(fastrand::Rng::with_seed(seed));
    let rate = utilisation * f64::from(servers);
    // Times are not negative, so their bit patterns sort like the numbers.
    let mut free: BinaryHeap<Reverse<u64>> = (0..servers).map(|_| Reverse(0)).collect();
    let (mut now, mut waits, mut waited) = (0.0, 0.0, 0_u64);
    let mut responses = Vec::with_capacity(requests);
    let warm_up = requests / 10;
    for i in 0..requests + warm_up {
        now += random.exponential() / rate;
        let mut next = free.peek_mut().expect("there is a server");
        let wait = (f64::from_bits(next.0) - now).max(0.0);
        let response = wait + spread.draw(&mut random);
        *next = Reverse((now + response).to_bits());
        drop(next);
        if i >= warm_up {
            waits += wait;
            waited += u64::from(wait > 0.0);
            responses.push(response);
        }
    }
    Simulated { waited: waited as f64 / requests as f64, mean_wait: waits / requests as f64, responses }
}

const LOADS: [f64; 6] = [0.3, 0.5, 0.7, 0.8, 0.9, 0.95];
const SERVERS: [u32; 5] = [1, 2, 5, 10, 50];

/// The largest accepted errors over the whole grid: absolute for the probability, relative for times.
struct Bounds {
    waits: f64,
    mean: f64,
    p50: f64,
    p95: f64,
    p99: f64,
}

fn assert_within(spread: Spread, bounds: &Bounds) {
    let mut worst = [0.0_f64; 5];
    let mut wrong = Vec::new();
    for servers in SERVERS {
        for utilisation in LOADS {
            // Waits in busy queues are strongly correlated, more so with irregular services, so these cases
            // take more samples.
            let requests = match utilisation {
                high if high > 0.9 && spread.cv() > 1.0 => 6_000_000,
                high if high > 0.85 => 1_200_000,
                _ => 300_000,
            };
            let mut simulated = simulate(servers, utilisation, spread, requests);
            let service = Service::new(1.0, spread.cv());
            let queue =
                Queue::new(servers, utilisation * f64::from(servers), &service, 1.0).expect("it keeps up");
            let pairs = [
                (queue.waits, simulated.waited, bounds.waits, 1.0),
                (queue.mean_response(), 1.0 + simulated.mean_wait, bounds.mean, 0.0),
                (queue.response_percentile(50.0), simulated.percentile(50.0), bounds.p50, 0.0),
                (queue.response_percentile(95.0), simulated.percentile(95.0), bounds.p95, 0.0),
                (queue.response_percentile(99.0), simulated.percentile(99.0), bounds.p99, 0.0),
            ];
            for (i, (predicted, found, bound, absolute)) in pairs.into_iter().enumerate() {
                // Probabilities are compared absolutely, times relatively.
                let error = (predicted - found).abs() / if absolute > 0.0 { 1.0 } else { found };
                worst[i] = worst[i].max(error);
                if error > bound {
                    wrong.push(format!(
                        "{spread:?} c={servers} ρ={utilisation} #{i}: {predicted:.3}, simulated {found:.3}"
                    ));
                }
            }
        }
    }
    println!(
        "{spread:?}: waits {:.3}, mean {:.3}, p50 {:.3}, p95 {:.3}, p99 {:.3}",
        worst[0], worst[1], worst[2], worst[3], worst[4]
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn exponential_services() {
    assert_within(Spread::Exponential, &Bounds { waits: 0.02, mean: 0.05, p50: 0.05, p95: 0.06, p99: 0.10 });
}

#[test]
fn constant_services() {
    assert_within(Spread::Constant, &Bounds { waits: 0.04, mean: 0.05, p50: 0.15, p95: 0.15, p99: 0.20 });
}

#[test]
fn regular_services() {
    assert_within(Spread::Gamma(0.5), &Bounds { waits: 0.04, mean: 0.10, p50: 0.15, p95: 0.15, p99: 0.20 });
}

#[test]
fn irregular_services() {
    assert_within(Spread::Gamma(2.0), &Bounds { waits: 0.04, mean: 0.10, p50: 0.15, p95: 0.20, p99: 0.25 });
}

#[test]
fn log_normal_services() {
    for cv in [0.5, 1.0] {
        assert_within(
            Spread::LogNormal(cv),
            &Bounds { waits: 0.04, mean: 0.10, p50: 0.15, p95: 0.15, p99: 0.20 },
        );
    }
}

/// Mean and probability are as accurate as before; percentiles suffer from the assumed distribution.
#[test]
fn very_irregular_log_normal_services() {
    for cv in [1.5, 2.0] {
        assert_within(
            Spread::LogNormal(cv),
            &Bounds { waits: 0.05, mean: 0.15, p50: 0.65, p95: 0.40, p99: 0.50 },
        );
    }
}
