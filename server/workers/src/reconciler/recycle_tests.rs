//! Tests the limits of workers.

use super::*;
use proptest::prelude::*;

const LIMIT: u64 = 100;
const MEMORY: Limits = Limits { memory: Some(LIMIT), max_requests: None, max_age: None };

fn recycler() -> Recycler {
    Recycler::new(fastrand::Rng::with_seed(7))
}

fn seen(serial: Serial, age: u64, requests: u64, pss: u64) -> Figures {
    Figures { serial, age: Duration::from_secs(age), requests, pss: Some(pss).filter(|pss| *pss > 0) }
}

#[test]
fn without_limits_nothing_happens() {
    assert_eq!(recycler().decide(Limits::default(), &[seen(1, 1 << 30, u64::MAX, u64::MAX)]), []);
}

#[test]
fn a_grown_worker_is_recycled_one_at_a_time() {
    let mut recycler = recycler();
    assert_eq!(recycler.decide(MEMORY, &[seen(1, 61, 0, 90), seen(2, 70, 0, 90)]), []);
    let grown = [seen(1, 161, 0, 101), seen(2, 170, 0, 120)];
    assert_eq!(recycler.decide(MEMORY, &grown), [Decision::Recycle(2, Why::Memory(120))], "the older one");
    assert_eq!(recycler.decide(MEMORY, &grown), [], "the other waits");
    recycler.gone(2);
    assert_eq!(recycler.decide(MEMORY, &grown[..1]), [Decision::Recycle(1, Why::Memory(101))]);
}

#[test]
fn a_young_worker_is_not_recycled_for_its_memory() {
    let mut recycler = recycler();
    assert_eq!(recycler.decide(MEMORY, &[seen(1, 59, 0, 120)]), []);
    assert_eq!(recycler.decide(MEMORY, &[seen(1, 60, 0, 120)]), [Decision::Recycle(1, Why::Memory(120))]);
}

#[test]
fn a_worker_that_explodes_is_killed_at_once() {
    let mut recycler = recycler();
    assert_eq!(recycler.decide(MEMORY, &[seen(1, 1, 0, 50)]), []);
    assert_eq!(recycler.decide(MEMORY, &[seen(1, 3, 0, 149)]), []);
    assert_eq!(recycler.decide(MEMORY, &[seen(1, 5, 0, 150)]), [Decision::Kill(1, 150)]);
    recycler.gone(1);
    assert_eq!(
        recycler.decide(MEMORY, &[seen(2, 1, 0, 120)]),
        [],
        "the killed one says nothing about the limit"
    );
}

#[test]
fn two_young_workers_over_the_limit_in_a_row_end_recycling_by_memory() {
    let mut recycler = recycler();
    let first = recycler.decide(MEMORY, &[seen(1, 2, 0, 200), seen(2, 2, 0, 210)]);
    assert_eq!(first, [Decision::TooSmall([200, 210])]);
    assert_eq!(
        recycler.decide(MEMORY, &[seen(1, 999, 0, 240), seen(2, 999, 0, 240), seen(3, 2, 0, 220)]),
        []
    );
    assert!(recycler.is_too_small());
    let exploded = recycler.decide(MEMORY, &[seen(1, 999, 0, 300)]);
    assert_eq!(exploded, [Decision::Kill(1, 300)], "one and a half times what it had at first");
    let larger = Limits { memory: Some(230), ..MEMORY };
    assert_eq!(recycler.decide(larger, &[seen(2, 999, 0, 240)]), [Decision::Recycle(2, Why::Memory(240))]);
}

#[test]
fn a_worker_that_stays_below_ends_the_row() {
    let mut recycler = recycler();
    assert_eq!(recycler.decide(MEMORY, &[seen(1, 2, 0, 120), seen(2, 2, 0, 50)]), []);
    recycler.gone(1);
    assert_eq!(recycler.decide(MEMORY, &[seen(2, 61, 0, 60)]), []);
    assert_eq!(recycler.decide(MEMORY, &[seen(3, 2, 0, 120)]), []);
    assert_eq!(recycler.decide(MEMORY, &[seen(4, 2, 0, 120)]), [Decision::TooSmall([120, 120])]);
}

#[test]
fn requests_and_age_are_varied_within_a_tenth() {
    let limits = Limits { memory: None, max_requests: Some(1000), max_age: Some(Duration::from_secs(1000)) };
    let turns = |of: fn(u64) -> Figures| {
        let mut recycler = recycler();
        let mut turns: Vec<u64> = Vec::new();
        for serial in 1..40 {
            let at = (0..).find(|&at| !recycler.decide(limits, &[Figures { serial, ..of(at) }]).is_empty());
            recycler.gone(serial);
            turns.extend(at);
        }
        turns
    };
    for turns in [turns(|at| seen(0, 0, at, 0)), turns(|at| seen(0, at, 0, 0))] {
        assert!(turns.iter().all(|at| (900..=1101).contains(at)), "{turns:?}");
        let (least, most) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
        assert!(*least < 950 && *most > 1050, "{turns:?}");
    }
}

#[test]
fn one_request_is_the_least() {
    let limits = Limits { max_requests: Some(1), ..Limits::default() };
    let mut recycler = recycler();
    assert_eq!(recycler.decide(limits, &[seen(1, 0, 0, 0)]), []);
    assert_eq!(recycler.decide(limits, &[seen(1, 0, 1, 0)]), [Decision::Recycle(1, Why::Requests(1))]);
}

proptest! {
    /// For any behaviour of the workers: at most one leaves at a time, no young worker leaves for its memory,
    /// and no worker below all limits leaves.
    #[test]
    fn the_contract_holds(steps in proptest::collection::vec((1u32..6, 0u64..400, 0u64..3000, 0u64..300, any::<bool>()), 1..200)) {
        let limits = Limits { memory: Some(LIMIT), max_requests: Some(1000), max_age: Some(Duration::from_secs(200)) };
        let mut recycler = recycler();
        let mut leaving = None;
        for (serial, age, requests, pss, gone) in steps {
            let one = seen(serial, age, requests, pss);
            for decision in recycler.decide(limits, &[one]) {
                match decision {
                    Decision::Recycle(serial, why) => {
                        prop_assert_eq!(leaving.replace(serial), None);
                        prop_assert_eq!(serial, one.serial);
                        match why {
                            Why::Memory(bytes) => prop_assert!(bytes > LIMIT && one.age >= YOUNG && !recycler.is_too_small()),
                            Why::Requests(count) => prop_assert!(count >= 900),
                            Why::Age(age) => prop_assert!(age >= Duration::from_secs(180)),
                        }
                    }
                    Decision::Kill(_, bytes) => prop_assert!(bytes >= LIMIT * 3 / 2),
                    Decision::TooSmall(bytes) => prop_assert!(bytes.iter().all(|&bytes| bytes > LIMIT)),
                }
            }
            if gone {
                recycler.gone(serial);
                leaving = leaving.filter(|one| *one != serial);
            }
        }
    }
}
