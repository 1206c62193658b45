//! The search against a simulated server: a queue, some seats, random arrivals, in virtual time.

use proptest::prelude::*;

use super::evidence::{Evidence, Slice};
use super::search::{Ending, Measured, Search, Step, Target};
use crate::objective::{Objective, objective};

const TENTH: f64 = 0.1;

/// Random numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }
}

struct Server {
    random: Random,
    seats: usize,
    /// Seconds of work per request.
    work: f64,
    /// Whether the work is exponential instead of constant.
    varies: bool,
    /// The work grows by this share per second of the search.
    drift: f64,
    /// Requests beyond this many fail at once.
    queue: usize,
    /// The rate above which the load generator cannot go.
    generator: f64,
    recovers: bool,
    now: f64,
    within: f64,
    objectives: Vec<Objective>,
    steps: usize,
}

impl Server {
    fn new(seed: u64, seats: usize, work: f64, objectives: &[&str]) -> Server {
        Server {
            random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            seats,
            work,
            varies: false,
            drift: 0.0,
            queue: usize::MAX,
            generator: f64::INFINITY,
            recovers: true,
            now: 0.0,
            within: 90.0,
            objectives: objectives.iter().map(|text| objective(text).unwrap()).collect(),
            steps: 0,
        }
    }

    fn capacity(&self) -> f64 {
        self.seats as f64 / self.work
    }

    /// Returns when each request of `seconds` arrives and ends; one that is refused ends at once, and has no time.
    fn requests(&mut self, rate: f64, seconds: f64) -> Vec<(f64, f64, bool)> {
        let work = self.work * (1.0 + self.drift * self.now);
        let mut free = vec![0.0f64; self.seats];
        let mut ends: std::collections::VecDeque<f64> = std::collections::VecDeque::new();
        let (mut at, mut all) = (0.0, Vec::new());
        loop {
            at += self.random.exponential() / rate;
            if at > seconds {
                return all;
            }
            while ends.front().is_some_and(|end| *end <= at) {
                ends.pop_front();
            }
            if ends.len() >= self.queue {
                all.push((at, at + 0.001, false));
                continue;
            }
            let seat = (0..self.seats).min_by(|a, b| free[*a].total_cmp(&free[*b])).unwrap();
            let takes = if self.varies { work * self.random.exponential() } else { work };
            free[seat] = free[seat].max(at) + takes;
            ends.push_back(free[seat]);
            all.push((at, free[seat], true));
        }
    }
}

impl Target for Server {
    fn left(&self) -> f64 {
        self.within - self.now
    }

    fn step(&mut self, step: &Step, evidence: &mut Evidence) -> Result<Option<Measured>, String> {
        self.steps += 1;
        let rate = step.rate.min(self.generator);
        let all = self.requests(rate, step.warm_up + step.most);
        let counted: Vec<(f64, f64, bool)> = all
            .into_iter()
            .filter(|(at, ..)| *at >= step.warm_up)
            .map(|(at, end, good)| (at - step.warm_up, end - step.warm_up, good))
            .collect();
        let mut at = 0.0;
        loop {
            let (from, until) = (at, at + TENTH);
            at = until;
            evidence.add(slice(&counted, from, until, f64::INFINITY));
            if step.is_over(at, evidence, &self.objectives) {
                break;
            }
        }
        // Requests in flight are awaited for a second, and what remains then has failed.
        let mut last = slice(&counted, at, at + 1.0, at);
        last.failed +=
            counted.iter().filter(|(start, end, _)| *start <= at && *end > at + 1.0).count() as u64;
        evidence.add(last);
        let settled = self.recovers || evidence.deviations(&self.objectives) > 0.0;
        self.now += step.warm_up + at + if settled { 0.5 } else { 10.0 };
        Ok(Some(Measured { limited: step.rate > self.generator, settled }))
    }
}

/// Returns what happened in a part of a step, of the requests that began up to `stop`.
fn slice(all: &[(f64, f64, bool)], from: f64, until: f64, stop: f64) -> Slice {
    let begun = |limit: f64| all.iter().filter(|(start, ..)| *start <= limit.min(stop)).count() as u64;
    let ended = all.iter().filter(|(start, end, _)| *end <= until && *start <= stop).count() as u64;
    let mut slice = Slice { at: until, sent: begun(until), ended, ..Slice::default() };
    slice.in_flight = slice.sent.saturating_sub(ended);
    let mut bands = std::collections::BTreeMap::new();
    for (start, end, good) in all {
        if *end > from && *end <= until && *start <= stop {
            if *good {
                *bands.entry(load::bands::index::<5>(((end - start) * 1e6) as u64)).or_default() += 1;
            } else {
                slice.failed += 1;
            }
        }
    }
    slice.spread = bands.into_iter().map(|(band, count)| (load::bands::upto::<5>(band), count)).collect();
    slice
}

