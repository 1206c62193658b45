use super::*;
use crate::view::tests::server;
use stats::{Finished, Recorder, Snapshot};

/// A fleet of servers at `10.0.0.N:1`, each with its own counters.
struct Fixture {
    fleet: Fleet,
    began: Instant,
    recorders: Vec<Recorder>,
}

const SECOND: Duration = Duration::from_secs(1);

fn address(number: usize) -> ControlAddress {
    format!("tcp://10.0.0.{number}:1").parse().unwrap()
}

impl Fixture {
    fn new(count: usize) -> Fixture {
        let began = Instant::now();
        let mut fleet = Fleet::new(SECOND, began);
        (0..count).for_each(|number| fleet.joined(address(number), began));
        Fixture { fleet, began, recorders: (0..count).map(|_| Recorder::new()).collect() }
    }

    /// Records `count` requests of `ms` milliseconds at a server.
    fn serve(&self, number: usize, count: usize, status: u16, ms: u64) {
        (0..count).for_each(|_| {
            self.recorders[number].finished(&Finished {
                status,
                total_us: ms * 1_000,
                ..Finished::default()
            });
        });
    }

    fn snapshot(&self, number: usize) -> Box<ServerSnapshot> {
        let mut server = server(2, &self.recorders[number]);
        server.front = Snapshot::of([&self.recorders[number]]);
        server.pid = 100 + number as u32;
        Box::new(server)
    }

    /// Makes all servers answer, this many seconds after the start.
    fn sample(&mut self, seconds: u32) -> Instant {
        let at = self.began + SECOND * seconds;
        for number in 0..self.recorders.len() {
            let snapshot = self.snapshot(number);
            self.fleet.sampled(&address(number), at, Ok(snapshot));
        }
        at
    }

    fn view(&self, seconds: u32) -> View {
        self.fleet.view(self.began + SECOND * seconds)
    }
}

#[test]
fn totals_are_those_of_one_server_that_counted_all() {
    let mut fixture = Fixture::new(4);
    fixture.sample(0);
    for number in 0..4 {
        fixture.serve(number, 100, 200, 10 * (number as u64 + 1));
    }
    fixture.serve(3, 4, 500, 900);
    fixture.sample(2);
    let totals = fixture.view(2).totals;
    assert_eq!((totals.servers, totals.up, totals.unreachable), (4, 4, 0));
    assert_eq!((totals.requests_per_s, totals.errors_per_s), (202.0, 2.0));
    let one = Recorder::new();
    let before = Snapshot::of([&one]);
    for ms in [10, 20, 30, 40] {
        (0..100).for_each(|_| {
            one.finished(&Finished { status: 200, total_us: ms * 1_000, ..Finished::default() });
        });
    }
    (0..4)
        .for_each(|_| _ = one.finished(&Finished { status: 500, total_us: 900_000, ..Finished::default() }));
    let expected = Snapshot::of([&one]).total_ms.since(&before.total_ms);
    assert_eq!(
        DurationSummary { sum: expected.sum, mean: expected.mean, ..totals.total_ms.clone() },
        expected
    );
    assert!((totals.total_ms.mean - expected.mean).abs() < 1e-9);
}

#[test]
fn a_slow_server_stands_out_and_says_why() {
    let mut fixture = Fixture::new(5);
    fixture.sample(0);
    for second in 1..=4 {
        for number in 0..5 {
            fixture.serve(number, 10, 200, if number == 2 { 400 } else { 20 + number as u64 });
        }
        fixture.sample(second);
    }
    let view = fixture.view(4);
    assert_eq!(view.servers[0].address, "10.0.0.2:1", "what needs attention comes first");
    assert!(view.servers[0].outlier[0].starts_with("p99 40"), "{:?}", view.servers[0].outlier);
    assert!(view.servers[0].outlier[0].contains("(median 2"), "{:?}", view.servers[0].outlier);
    assert!(view.servers[1..].iter().all(|row| row.outlier.is_empty()));
}

#[test]
fn who_does_not_answer_is_shown_with_the_reason_and_not_counted() {
    let mut fixture = Fixture::new(2);
    fixture.sample(0);
    fixture.serve(0, 10, 200, 10);
    fixture.serve(1, 10, 200, 10);
    let at = fixture.sample(1);
    let failed = at + SECOND;
    fixture.fleet.sampled(&address(1), failed, Err("nothing listens there".to_owned()));
    let view = fixture.view(3);
    assert_eq!((view.totals.up, view.totals.unreachable, view.totals.requests_per_s), (1, 1, 10.0));
    let row = &view.servers[0];
    assert_eq!(
        (row.state, row.why.as_deref(), row.for_s),
        (State::Unreachable, Some("nothing listens there"), 1.0)
    );
    // A server that does not even fail: its last answer is old.
    let view = fixture.view(60);
    assert_eq!(view.totals.up, 0);
    assert!(view.servers.iter().any(|row| row.why.as_deref() == Some("it does not respond")));
}

#[test]
fn who_leaves_the_list_is_shown_for_a_minute() {
    let mut fixture = Fixture::new(2);
    let at = fixture.sample(0);
    fixture.fleet.left(&address(0), at);
    assert_eq!(fixture.view(0).servers.iter().filter(|row| row.state == State::Gone).count(), 1);
    fixture.fleet.tick(at + KEPT - SECOND, SystemTime::now());
    assert_eq!(fixture.view(1).servers.len(), 2);
    fixture.fleet.tick(at + KEPT, SystemTime::now());
    assert_eq!(fixture.view(1).servers.len(), 1);
    fixture.fleet.joined(address(0), at);
    assert_eq!(fixture.view(1).servers.len(), 2, "it may come back");
}

#[test]
fn versions_and_generations_are_told_apart() {
    let mut fixture = Fixture::new(3);
    let at = fixture.sample(0);
    let mut newer = fixture.snapshot(0);
    (newer.version, newer.phase) = ("0.2.0".to_owned(), 1);
    fixture.fleet.sampled(&address(0), at + SECOND, Ok(newer));
    let view = fixture.view(1);
    assert_eq!(view.versions[0], ServerGroup { name: "0.2.0".to_owned(), servers: 1 });
    assert_eq!(
        view.notices,
        [
            "several versions: 0.2.0 on 1 server, 0.1.0 on 2 servers",
            "rollout: generation 2 on 1 server, generation 1 on 2 servers"
        ]
    );
    let row = view.servers.iter().find(|row| row.generation == 2).unwrap();
    assert_eq!((row.workers, row.workers_old), (2, 2));
}

#[test]
fn the_last_hour_is_kept_in_steps() {
    let mut fixture = Fixture::new(2);
    fixture.sample(0);
    fixture.serve(0, 30, 200, 10);
    fixture.serve(1, 10, 404, 50);
    let at = fixture.sample(10);
    fixture.fleet.tick(at, SystemTime::now());
    let point = &fixture.fleet.points()[0];
    assert_eq!((point.requests, point.refused, point.errors, point.up, point.seconds), (40, 10, 0, 2, 10.0));
    assert!((point.p99_ms - 50.0).abs() < 1.0 && point.mean_ms < 21.0, "{point:?}");
    for step in 2..=400 {
        fixture.fleet.tick(fixture.began + STEP * step, SystemTime::now());
    }
    assert_eq!(fixture.fleet.points().len(), POINTS);
}
