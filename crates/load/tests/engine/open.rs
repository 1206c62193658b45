//! Requests that come whether or not answers do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use load::plan::{Arrivals, Stage, Stop, Traffic};

use crate::support::{OK, answering, assert_balanced, open, request, run};

#[test]
fn as_many_as_the_rate_says() {
    let address = answering(|_, _| Some(OK.to_owned()));
    let outcome = run(&open(address, 1000.0, Duration::from_millis(500), 8));
    assert_balanced(&outcome);
    assert_eq!((outcome.sent, outcome.ok, outcome.errors.unsent), (500, 500, 0));
    assert!(outcome.corrected.is_none());
}

#[test]
fn ramps_and_a_last_stage_as_long_as_the_run() {
    let address = answering(|_, _| Some(OK.to_owned()));
    let mut plan = open(address, 1.0, Duration::ZERO, 8);
    let ramp = Stage { from: 0.0, to: 400.0, lasting: Some(Duration::from_millis(500)) };
    plan.traffic = Traffic::Open {
        stages: vec![ramp, Stage { from: 400.0, to: 400.0, lasting: None }],
        arrivals: Arrivals::Even,
        connections: 8,
    };
    plan.stop = Stop { after: Some(Duration::from_secs(1)), ..Stop::default() };
    let outcome = run(&plan);
    assert_balanced(&outcome);
    assert_eq!(outcome.sent, 300);
}

#[test]
fn poisson_arrivals_of_one_seed_are_always_as_many() {
    let address = answering(|_, _| Some(OK.to_owned()));
    let mut counts = Vec::new();
    for threads in [1, 3] {
        let mut plan = open(address, 1.0, Duration::ZERO, 8);
        let stage = Stage { from: 500.0, to: 500.0, lasting: Some(Duration::from_millis(400)) };
        plan.traffic = Traffic::Open { stages: vec![stage], arrivals: Arrivals::Random(3), connections: 8 };
        plan.threads = threads;
        let outcome = run(&plan);
        assert_balanced(&outcome);
        counts.push(outcome.sent);
    }
    assert_eq!(counts[0], counts[1]);
    assert!((120..280).contains(&counts[0]), "{counts:?}");
}

#[test]
fn a_stall_is_in_the_latency_of_all_that_were_due_meanwhile() {
    let count = Arc::new(AtomicUsize::new(0));
    let address = answering(move |_, _| {
        if count.fetch_add(1, Ordering::Relaxed) == 20 {
            std::thread::sleep(Duration::from_millis(500));
        }
        Some(OK.to_owned())
    });
    // One connection: everybody waits for the one that stalls.
    let outcome = run(&open(address, 200.0, Duration::from_secs(1), 1));
    assert_balanced(&outcome);
    assert_eq!(outcome.ok, 200);
    // 100 requests were due during the stall; the one that was sent is the only one whose service was slow.
    assert!(outcome.latency.value_at_quantile(0.75) > 50_000, "{}", outcome.latency.value_at_quantile(0.75));
    assert!(outcome.service.value_at_quantile(0.95) < 250_000);
    assert!(outcome.latency.max() >= 490_000);
}

#[test]
fn what_is_never_sent_is_said() {
    let address = answering(|_, _| {
        std::thread::sleep(Duration::from_millis(100));
        Some(OK.to_owned())
    });
    let mut plan = open(address, 100.0, Duration::from_secs(5), 2);
    plan.stop = Stop { after: Some(Duration::from_secs(1)), ..Stop::default() };
    let outcome = run(&plan);
    assert_balanced(&outcome);
    assert_eq!(outcome.sent + outcome.errors.unsent, 100);
    assert!(outcome.errors.unsent > 60, "{:?}", outcome.errors);
    assert_eq!(outcome.connections, 2);
}

#[test]
fn connections_are_opened_when_needed_and_no_more() {
    let address = answering(|_, _| Some(OK.to_owned()));
    let mut plan = open(address, 20.0, Duration::from_millis(500), 50);
    plan.threads = 1;
    let outcome = run(&plan);
    assert_eq!(outcome.ok, 10);
    // A pause of the machine opens some more.
    assert!(outcome.connections < 8, "{}", outcome.connections);
}

#[test]
fn so_many_and_no_more() {
    let address = answering(|_, _| Some(OK.to_owned()));
    let mut plan = open(address, 100.0, Duration::from_secs(60), 4);
    plan.stop = Stop { requests: Some(17), ..Stop::default() };
    let outcome = run(&plan);
    assert_balanced(&outcome);
    assert_eq!((outcome.sent, outcome.ok), (17, 17));
    assert!(outcome.seconds < 10.0);
}

#[test]
fn replay_with_its_gaps() {
    let address =
        answering(|head, _| Some(OK.replace("200", if head.starts_with("GET /b") { "201" } else { "200" })));
    let mut plan = open(address, 1.0, Duration::ZERO, 4);
    plan.requests.push(request(address, "/b"));
    plan.traffic = Traffic::Replay {
        arrivals: vec![(Duration::ZERO, 0), (Duration::from_millis(50), 1), (Duration::from_millis(400), 1)],
        connections: 4,
    };
    let begin = Instant::now();
    let outcome = run(&plan);
    assert_balanced(&outcome);
    assert!(begin.elapsed() >= Duration::from_millis(400));
    assert_eq!((outcome.statuses[&200], outcome.statuses[&201]), (1, 2));
}
