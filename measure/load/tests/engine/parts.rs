//! Tests of runs in parts, which together equal the run of one process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use load::scenario::{Arrivals, Part, Scenario, Stage, Traffic};
use load::{Flow, Outcome};

use crate::support::{OK, closed, open, request, responding};

/// Runs all parts at once, each with the same gate, and adds up their outcomes.
fn together(scenario: &Scenario, of: usize) -> Outcome {
    let start = Instant::now() + Duration::from_millis(200);
    let threads: Vec<_> = (0..of)
        .map(|number| {
            let scenario = scenario.clone().in_part(Part::new(number, of).expect("a part"));
            std::thread::spawn(move || {
                load::run_together(&scenario, &mut |_| Flow::Continue, &mut || {
                    Ok(start.saturating_duration_since(Instant::now()))
                })
                .expect("a part that runs")
            })
        })
        .collect();
    let outcomes = threads.into_iter().map(|thread| thread.join().expect("no panic"));
    outcomes
        .reduce(|mut sum, one| {
            sum.merge(one);
            sum
        })
        .expect("parts")
}

#[test]
fn requests_users_and_urls_add_up() {
    let served = Arc::new(AtomicUsize::new(0));
    let count = served.clone();
    let address = responding(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        Some(OK.to_owned())
    });
    let mut scenario = closed(address, 7, 1_001);
    scenario.requests = vec![request(address, "/a"), request(address, "/b"), request(address, "/c")];
    let outcome = together(&scenario, 3);
    assert_eq!((outcome.sent, outcome.ok, outcome.connections), (1_001, 1_001, 7));
    assert_eq!(served.load(Ordering::Relaxed), 1_001, "none is sent before the start");
    let by_url: Vec<u64> = outcome.requests.iter().map(|request| request.ok).collect();
    assert_eq!(by_url, [334, 334, 333]);
}

#[test]
fn arrivals_are_those_of_one_run() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let address = responding(move |_, _| {
        notes.lock().expect("no panic").push(Instant::now());
        Some(OK.to_owned())
    });
    let mut scenario = open(address, 1.0, Duration::ZERO, 9);
    let ramp = Stage { from: 50.0, to: 350.0, duration: Some(Duration::from_secs(1)) };
    scenario.traffic = Traffic::Open { stages: vec![ramp], arrivals: Arrivals::Random(3), connections: 9 };
    let mut counts = Vec::new();
    for of in [1, 4] {
        let outcome = together(&scenario, of);
        assert_eq!(outcome.errors.unsent, 0);
        counts.push(outcome.sent);
    }
    assert_eq!(counts[0], counts[1]);
    let seen = seen.lock().expect("no panic");
    let (one, four) = seen.split_at(usize::try_from(counts[0]).expect("few"));
    let gaps = |times: &[Instant]| times.iter().map(|time| time.duration_since(times[0])).collect::<Vec<_>>();
    let mut apart: Vec<Duration> =
        gaps(one).into_iter().zip(gaps(four)).map(|(one, four)| one.abs_diff(four)).collect();
    apart.sort();
    assert!(apart[apart.len() / 2] < Duration::from_millis(20), "{apart:?}");
}

#[test]
fn replayed_requests_are_sent_once() {
    let address = responding(|_, _| Some(OK.to_owned()));
    let mut scenario = open(address, 1.0, Duration::ZERO, 9);
    let arrivals = (0..101).map(|number| (Duration::from_millis(number), 0)).collect();
    scenario.traffic = Traffic::Replay { arrivals, connections: 9 };
    assert_eq!(together(&scenario, 4).ok, 101);
    scenario.stop.requests = Some(50);
    assert_eq!(together(&scenario, 4).ok, 50);
}