fn find(server: &mut Server) -> (Search, Ending) {
    let objectives = server.objectives.clone();
    let mut search = Search::new(server.capacity() / 9.7, 0.03, &objectives);
    let ending = search.run(&objectives, server).unwrap();
    assert!(server.now <= server.within + 15.0, "{}", server.now);
    (search, ending)
}

fn low(search: &Search) -> f64 {
    search.ends().0.map_or(0.0, |tried| tried.rate)
}

/// Returns the share of slow requests at a rate, over a long time.
fn slow(server: &mut Server, rate: f64, limit: f64) -> f64 {
    let all = server.requests(rate, 60_000.0 / rate);
    let slow = all.iter().filter(|(at, end, good)| !good || end - at > limit).count();
    slow as f64 / all.len() as f64
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn any_server_ends_the_search(
        seed in 1u64..1_000_000, seats in 1usize..5, work in 0.002f64..0.5, queue in 1usize..50,
        drift in 0.0f64..0.01, recovers in any::<bool>(), generator in 10.0f64..2_000.0,
    ) {
        let server = Server::new(seed, seats, work, &["p95<200ms", "errors<1%", "mean<150ms"]);
        let mut server = Server { queue, drift, recovers, generator, ..server };
        let (search, ending) = find(&mut server);
        prop_assert!(server.steps < 200);
        prop_assert!(low(&search) <= server.capacity().min(generator) * 1.1);
        if ending == Ending::Found {
            let (low, high) = search.ends();
            prop_assert!(high.unwrap().rate / low.unwrap().rate < 1.031);
        }
    }
}

#[test]
fn a_full_queue_is_the_limit_of_errors() {
    let mut server = Server { queue: 3, ..Server::new(5, 2, 0.02, &["errors<1%"]) };
    let (search, _) = find(&mut server);
    assert!((10.0..70.0).contains(&low(&search)), "{}", low(&search));
}

#[test]
fn the_load_generator_can_be_the_limit() {
    let mut server = Server { generator: 300.0, ..Server::new(7, 50, 0.01, &["p95<200ms"]) };
    let (search, ending) = find(&mut server);
    assert_eq!(ending, Ending::Generator);
    assert!((280.0..=300.0).contains(&low(&search)), "{}", low(&search));
}

#[test]
fn a_server_that_is_always_slower_holds_nothing() {
    let mut server = Server::new(7, 2, 0.3, &["p95<200ms"]);
    let (search, ending) = find(&mut server);
    assert_eq!((ending, low(&search)), (Ending::NothingHolds, 0.0));
}

#[test]
fn a_server_that_does_not_recover_ends_the_search() {
    let mut server = Server { recovers: false, ..Server::new(7, 2, 0.02, &["p95<200ms"]) };
    let (search, ending) = find(&mut server);
    assert_eq!(ending, Ending::Unsettled);
    assert!((40.0..100.0).contains(&low(&search)), "{}", low(&search));
}

/// Returns the highest rate at which fewer than 5 % of the requests take longer than 200 ms, by long runs.
fn truth(server: &mut Server) -> f64 {
    let (mut low, mut high) = (server.capacity() * 0.5, server.capacity());
    for _ in 0..8 {
        let middle = f64::midpoint(low, high);
        if slow(server, middle, 0.2) < 0.05 { low = middle } else { high = middle }
    }
    low
}

/// A few thousand requests, whose arrivals are random, cannot tell 3 %; the bounds are those of chance.
#[test]
fn the_knee_is_found() {
    for (seats, work, varies, near) in
        [(2, 0.02, false, 0.09), (4, 0.004, false, 0.05), (2, 0.02, true, 0.18)]
    {
        let new = |seed| Server { varies, ..Server::new(seed, seats, work, &["p95<200ms"]) };
        let truth = truth(&mut new(99));
        let (mut close, mut covered) = (0, 0);
        for seed in 1..=8 {
            let mut server = new(seed * 7919);
            let (search, _) = find(&mut server);
            let (from, to) = search.interval();
            covered += u32::from(from.is_some_and(|from| from <= truth) && to.is_some_and(|to| to >= truth));
            close += u32::from((low(&search) / truth - 1.0).abs() <= near);
        }
        assert!(close >= 7, "{seats} seats of {work} s: {close} of 8 are near {truth}");
        assert!(covered >= 5, "{seats} seats of {work} s: {covered} of 8 intervals contain {truth}");
    }
}
