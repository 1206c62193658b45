//! Tests the order of service over clients, classes and workers.

use super::*;
use crate::client::QueueClient;
use crate::dispatch::Dispatch;
use crate::ticket::{Admission, Assignment, TakenBack};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

const MS: Duration = Duration::from_millis(1);

fn key(class: u8, client: u64) -> QueueKey {
    QueueKey { class: ClassIndex(class), client: QueueClient::Address(client) }
}

fn shares(weights: &[u32]) -> Vec<ClassShare> {
    let names = (0..).map(|number: u32| format!("class {number}"));
    names.zip(weights).map(|(name, &weight)| ClassShare { name, weight }).collect()
}

/// A queue whose workers serve requests for known times, on a clock of its own.
struct Simulation {
    dispatch: Dispatch,
    now: Instant,
    /// The requests that workers have: end, start and key, and the values that the queue needs.
    served: Vec<(Instant, Duration, QueueKey, Option<Turn>, Serial)>,
    keys: BTreeMap<u64, (QueueKey, Duration, Instant)>,
    /// The requests that got a seat, in order: key, number, wait.
    begun: Vec<(QueueKey, u64, Duration)>,
    /// Requests that were displaced by others.
    displaced: Vec<QueueKey>,
}

impl Simulation {
    fn new(seats: u32, max_queue: usize) -> Simulation {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(max_queue).without_prefetching();
        (0..seats).for_each(|serial| dispatch.worker_up(serial, 1, now, &mut Vec::new()));
        let (served, keys, begun, displaced) = Default::default();
        Simulation { dispatch, now, served, keys, begun, displaced }
    }

    fn ask(&mut self, key: QueueKey, takes: Duration) -> Admission {
        let (ticket, admission) = self.dispatch.ask(0, 0, key, self.now);
        self.keys.insert(ticket.number, (key, takes, self.now));
        match admission {
            Admission::Go(serial) => self.begin(ticket.number, None, serial),
            Admission::Displaces(victim) => {
                let (its, ..) = self.keys[&victim.number];
                self.displaced.push(its);
            }
            _ => {}
        }
        admission
    }

    fn ask_all(&mut self, key: QueueKey, takes: Duration, count: usize) {
        for _ in 0..count {
            self.ask(key, takes);
        }
    }

    fn begin(&mut self, number: u64, turn: Option<Turn>, serial: Serial) {
        let (key, takes, asked) = self.keys[&number];
        self.begun.push((key, number, self.now.saturating_duration_since(asked)));
        self.served.push((self.now + takes, takes, key, turn, serial));
    }

    /// Lets the next request end, and returns its key.
    fn step(&mut self) -> Option<QueueKey> {
        let next = (0..self.served.len()).min_by_key(|&at| self.served[at].0)?;
        let (end, took, key, turn, serial) = self.served.remove(next);
        self.now = self.now.max(end);
        let mut assigned = Vec::new();
        self.dispatch.finished(serial, turn, Some(took), self.now, &mut assigned);
        for Assignment { ticket, serial, turn } in assigned {
            self.begin(ticket.number, Some(turn), serial);
        }
        Some(key)
    }

    fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step();
        }
    }

    /// Lets these clients ask again as soon as their requests end, `parallel` at a time, for `time`. Returns the
    /// seat time of each.
    fn closed_loop(&mut self, clients: &[(QueueKey, usize, Duration)], time: Duration) -> Vec<Duration> {
        let end = self.now + time;
        for &(key, parallel, takes) in clients {
            self.ask_all(key, takes, parallel);
        }
        let mut used = vec![Duration::ZERO; clients.len()];
        while self.now < end {
            let Some(ended) = self.step() else { break };
            let at = clients.iter().position(|(key, ..)| *key == ended).expect("a client of the loop");
            used[at] += clients[at].2;
            self.ask(ended, clients[at].2);
        }
        used
    }

    fn longest_wait(&self, of: QueueKey) -> Duration {
        self.begun.iter().filter(|(key, ..)| *key == of).map(|(.., wait)| *wait).max().unwrap_or_default()
    }
}

#[test]
fn a_client_with_one_request_does_not_wait_for_all_of_another() {
    let mut simulation = Simulation::new(2, 10_000);
    let (greedy, other) = (key(0, 1), key(0, 2));
    simulation.closed_loop(&[(greedy, 200, 20 * MS), (other, 1, 20 * MS)], 20_000 * MS);
    assert!(simulation.longest_wait(other) <= 20 * MS, "{:?}", simulation.longest_wait(other));
    assert!(simulation.longest_wait(greedy) >= 1_900 * MS);
}

