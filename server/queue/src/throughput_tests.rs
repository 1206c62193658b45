//! Tests refusals by prediction in a simulation of the real queue: admitted requests meet the limit, and no
//! request is refused without need.

use crate::{Admission, Assignment, Dispatch, QueueKey, Serial};
use fastrand::Rng;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

const MS: u64 = 1_000;
const SECOND: u64 = 1_000 * MS;

/// Workers with their threads, clients, and a clock in microseconds.
struct Simulation {
    dispatch: Dispatch,
    begun: Instant,
    clock: u64,
    random: Rng,
    limit: Duration,
    workers: Vec<Worker>,
    /// When threads finish: the time, the worker, and the time in the app.
    finishing: BinaryHeap<Reverse<(u64, Serial, u64)>>,
    next_expiry: u64,
    /// The service time of each request, by its number.
    service: Vec<u64>,
    /// The waits of the requests that got a seat, with the time at which they got it.
    waited: Vec<(u64, u64)>,
    /// When requests were refused, and the predictions.
    refused: Vec<(u64, Duration)>,
    expired: Vec<u64>,
}

#[derive(Default)]
struct Worker {
    threads: usize,
    busy: usize,
    /// Requests that were handed over in advance.
    behind: VecDeque<u64>,
}

impl Simulation {
    fn new(workers: u32, threads: u32, limit_ms: u64, seed: u64) -> Simulation {
        let (begun, limit) = (Instant::now(), Duration::from_millis(limit_ms));
        let mut dispatch = Dispatch::new(1_000_000);
        for serial in 0..workers {
            dispatch.worker_up(serial, threads, begun, &mut Vec::new());
        }
        dispatch.predict(Some(limit), begun);
        let worker = || Worker { threads: threads as usize, ..Worker::default() };
        Simulation {
            dispatch,
            begun,
            clock: 0,
            random: Rng::with_seed(seed),
            limit,
            workers: (0..workers).map(|_| worker()).collect(),
            finishing: BinaryHeap::new(),
            next_expiry: 0,
            service: Vec::new(),
            waited: Vec::new(),
            refused: Vec::new(),
            expired: Vec::new(),
        }
    }

    fn now(&self) -> Instant {
        self.begun + Duration::from_micros(self.clock)
    }

    /// Lets time pass: threads finish, and requests expire.
    fn until(&mut self, clock: u64) {
        loop {
            let finish = self.finishing.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
            let next = finish.min(self.next_expiry);
            if next > clock {
                break;
            }
            self.clock = next;
            if next == self.next_expiry {
                self.next_expiry += 200 * MS;
                let expired = self.now().checked_sub(self.limit).map(|limit| self.dispatch.expire(limit));
                self.expired.extend(expired.iter().flatten().map(|_| next));
                continue;
            }
            let Some(Reverse((_, serial, took))) = self.finishing.pop() else { continue };
            let worker = &mut self.workers[serial as usize];
            match worker.behind.pop_front() {
                Some(next) => self.finishing.push(Reverse((self.clock + next, serial, next))),
                None => worker.busy -= 1,
            }
            let mut assigned = Vec::new();
            self.dispatch.finished(
                serial,
                None,
                Some(Duration::from_micros(took)),
                self.now(),
                &mut assigned,
            );
            for Assignment { ticket, serial, .. } in assigned {
                // The slot of a ticket is its time of arrival here, in milliseconds.
                let waited = self.clock.saturating_sub(u64::from(ticket.slot) * MS);
                self.waited.push((self.clock, waited));
                self.begin(serial, self.service[ticket.number as usize]);
            }
        }
        self.clock = clock;
    }

    fn begin(&mut self, serial: Serial, took: u64) {
        let worker = &mut self.workers[serial as usize];
        if worker.busy < worker.threads {
            worker.busy += 1;
            self.finishing.push(Reverse((self.clock + took, serial, took)));
        } else {
            worker.behind.push_back(took);
        }
    }

    /// Lets a request arrive now that takes `took`.
    fn ask(&mut self, took: u64) {
        self.service.push(took);
        let now = self.now();
        match self.dispatch.ask(0, (self.clock / MS) as u32, QueueKey::default(), now).1 {
            Admission::Go(serial) => {
                self.waited.push((self.clock, 0));
                self.begin(serial, took);
            }
            Admission::Wait => {}
            Admission::Late(wait) => self.refused.push((self.clock, wait)),
            Admission::Full | Admission::Displaces(_) => panic!("the queue has room"),
        }
    }

    /// Lets requests arrive at random, `per_second` of them, for `seconds` seconds.
    fn load(&mut self, per_second: f64, seconds: u64, service: impl Fn(&mut Rng) -> u64) {
        let end = self.clock + seconds * SECOND;
        loop {
            let pause = -(1.0 - self.random.f64()).ln() / per_second * SECOND as f64;
            let next = self.clock + pause as u64 + 1;
            self.until(next.min(end));
            if next >= end {
                return;
            }
            let took = service(&mut self.random);
            self.ask(took);
        }
    }

