//! Tests of the closed model, in which users wait for responses.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use load::Flow;
use load::scenario::{Protocol, RequestOrder, Stop, Think, Traffic};

use crate::support::{OK, assert_balanced, closed, request, responding, run};

#[test]
fn the_number_of_requests_is_exact() {
    let address = responding(|_, _| Some(OK.to_owned()));
    let outcome = run(&closed(address, 7, 1001));
    assert_balanced(&outcome);
    assert_eq!((outcome.sent, outcome.ok, outcome.errors.total()), (1001, 1001, 0));
    assert_eq!(outcome.connections, 7);
    assert_eq!(outcome.statuses, BTreeMap::from([(200, 1001)]));
    assert_eq!(outcome.bytes.bodies, 5005);
    assert_eq!(outcome.bytes.received, 1001 * OK.len() as u64);
    assert_eq!(outcome.server.software.as_deref(), Some("test"));
    assert_eq!((outcome.server.protocol.as_str(), outcome.server.length), ("HTTP/1.1", 5));
    assert!(outcome.corrected.expect("the closed model").len() >= 1001);
    assert!(outcome.requests.is_empty());
}

#[test]
fn pipelining() {
    let address = responding(|_, _| Some(OK.to_owned()));
    let mut scenario = closed(address, 3, 1000);
    scenario.transport.protocol = Protocol::Http1 { keep_alive: true, pipeline: 16 };
    let outcome = run(&scenario);
    assert_balanced(&outcome);
    assert_eq!((outcome.ok, outcome.connections), (1000, 3));
}

#[test]
fn requests_pipelined_after_the_last_response_are_sent_again() {
    let close = OK.replace("Server: test", "Connection: close");
    let address = responding(move |_, number| match number {
        0..9 => Some(OK.to_owned()),
        9 => Some(close.clone()),
        _ => None,
    });
    let mut scenario = closed(address, 2, 200);
    scenario.transport.protocol = Protocol::Http1 { keep_alive: true, pipeline: 4 };
    let outcome = run(&scenario);
    assert_balanced(&outcome);
    assert_eq!((outcome.ok, outcome.errors.total()), (200, 0));
    assert!(outcome.connections >= 20);
}

#[test]
fn without_keep_alive() {
    let address = responding(|head, number| {
        assert!(head.contains("Connection: close\r\n") && number == 0);
        Some(OK.replace("Server: test", "Connection: close"))
    });
    let mut scenario = closed(address, 4, 50);
    scenario.transport.protocol = Protocol::Http1 { keep_alive: false, pipeline: 1 };
    let outcome = run(&scenario);
    assert_balanced(&outcome);
    assert_eq!((outcome.ok, outcome.connections, outcome.connect.len()), (50, 50, 50));
    let body = OK.rsplit("\r\n\r\n").next().unwrap_or_default().len() as u64;
    assert_eq!(outcome.bytes.bodies, 50 * body, "the first responses count, too");
}

#[test]
fn rounds_of_each_user_with_thinking() {
    let address = responding(|_, _| Some(OK.to_owned()));
    let mut scenario = closed(address, 5, 1);
    scenario.stop = Stop { rounds: Some(4), ..Stop::default() };
    scenario.traffic = Traffic::Closed { users: 5, think: Think::Fixed(Duration::from_millis(30)) };
    let begin = Instant::now();
    let outcome = run(&scenario);
    assert_balanced(&outcome);
    assert_eq!(outcome.ok, 20);
    assert!(begin.elapsed() >= Duration::from_millis(90));
    assert!(outcome.expected_interval_us >= 30_000);
}

#[test]
fn weights_and_order() {
    for order in [RequestOrder::InTurn, RequestOrder::Random(7)] {
        let seen: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
        let log = seen.clone();
        let address = responding(move |head, _| {
            let target = head.split(' ').nth(1).expect("a target").to_owned();
            *log.lock().expect("a log").entry(target).or_default() += 1;
            Some(OK.to_owned())
        });
        let mut scenario = closed(address, 3, 400);
        scenario.requests = vec![request(address, "/a"), request(address, "/b")];
        scenario.requests[0].weight = 3;
        scenario.order = order;
        let outcome = run(&scenario);
        assert_balanced(&outcome);
        let a = seen.lock().expect("a log")["/a"];
        match order {
            RequestOrder::InTurn => assert_eq!(a, 300),
            RequestOrder::Random(_) => assert!((250..350).contains(&a), "{a}"),
        }
        assert_eq!(outcome.requests[0].name, format!("GET http://{address}/a"));
        assert_eq!((outcome.requests[0].ok, outcome.requests[0].latency.len()), (a, a));
        assert_eq!(outcome.requests[1].ok, 400 - a);
    }
}

#[test]
fn several_servers() {
    let first = responding(|_, _| Some(OK.to_owned()));
    let second = responding(|_, _| Some(OK.replace("200 OK", "404 Not Found")));
    let mut scenario = closed(first, 2, 40);
    scenario.requests.push(request(second, "/"));
    scenario.threads = 1;
    let outcome = run(&scenario);
    assert_balanced(&outcome);
    assert_eq!(
        (outcome.ok, outcome.errors.status, outcome.errors.total()),
        (20, 20, 20),
        "{:?}",
        outcome.errors
    );
    assert_eq!(outcome.requests[1].errors, 20);
    // One connection per user and server, or fewer if the two users happen to take turns.
    assert!((2..=4).contains(&outcome.connections), "{}", outcome.connections);
}

#[test]
fn the_warm_up_is_not_counted() {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let address = responding(move |_, _| {
        counter.fetch_add(1, Ordering::Relaxed);
        Some(OK.to_owned())
    });
    let mut scenario = closed(address, 2, 100);
    scenario.warm_up = Duration::from_millis(200);
    let outcome = run(&scenario);
    assert_balanced(&outcome);
    assert_eq!(outcome.ok, 100);
    assert!(count.load(Ordering::Relaxed) > 100);
}

#[test]
fn the_callback_gets_progress_and_can_stop_the_run() {
    let address = responding(|_, _| Some(OK.to_owned()));
    let mut scenario = closed(address, 2, 1);
    scenario.stop = Stop { after: Some(Duration::from_secs(60)), ..Stop::default() };
    let mut looks = Vec::new();
    let outcome = load::run(&scenario, &mut |progress| {
        looks.push(progress.clone());
        if looks.len() > 4 { Flow::Stop } else { Flow::Continue }
    })
    .expect("a run");
    assert_balanced(&outcome);
    assert!(outcome.seconds < 30.0 && outcome.ok > 0);
    let last = looks.last().expect("looks");
    assert_eq!((last.ok, last.in_flight), (outcome.ok, 0));
    assert!(looks.iter().any(|look| look.rate > 0.0 && look.p50_us > 0 && look.p99_us >= look.p50_us));
    assert!(looks.is_sorted_by_key(|look| look.ok) && last.done < 0.5);
}