#[test]
fn two_thousand_streams_and_many_other_clients() {
    let mut simulation = Simulation::new(4, 10_000);
    let mut clients = vec![(key(0, 0), 2_000, 20 * MS)];
    clients.extend((1..=20).map(|number| (key(0, number), 1, 20 * MS)));
    let used = simulation.closed_loop(&clients, 20_000 * MS);
    // 21 clients on four seats: a turn comes after 20 others.
    for (client, used) in clients.iter().zip(&used).skip(1) {
        assert!(simulation.longest_wait(client.0) <= 140 * MS, "{:?}", simulation.longest_wait(client.0));
        assert!(*used >= 2_000 * MS, "{used:?}");
    }
    let share = used[0].as_secs_f64() / used.iter().sum::<Duration>().as_secs_f64();
    assert!((0.03..0.08).contains(&share), "{share}");
}

#[test]
fn a_client_with_slow_requests_gets_no_more_seat_time() {
    for seats in [1, 2] {
        let mut simulation = Simulation::new(seats, 10_000);
        let clients = [(key(0, 1), 50, 200 * MS), (key(0, 2), 50, 10 * MS)];
        let used = simulation.closed_loop(&clients, 100_000 * MS);
        let share = used[0].as_secs_f64() / (used[0] + used[1]).as_secs_f64();
        assert!((0.4..0.6).contains(&share), "{seats}: {share}");
    }
}

#[test]
fn a_client_that_holds_seats_comes_after_one_that_holds_none_but_is_not_forgotten() {
    let mut simulation = Simulation::new(2, 100);
    let (holder, other) = (key(0, 1), key(0, 2));
    // One request that takes a seat at once, and one that waits behind it.
    simulation.ask(key(0, 9), 10 * MS);
    simulation.ask(key(0, 9), 5 * MS);
    simulation.ask(holder, 3_600_000 * MS);
    simulation.ask(other, 10 * MS);
    simulation.ask(holder, 10 * MS);
    simulation.ask_all(other, 10 * MS, 10);
    simulation.ask_all(key(0, 3), 10 * MS, 8);
    simulation.steps(22);
    let order: Vec<u64> = simulation.begun[2..]
        .iter()
        .map(|(key, ..)| if let QueueClient::Address(number) = key.client { number } else { 0 })
        .collect();
    let second = order.iter().skip(1).position(|&number| number == 1).expect("it is served") + 1;
    assert!((5..=14).contains(&second), "{order:?}");
}

#[test]
fn classes_get_seats_by_weight_and_the_last_lane_what_is_left() {
    let mut simulation = Simulation::new(2, 10_000);
    simulation.dispatch.set_classes(&shares(&[1, 3, 0]));
    let clients = [(key(0, 1), 20, 10 * MS), (key(1, 1), 20, 10 * MS), (key(2, 1), 20, 10 * MS)];
    let used = simulation.closed_loop(&clients, 50_000 * MS);
    let share = used[1].as_secs_f64() / (used[0] + used[1]).as_secs_f64();
    assert!((0.73..0.77).contains(&share), "{share}");
    // Those that got a seat before any request waited.
    assert!(used[2] <= 40 * MS, "{:?}", used[2]);
    let figures: Vec<_> =
        simulation.dispatch.classes().map(|(share, figures)| (share.name.clone(), figures)).collect();
    assert_eq!((figures[2].0.as_str(), figures[2].1.waiting, figures[2].1.clients), ("class 2", 20, 1));
    assert!(figures[1].1.served > 2 * figures[0].1.served && figures[1].1.waited > MS);
    // Nothing else waits: the last lane gets all.
    let mut simulation = Simulation::new(1, 10_000);
    simulation.dispatch.set_classes(&shares(&[1, 0]));
    let used = simulation.closed_loop(&[(key(1, 1), 5, 10 * MS)], 1_000 * MS);
    assert!(used[0] >= 990 * MS);
}

#[test]
fn classes_with_slow_requests_get_no_more_than_their_weight() {
    let mut simulation = Simulation::new(2, 10_000);
    simulation.dispatch.set_classes(&shares(&[1, 1]));
    let clients = [(key(0, 1), 20, 100 * MS), (key(1, 1), 20, 10 * MS)];
    let used = simulation.closed_loop(&clients, 100_000 * MS);
    let share = used[0].as_secs_f64() / (used[0] + used[1]).as_secs_f64();
    assert!((0.45..0.55).contains(&share), "{share}");
}

