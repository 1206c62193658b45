//! Users who wait for their answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use load::Verdict;
use load::plan::{Order, Protocol, Stop, Think, Traffic};

use crate::support::{OK, answering, assert_balanced, closed, request, run};

#[test]
fn exactly_so_many_requests() {
    let address = answering(|_, _| Some(OK.to_owned()));
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
    let address = answering(|_, _| Some(OK.to_owned()));
    let mut plan = closed(address, 3, 1000);
    plan.transport.protocol = Protocol::Http1 { keep_alive: true, pipeline: 16 };
    let outcome = run(&plan);
    assert_balanced(&outcome);
    assert_eq!((outcome.ok, outcome.connections), (1000, 3));
}

#[test]
fn what_was_pipelined_behind_the_last_answer_is_asked_again() {
    let close = OK.replace("Server: test", "Connection: close");
    let address = answering(move |_, number| match number {
        0..9 => Some(OK.to_owned()),
        9 => Some(close.clone()),
        _ => None,
    });
    let mut plan = closed(address, 2, 200);
    plan.transport.protocol = Protocol::Http1 { keep_alive: true, pipeline: 4 };
    let outcome = run(&plan);
    assert_balanced(&outcome);
    assert_eq!((outcome.ok, outcome.errors.total()), (200, 0));
    assert!(outcome.connections >= 20);
}

#[test]
fn without_keep_alive() {
    let address = answering(|head, number| {
        assert!(head.contains("Connection: close\r\n") && number == 0);
        Some(OK.replace("Server: test", "Connection: close"))
    });
    let mut plan = closed(address, 4, 50);
    plan.transport.protocol = Protocol::Http1 { keep_alive: false, pipeline: 1 };
    let outcome = run(&plan);
    assert_balanced(&outcome);
    assert_eq!((outcome.ok, outcome.connections, outcome.connect.len()), (50, 50, 50));
    let body = OK.rsplit("\r\n\r\n").next().unwrap_or_default().len() as u64;
    assert_eq!(outcome.bytes.bodies, 50 * body, "the first answers count, too");
}

#[test]
fn rounds_of_each_user_with_thinking() {
    let address = answering(|_, _| Some(OK.to_owned()));
    let mut plan = closed(address, 5, 1);
    plan.stop = Stop { rounds: Some(4), ..Stop::default() };
    plan.traffic = Traffic::Closed { users: 5, think: Think::Fixed(Duration::from_millis(30)) };
    let begin = Instant::now();
    let outcome = run(&plan);
    assert_balanced(&outcome);
    assert_eq!(outcome.ok, 20);
    assert!(begin.elapsed() >= Duration::from_millis(90));
    assert!(outcome.expected_interval_us >= 30_000);
}

#[test]
fn weights_and_order() {
    for order in [Order::InTurn, Order::Random(7)] {
        let seen: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
        let log = seen.clone();
        let address = answering(move |head, _| {
            let target = head.split(' ').nth(1).expect("a target").to_owned();
            *log.lock().expect("a log").entry(target).or_default() += 1;
            Some(OK.to_owned())
        });
        let mut plan = closed(address, 3, 400);
        plan.requests = vec![request(address, "/a"), request(address, "/b")];
        plan.requests[0].weight = 3;
        plan.order = order;
        let outcome = run(&plan);
        assert_balanced(&outcome);
        let a = seen.lock().expect("a log")["/a"];
        match order {
            Order::InTurn => assert_eq!(a, 300),
            Order::Random(_) => assert!((250..350).contains(&a), "{a}"),
        }
        assert_eq!(outcome.requests[0].name, format!("GET http://{address}/a"));
        assert_eq!((outcome.requests[0].ok, outcome.requests[0].latency.len()), (a, a));
        assert_eq!(outcome.requests[1].ok, 400 - a);
    }
}

#[test]
fn several_servers() {
    let first = answering(|_, _| Some(OK.to_owned()));
    let second = answering(|_, _| Some(OK.replace("200 OK", "404 Not Found")));
    let mut plan = closed(first, 2, 40);
    plan.requests.push(request(second, "/"));
    plan.threads = 1;
    let outcome = run(&plan);
    assert_balanced(&outcome);
    assert_eq!(
        (outcome.ok, outcome.errors.status, outcome.errors.total()),
        (20, 20, 20),
        "{:?}",
        outcome.errors
    );
    assert_eq!(outcome.requests[1].errors, 20);
    // One a user and server, or fewer when the two users happen to take turns.
    assert!((2..=4).contains(&outcome.connections), "{}", outcome.connections);
}

#[test]
fn the_warm_up_is_not_counted() {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let address = answering(move |_, _| {
        counter.fetch_add(1, Ordering::Relaxed);
        Some(OK.to_owned())
    });
    let mut plan = closed(address, 2, 100);
    plan.warm_up = Duration::from_millis(200);
    let outcome = run(&plan);
    assert_balanced(&outcome);
    assert_eq!(outcome.ok, 100);
    assert!(count.load(Ordering::Relaxed) > 100);
}

#[test]
fn the_watcher_ends_it_and_is_told_how_it_stands() {
    let address = answering(|_, _| Some(OK.to_owned()));
    let mut plan = closed(address, 2, 1);
    plan.stop = Stop { after: Some(Duration::from_secs(60)), ..Stop::default() };
    let mut looks = Vec::new();
    let outcome = load::run(&plan, &mut |progress| {
        looks.push(progress.clone());
        if looks.len() > 4 { Verdict::End } else { Verdict::Go }
    })
    .expect("a run");
    assert_balanced(&outcome);
    assert!(outcome.seconds < 30.0 && outcome.ok > 0);
    let last = looks.last().expect("looks");
    assert_eq!((last.ok, last.in_flight), (outcome.ok, 0));
    assert!(looks.iter().any(|look| look.rate > 0.0 && look.p50_us > 0 && look.p99_us >= look.p50_us));
    assert!(looks.is_sorted_by_key(|look| look.ok) && last.done < 0.5);
}