    /// Returns how many requests after `from` were served in time, expired, and were refused.
    fn outcome(&self, from_s: u64) -> (usize, usize, usize) {
        let from = from_s * SECOND;
        (
            self.waited.iter().filter(|(at, _)| *at >= from).count(),
            self.expired.iter().filter(|at| **at >= from).count(),
            self.refused.iter().filter(|(at, _)| *at >= from).count(),
        )
    }
}

fn exponential(mean: u64) -> impl Fn(&mut Rng) -> u64 {
    move |random| (-(1.0 - random.f64()).ln() * mean as f64) as u64 + 1
}

/// Returns service times of one millisecond or two seconds.
fn bimodal(slow: f64) -> impl Fn(&mut Rng) -> u64 {
    move |random| if random.f64() < slow { 2 * SECOND } else { MS }
}

/// Checks that, at overload, admitted requests meet the limit except for `percent` percent, and the seats
/// stay busy.
fn assert_useful(simulation: &Simulation, from_s: u64, to_s: u64, capacity: f64, percent: usize) {
    let (served, expired, refused) = simulation.outcome(from_s);
    let told = format!("served {served}, expired {expired}, refused {refused}");
    assert!(refused > 0 && expired * 100 <= (served + expired) * percent, "{told}");
    assert!(served as f64 >= 0.8 * capacity * (to_s - from_s) as f64, "{told}");
    assert!(simulation.refused.iter().all(|(_, wait)| *wait > simulation.limit));
}

#[test]
fn overload_is_refused_and_who_is_admitted_is_served() {
    for seed in 0..10 {
        let mut simulation = Simulation::new(2, 2, 5_000, seed);
        simulation.load(80.0, 120, exponential(100 * MS));
        assert_useful(&simulation, 30, 120, 40.0, 15);
    }
}

#[test]
fn the_default_limit_works_with_slow_requests() {
    for seed in 0..10 {
        let mut simulation = Simulation::new(2, 3, 60_000, seed);
        simulation.load(6.0, 900, exponential(2 * SECOND));
        assert_useful(&simulation, 300, 900, 3.0, 20);
    }
}

#[test]
fn requests_of_two_kinds() {
    for seed in 0..10 {
        // One in twenty takes 2 s: 100 ms on average, 40 a second.
        let mut simulation = Simulation::new(2, 2, 10_000, seed);
        simulation.load(100.0, 180, bimodal(0.05));
        assert_useful(&simulation, 60, 180, 40.0, 25);
        // The same on one seat, 10 a second: the number of slow requests among the 200 ahead is unknown.
        let mut simulation = Simulation::new(1, 1, 20_000, seed);
        simulation.load(30.0, 300, bimodal(0.05));
        assert_useful(&simulation, 120, 300, 10.0, 40);
    }
}

#[test]
fn without_predictions_many_wait_in_vain() {
    let mut simulation = Simulation::new(2, 2, 5_000, 1);
    let now = simulation.now();
    simulation.dispatch.predict(None, now);
    simulation.load(80.0, 120, exponential(100 * MS));
    let (served, expired, refused) = simulation.outcome(30);
    assert!(refused == 0 && expired * 10 >= served * 9, "served {served}, expired {expired}");
}

#[test]
fn a_short_limit_works_too() {
    for seed in 0..10 {
        let mut simulation = Simulation::new(4, 1, 500, seed);
        simulation.load(400.0, 60, exponential(20 * MS));
        assert_useful(&simulation, 10, 60, 200.0, 15);
    }
}

#[test]
fn a_request_that_never_ends_refuses_nobody() {
    let mut simulation = Simulation::new(1, 1, 1_000, 1);
    simulation.load(50.0, 30, |_| 5 * MS);
    simulation.ask(100_000 * SECOND);
    simulation.load(50.0, 60, |_| 5 * MS);
    assert_eq!(simulation.outcome(0).2, 0);
}

#[test]
fn after_a_slow_request_the_queue_is_worked_off() {
    for (slow, seed) in [(2, 1), (5, 2), (20, 3)] {
        let mut simulation = Simulation::new(1, 1, 3_000, seed);
        simulation.load(50.0, 20, exponential(10 * MS));
        simulation.ask(slow * SECOND);
        simulation.load(50.0, 60, exponential(10 * MS));
        assert_eq!(simulation.outcome(0).2, 0, "{slow} s");
    }
}

#[test]
fn a_burst_and_then_nothing() {
    let mut simulation = Simulation::new(2, 2, 5_000, 1);
    // 3 s of work at once, for which there is enough time.
    (0..120).for_each(|_| simulation.ask(100 * MS));
    simulation.until(60 * SECOND);
    assert_eq!(simulation.outcome(0), (120, 0, 0));
    // The earlier evidence is too old now, so all requests wait until they expire.
    (0..10_000).for_each(|_| simulation.ask(100 * MS));
    assert_eq!(simulation.outcome(0).2, 0);
    simulation.until(70 * SECOND);
    // The burst has shown the rate.
    let waiting = simulation.dispatch.waiting();
    assert!(waiting == 0, "{waiting}");
}