#[test]
fn classes_change_while_requests_wait() {
    let mut simulation = Simulation::new(1, 10_000);
    simulation.dispatch.set_classes(&shares(&[1, 1, 1]));
    (0..4).for_each(|class| simulation.ask_all(key(class, 1), MS, 1));
    simulation.dispatch.set_classes(&shares(&[2]));
    let names: Vec<String> = simulation.dispatch.classes().map(|(share, _)| share.name.clone()).collect();
    assert_eq!(names, ["class 0", "class 1", "class 2"], "their requests wait");
    while simulation.step().is_some() {}
    assert_eq!(simulation.begun.len(), 4, "a class that does not exist is the default one");
    simulation.dispatch.set_classes(&shares(&[2]));
    assert_eq!(simulation.dispatch.classes().count(), 1);
}

#[test]
fn a_full_queue_refuses_the_client_that_fills_it() {
    let mut simulation = Simulation::new(1, 10);
    let (greedy, other) = (key(0, 1), key(0, 2));
    simulation.ask_all(greedy, MS, 11);
    assert_eq!(simulation.ask(greedy, MS), Admission::Full);
    assert!(
        matches!(simulation.ask(other, MS), Admission::Displaces(ticket) if ticket.number == 10),
        "the newest"
    );
    let admitted = (0..20).filter(|_| matches!(simulation.ask(other, MS), Admission::Displaces(_))).count();
    assert!((2..=4).contains(&admitted), "until both have about as many: {admitted}");
    assert_eq!(simulation.dispatch.waiting(), 10);
    assert_eq!(simulation.dispatch.refusals().full, 22);
    assert_eq!(simulation.dispatch.classes().map(|(_, figures)| figures.refused).sum::<u64>(), 22);
    let waiters = simulation.dispatch.waiters(1);
    assert_eq!((waiters.len(), waiters[0].key, simulation.dispatch.clients()), (1, greedy, 2));
}

#[test]
fn the_last_lane_gives_way_to_all_others() {
    let mut simulation = Simulation::new(1, 3);
    simulation.dispatch.set_classes(&shares(&[1, 0]));
    simulation.ask(key(0, 1), MS);
    (2..5).for_each(|number| simulation.ask_all(key(1, number), MS, 1));
    assert!((0..3).all(|_| matches!(simulation.ask(key(0, 1), MS), Admission::Displaces(_))));
    assert_eq!((simulation.ask(key(0, 1), MS), simulation.displaced.len()), (Admission::Full, 3));
    assert_eq!(simulation.ask(key(1, 7), MS), Admission::Full, "it displaces no other class");
}

#[test]
fn the_predicted_wait_is_that_of_the_client() {
    let mut line = FairQueue::default();
    let now = Instant::now();
    let mut number = 0;
    let mut push = |line: &mut FairQueue, key| {
        number += 1;
        line.push(Ticket { number, thread: 0, slot: 0, pool: PoolIndex::DEFAULT, place: NONE }, now, key);
    };
    assert_eq!(line.ahead(key(0, 1)), 0);
    (0..1_000).for_each(|_| push(&mut line, key(0, 1)));
    assert_eq!((line.ahead(key(0, 1)), line.ahead(key(0, 2))), (1_000, 1));
    (10..20).for_each(|client| push(&mut line, key(0, client)));
    assert_eq!((line.ahead(key(0, 1)), line.ahead(key(0, 2))), (1_010, 11));
    line.set_classes(&shares(&[1, 1, 0]));
    assert_eq!((line.ahead(key(1, 1)), line.ahead(key(2, 1))), (0, 1_010));
    (0..5).for_each(|_| push(&mut line, key(1, 1)));
    assert_eq!((line.ahead(key(1, 1)), line.ahead(key(1, 2)), line.ahead(key(0, 2))), (10, 2, 22));
    (0..5).for_each(|_| push(&mut line, key(2, 1)));
    assert_eq!((line.ahead(key(1, 2)), line.ahead(key(2, 1))), (2, 1_020));
}

#[test]
fn a_worker_that_is_gone_gives_its_turns_back_once() {
    let mut simulation = Simulation::new(1, 100);
    simulation.ask_all(key(0, 1), MS, 3);
    simulation.step();
    let (_, _, _, turn, serial) = simulation.served[0];
    assert_eq!(simulation.dispatch.waiters(9)[0].seats, 1);
    simulation.dispatch.worker_gone(serial);
    assert_eq!(simulation.dispatch.waiters(9)[0].seats, 0);
    let mut assigned = Vec::new();
    simulation.dispatch.worker_up(7, 1, simulation.now, &mut assigned);
    assert_eq!(simulation.dispatch.clients(), 0);
    simulation.dispatch.ask(0, 0, key(0, 1), simulation.now);
    simulation.dispatch.finished(serial, turn, None, simulation.now, &mut Vec::new());
    assert_eq!(simulation.dispatch.waiters(9)[0].seats, 1, "that turn was another one");
}

