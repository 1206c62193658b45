//! Tests of the open model, in which requests are sent whether or not responses arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use load::scenario::{Arrivals, Stage, Stop, Traffic};

use crate::support::{OK, assert_balanced, open, request, responding, run};

#[test]
fn the_number_of_requests_matches_the_rate() {
    let address = responding(|_, _| Some(OK.to_owned()));
    let outcome = run(&open(address, 1000.0, Duration::from_millis(500), 8));
    assert_balanced(&outcome);
    assert_eq!((outcome.sent, outcome.ok, outcome.errors.unsent), (500, 500, 0));
    assert!(outcome.corrected.is_none());
}

#[test]
fn the_time_behind_the_last_request_belongs_to_the_run() {
    let address = responding(|_, _| Some(OK.to_owned()));
    let outcome = run(&open(address, 2.0, Duration::from_millis(500), 8));
    assert_eq!(outcome.ok, 1);
    assert!(outcome.seconds >= 0.5, "2 per second for half a second: {}", outcome.seconds);
}

#[test]
fn a_rate_that_no_load_generator_reaches_is_sent_in_part_and_counted_as_a_whole() {
    let address = responding(|_, _| Some(OK.to_owned()));
    let mut scenario = open(address, 4e6, Duration::from_millis(100), 8);
    scenario.timeouts.grace = Duration::from_millis(100);
    let outcome = run(&scenario);
    assert!(outcome.ok > 0, "{:?}", outcome.errors);
    assert_eq!(outcome.ok + outcome.errors.total(), 400_000);
}

#[test]
fn ramps_and_a_last_stage_without_duration() {
    let address = responding(|_, _| Some(OK.to_owned()));
    let mut scenario = open(address, 1.0, Duration::ZERO, 8);
    let ramp = Stage { from: 0.0, to: 400.0, duration: Some(Duration::from_millis(500)) };
    scenario.traffic = Traffic::Open {
        stages: vec![ramp, Stage { from: 400.0, to: 400.0, duration: None }],
        arrivals: Arrivals::Even,
        connections: 8,
    };
    scenario.stop = Stop { after: Some(Duration::from_secs(1)), ..Stop::default() };
    let outcome = run(&scenario);
    assert_balanced(&outcome);
    assert_eq!(outcome.sent, 300);
}

#[test]
fn the_same_seed_gives_the_same_number_of_poisson_arrivals() {
    let address = responding(|_, _| Some(OK.to_owned()));
    let mut counts = Vec::new();
    for threads in [1, 3] {
        let mut scenario = open(address, 1.0, Duration::ZERO, 8);
        let stage = Stage { from: 500.0, to: 500.0, duration: Some(Duration::from_millis(400)) };
        scenario.traffic =
            Traffic::Open { stages: vec![stage], arrivals: Arrivals::Random(3), connections: 8 };
        scenario.threads = threads;
        let outcome = run(&scenario);
        assert_balanced(&outcome);
        counts.push(outcome.sent);
    }
    assert_eq!(counts[0], counts[1]);
    assert!((120..280).contains(&counts[0]), "{counts:?}");
}

#[test]
fn a_stall_is_in_the_latency_of_all_requests_due_meanwhile() {
    let count = Arc::new(AtomicUsize::new(0));
    let address = responding(move |_, _| {
        if count.fetch_add(1, Ordering::Relaxed) == 20 {
            std::thread::sleep(Duration::from_millis(500));
        }
        Some(OK.to_owned())
    });
    // One connection, so all requests wait for the stalled one.
    let outcome = run(&open(address, 200.0, Duration::from_secs(1), 1));
    assert_balanced(&outcome);
    assert_eq!(outcome.ok, 200);
    // 100 requests were due during the stall; only the one in flight has a slow service time.
    assert!(outcome.latency.value_at_quantile(0.75) > 50_000, "{}", outcome.latency.value_at_quantile(0.75));
    assert!(outcome.service.value_at_quantile(0.95) < 250_000);
    assert!(outcome.latency.max() >= 490_000);
}

#[test]
fn unsent_requests_are_reported() {
    let address = responding(|_, _| {
        std::thread::sleep(Duration::from_millis(100));
        Some(OK.to_owned())
    });
    let mut scenario = open(address, 100.0, Duration::from_secs(5), 2);
    scenario.stop = Stop { after: Some(Duration::from_secs(1)), ..Stop::default() };
    let outcome = run(&scenario);
    assert_balanced(&outcome);
    assert_eq!(outcome.sent + outcome.errors.unsent, 100);
    assert!(outcome.errors.unsent > 60, "{:?}", outcome.errors);
    assert_eq!(outcome.connections, 2);
}

#[test]
fn connections_are_opened_when_needed_and_no_more() {
    let address = responding(|_, _| Some(OK.to_owned()));
    let mut scenario = open(address, 20.0, Duration::from_millis(500), 50);
    scenario.threads = 1;
    let outcome = run(&scenario);
    assert_eq!(outcome.ok, 10);
    // A pause of the machine may open a few more.
    assert!(outcome.connections < 8, "{}", outcome.connections);
}

#[test]
fn a_limited_number_of_requests() {
    let address = responding(|_, _| Some(OK.to_owned()));
    let mut scenario = open(address, 100.0, Duration::from_secs(60), 4);
    scenario.stop = Stop { requests: Some(17), ..Stop::default() };
    let outcome = run(&scenario);
    assert_balanced(&outcome);
    assert_eq!((outcome.sent, outcome.ok), (17, 17));
    assert!(outcome.seconds < 10.0);
}

#[test]
fn replay_keeps_the_gaps() {
    let address =
        responding(|head, _| Some(OK.replace("200", if head.starts_with("GET /b") { "201" } else { "200" })));
    let mut scenario = open(address, 1.0, Duration::ZERO, 4);
    scenario.requests.push(request(address, "/b"));
    scenario.traffic = Traffic::Replay {
        arrivals: vec![(Duration::ZERO, 0), (Duration::from_millis(50), 1), (Duration::from_millis(400), 1)],
        connections: 4,
    };
    let begin = Instant::now();
    let outcome = run(&scenario);
    assert_balanced(&outcome);
    assert!(begin.elapsed() >= Duration::from_millis(400));
    assert_eq!((outcome.statuses[&200], outcome.statuses[&201]), (1, 2));
}