#[test]
fn ten_thousand_are_waiting() {
    let mut simulation = Simulation::new(2, 2, 600_000, 1);
    (0..10_000).for_each(|_| simulation.ask(100 * MS));
    simulation.until(20 * SECOND);
    assert_eq!(simulation.dispatch.waiting(), 10_000 - 4 - 800);
    simulation.ask(MS);
    assert_eq!(simulation.outcome(0).2, 0, "230 s are less than 600 s");
    simulation.dispatch.predict(Some(Duration::from_secs(60)), simulation.now());
    simulation.ask(MS);
    let (_, wait) = simulation.refused[0];
    assert!((215..245).contains(&wait.as_secs()), "{wait:?}");
}

#[test]
fn more_seats_are_a_faster_queue() {
    let mut simulation = Simulation::new(2, 1, 20_000, 1);
    (0..400).for_each(|_| simulation.ask(100 * MS));
    simulation.until(5 * SECOND);
    let waiting = simulation.dispatch.waiting();
    assert!((290..310).contains(&waiting), "{waiting}");
    // 300 requests at 20 a second: 15 s. With one worker fewer: 30 s.
    simulation.ask(MS);
    assert_eq!(simulation.refused.len(), 0);
    simulation.dispatch.pass_over(1, crate::PassReason::Suspended);
    let mut assigned = Vec::new();
    simulation.dispatch.put_back(1, &[], simulation.now(), &mut assigned);
    simulation.ask(MS);
    assert_eq!(simulation.refused.len(), 1);
}

#[test]
fn what_is_known_is_forgotten_when_workers_change() {
    let mut simulation = Simulation::new(1, 1, 1_000, 1);
    simulation.load(50.0, 20, |_| 100 * MS);
    assert!(simulation.outcome(0).2 > 0);
    let now = simulation.now();
    simulation.dispatch.predict(None, now);
    let refused = simulation.refused.len();
    (0..50).for_each(|_| simulation.ask(100 * MS));
    simulation.dispatch.predict(Some(Duration::from_secs(1)), now);
    (0..50).for_each(|_| simulation.ask(100 * MS));
    assert_eq!(simulation.refused.len(), refused);
}

#[test]
fn a_queue_shorter_than_the_seats_takes_everybody() {
    let mut simulation = Simulation::new(8, 1, 100, 1);
    for _ in 0..200 {
        simulation.load(20.0, 1, |_| 2 * SECOND);
        let refused = simulation.refused.len();
        if simulation.dispatch.waiting() < 8 {
            simulation.ask(2 * SECOND);
            assert_eq!(simulation.refused.len(), refused);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// For any limit, seats and mix below capacity, hardly any request is refused that would not have waited
    /// for long.
    #[test]
    fn nobody_is_refused_without_need(seed: u64, workers in 1u32..5, threads in 1u32..4, mean_ms in 5u64..200, load in 0.1f64..0.8) {
        let capacity = f64::from(workers * threads) * 1e3 / mean_ms as f64;
        let seconds = (2_000.0 / (capacity * load)).clamp(20.0, 300.0) as u64;
        let limit_ms = 20 * mean_ms.max(100);
        let mut simulation = Simulation::new(workers, threads, limit_ms, seed);
        simulation.load(capacity * load, seconds, exponential(mean_ms * MS));
        let (served, _, refused) = simulation.outcome(0);
        // The same requests without refusals: a single seat at 0.8 of its capacity has 20 requests waiting
        // now and then.
        let mut all = Simulation::new(workers, threads, limit_ms, seed);
        all.dispatch.predict(None, all.now());
        all.load(capacity * load, seconds, exponential(mean_ms * MS));
        let long = all.waited.iter().filter(|(_, waited)| *waited * 2 > limit_ms * MS).count() + all.expired.len();
        prop_assert!(refused <= long + served / 1_000, "{} of {}, {} wait for long", refused, served, long);
    }

    /// At overload most admitted requests are served in time, and the seats have enough to do.
    #[test]
    fn overload_is_bounded(seed: u64, workers in 1u32..5, threads in 1u32..4, mean_ms in 20u64..400, load in 1.3f64..4.0, limit in 20u64..100) {
        let mut simulation = Simulation::new(workers, threads, limit * mean_ms, seed);
        let capacity = f64::from(workers * threads) * 1e3 / mean_ms as f64;
        // The queue grows by the load above capacity. It has to reach the limit well before half of the time.
        let to_limit = (limit * mean_ms) as f64 / 1e3 / (load - 1.0);
        let seconds = (3_000.0 / capacity).max(3.0 * to_limit).clamp(60.0, 600.0) as u64;
        simulation.load(capacity * load, seconds, exponential(mean_ms * MS));
        let (served, expired, refused) = simulation.outcome(seconds / 2);
        prop_assert!(refused > 0 && expired * 4 <= served, "served {}, expired {}, refused {}", served, expired, refused);
        prop_assert!(served as f64 >= 0.75 * capacity * (seconds - seconds / 2) as f64);
    }
}