/// Events of the property tests.
#[derive(Debug, Clone, Copy)]
enum Happens {
    Asks { class: u8, client: u64, takes_ms: u64 },
    Ends,
    Cancels(prop::sample::Index),
    TakenBack(prop::sample::Index),
    Expires,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => (0u8..3, 0u64..5, 1u64..40).prop_map(|(class, client, takes_ms)| Happens::Asks { class, client, takes_ms }),
        4 => Just(Happens::Ends),
        1 => any::<prop::sample::Index>().prop_map(Happens::Cancels),
        1 => any::<prop::sample::Index>().prop_map(Happens::TakenBack),
        1 => Just(Happens::Expires),
    ]
}

proptest! {
    /// Whatever happens, each request is served, cancelled, displaced or expires once; the requests of a
    /// client are served in order; and no seat is free while a request waits.
    #[test]
    fn no_request_is_lost_or_served_twice(steps in proptest::collection::vec(happens(), 1..200), seats in 1u32..4, max in 1usize..40) {
        let mut now = Instant::now();
        let mut dispatch = Dispatch::new(max).without_prefetching();
        dispatch.set_classes(&shares(&[2, 1, 0]));
        (0..seats).for_each(|serial| dispatch.worker_up(serial, 1, now, &mut Vec::new()));
        let mut waiting: BTreeMap<u64, (Ticket, QueueKey, Instant, u64)> = BTreeMap::new();
        let mut held: Vec<(Assignment, QueueKey, Instant, u64, bool)> = Vec::new();
        let mut served: BTreeMap<QueueKey, u64> = BTreeMap::new();
        for step in steps {
            now += MS;
            let mut assigned = Vec::new();
            match step {
                Happens::Asks { class, client, takes_ms } => {
                    let (ticket, admission) = dispatch.ask(0, 0, key(class, client), now);
                    match admission {
                        Admission::Go(serial) => {
                            prop_assert!(waiting.is_empty());
                            let turn = Turn { slot: NONE, stamp: 0 };
                            held.push((Assignment { ticket, serial, turn }, key(class, client), now, takes_ms, false));
                        }
                        Admission::Full => prop_assert_eq!(waiting.len(), max.max(waiting.len())),
                        Admission::Late(_) => prop_assert!(false, "predictions are off"),
                        Admission::Wait | Admission::Displaces(_) => {
                            if let Admission::Displaces(victim) = admission {
                                let (_, its, ..) = waiting.remove(&victim.number).expect("it waits");
                                let count = |of: QueueKey| waiting.values().filter(|(_, key, ..)| *key == of).count();
                                prop_assert!(its.class == ClassIndex(2) && class != 2 || count(its) > count(key(class, client)), "it had more");
                            }
                            waiting.insert(ticket.number, (ticket, key(class, client), now, takes_ms));
                        }
                    }
                }
                Happens::Ends if !held.is_empty() => {
                    let (Assignment { serial, turn, .. }, _, _, takes_ms, had_waited) = held.remove(0);
                    dispatch.finished(serial, had_waited.then_some(turn), Some(MS * takes_ms as u32), now, &mut assigned);
                }
                Happens::Cancels(index) if !waiting.is_empty() => {
                    let number = *waiting.keys().nth(index.index(waiting.len())).expect("it is in the range");
                    let (ticket, ..) = waiting.remove(&number).expect("it waits");
                    prop_assert!(dispatch.cancel(ticket));
                    prop_assert!(!dispatch.cancel(ticket));
                }
                Happens::TakenBack(index) if !held.is_empty() => {
                    let (Assignment { ticket, serial, turn }, key, since, takes_ms, had_waited) = held.remove(index.index(held.len()));
                    waiting.insert(ticket.number, (ticket, key, since, takes_ms));
                    served.remove(&key);
                    let back = TakenBack { turn: had_waited.then_some(turn), again: Some((ticket, since, key)) };
                    dispatch.put_back(serial, &[back], now, &mut assigned);
                }
                Happens::Expires => {
                    let limit = now - MS * 20;
                    for ticket in dispatch.expire(limit) {
                        let (_, _, since, _) = waiting.remove(&ticket.number).expect("it waits");
                        prop_assert!(since <= limit);
                    }
                    prop_assert!(waiting.values().all(|(_, _, since, _)| *since > limit));
                }
                _ => {}
            }
            for assignment in assigned {
                let number = assignment.ticket.number;
                let (_, key, since, takes_ms) = waiting.remove(&number).expect("it waits");
                let first = waiting.values().filter(|(_, its, ..)| *its == key).all(|(ticket, ..)| ticket.number > number);
                prop_assert!(first, "in order within a client");
                held.push((assignment, key, since, takes_ms, true));
            }
            prop_assert_eq!(dispatch.waiting(), waiting.len());
            prop_assert!(waiting.is_empty() || held.len() == seats as usize);
            prop_assert_eq!(dispatch.oldest(), waiting.values().map(|(_, _, since, _)| *since).min());
            let clients: std::collections::BTreeSet<QueueKey> = waiting.values().map(|(_, key, ..)| *key).collect();
            prop_assert_eq!(dispatch.clients(), clients.len());
            prop_assert_eq!(dispatch.waiters(100).iter().map(|one| one.waiting as usize).sum::<usize>(), waiting.len());
        }
    }

    /// A client without another request waits for at most one turn of each other client and seat.
    #[test]
    fn unfairness_is_bounded(others in proptest::collection::vec(1usize..60, 1..12), seats in 1u32..5) {
        let mut simulation = Simulation::new(seats, 100_000);
        for (number, &parallel) in others.iter().enumerate() {
            simulation.ask_all(key(0, number as u64), MS, parallel);
        }
        simulation.steps(20);
        let before = simulation.begun.len();
        simulation.ask(key(0, 99), MS);
        while simulation.step().is_some() {}
        let mut turns: BTreeMap<QueueKey, u32> = BTreeMap::new();
        for (key, ..) in simulation.begun[before..].iter().take_while(|(its, ..)| *its != key(0, 99)) {
            *turns.entry(*key).or_default() += 1;
        }
        prop_assert!(turns.values().all(|&count| count <= seats), "{:?}", turns);
        prop_assert!(turns.values().sum::<u32>() <= others.len() as u32, "{:?}", turns);
    }

    /// With one client, requests are served in order of arrival, whatever happened before and whatever the
    /// times.
    #[test]
    fn one_client_is_served_in_order(steps in proptest::collection::vec((any::<bool>(), 1u64..50), 1..300), seats in 1u32..4) {
        let mut simulation = Simulation::new(seats, 1_000);
        let mut expected = VecDeque::new();
        for (asks, takes_ms) in steps {
            if asks {
                let number = simulation.keys.len() as u64;
                simulation.ask(key(0, 1), MS * takes_ms as u32);
                expected.push_back(number);
            } else {
                simulation.step();
            }
            let begun = simulation.begun.iter().map(|(_, number, _)| number);
            prop_assert!(begun.eq(expected.iter().take(simulation.begun.len())));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Over long runs, clients that always have requests get equal seat time, and classes by their weights.
    #[test]
    fn shares_are_kept_over_long_runs(weights in proptest::collection::vec(1u32..6, 1..4), takes in proptest::collection::vec(1u64..40, 4), seats in 1u32..4) {
        let mut simulation = Simulation::new(seats, 100_000);
        simulation.dispatch.set_classes(&shares(&weights));
        let of_class = |class: usize| (0..2).map(move |client| (class, client));
        let clients: Vec<_> = (0..weights.len()).flat_map(of_class)
            .map(|(class, client)| (key(class as u8, client), 3 * seats as usize, MS * takes[(class + client as usize) % 4] as u32))
            .collect();
        let used = simulation.closed_loop(&clients, 40_000 * MS);
        let all: f64 = used.iter().map(Duration::as_secs_f64).sum();
        let sum: u32 = weights.iter().sum();
        for (class, &weight) in weights.iter().enumerate() {
            let its = used[2 * class].as_secs_f64() + used[2 * class + 1].as_secs_f64();
            let (share, due) = (its / all, f64::from(weight) / f64::from(sum));
            prop_assert!((share - due).abs() <= 0.08, "class {} has {} of {}", class, share, due);
        }
    }
}

proptest! {
    /// A request that may wait behind all others is not examined further (`Dispatch::too_long`).
    #[test]
    fn no_request_has_more_before_it_than_wait(
        all in proptest::collection::vec((0u8..3, 0u64..6), 0..200),
        class in 0u8..3,
        client in 0u64..7,
    ) {
        let mut line = FairQueue::default();
        line.set_classes(&shares(&[2, 1, 0]));
        for (number, &(class, client)) in all.iter().enumerate() {
            let ticket = Ticket { number: number as u64, thread: 0, slot: 0, pool: PoolIndex::DEFAULT, place: NONE };
            line.push(ticket, Instant::now(), key(class, client));
        }
        prop_assert!(line.ahead(key(class, client)) <= all.len());
    }
}
