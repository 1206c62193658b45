//! Tests of complete results: they are consistent, and invalid numbers are rejected with a message.

use planner::Slo;
use planner::facts::{Price, Size, TrafficFacts};
use planner::{compare, size_up};
use proptest::prelude::*;

fn size(workers: u32, threads: u32) -> Size {
    Size { name: None, workers, threads, fibers: 0, cores: None, price: None }
}

fn slo(percentile: f64, under_ms: f64) -> Option<Slo> {
    Some(Slo { percentile, under_ms })
}

#[test]
fn the_example_in_the_manual() {
    // 375 requests a minute of 7 ms on one thread: 142.9 / 6.25 = 22.9 times.
    let found = size_up(&TrafficFacts::new(375.0 / 60.0, 7.0), &size(1, 1), None).unwrap();
    assert_eq!(found.instances, 1);
    assert!((found.headroom_times - 22.857).abs() < 0.001);
    assert!((found.in_the_app - 0.043_75).abs() < 1e-9);
    assert!((found.load.utilisation - 0.043_75).abs() < 1e-9);
    assert!(found.one_lost.is_none() && found.cost.is_none() && found.keeps_slo.is_none());
}

#[test]
fn a_whole_number_of_full_instances_is_not_enough() {
    // 100/s on instances with 10/s each: ten would be fully utilised and never catch up.
    let facts = TrafficFacts { headroom: 0.0, ..TrafficFacts::new(100.0, 100.0) };
    let found = size_up(&facts, &size(1, 1), None).unwrap();
    assert_eq!((found.needed.to_keep_up, found.needed.in_all, found.needed.with_one_lost), (11, 11, 12));
    let crowded = size_up(&facts, &size(1, 1), Some(10)).unwrap();
    assert!(crowded.load.times.is_none() && crowded.load.utilisation >= 1.0);
}

#[test]
fn an_objective_needs_more_instances_and_is_met() {
    let facts = TrafficFacts { slo: slo(99.0, 250.0), headroom: 0.0, ..TrafficFacts::new(200.0, 50.0) };
    let found = size_up(&facts, &size(2, 1), None).unwrap();
    let needed = found.needed.for_slo.unwrap();
    assert!(needed > found.needed.to_keep_up);
    assert_eq!(found.keeps_slo, Some(true));
    let fewer = size_up(&facts, &size(2, 1), Some(needed - 1)).unwrap();
    assert_eq!(fewer.keeps_slo, Some(false), "one fewer does not meet it");
    let never = size_up(&TrafficFacts { slo: slo(99.0, 100.0), ..facts }, &size(2, 1), None).unwrap();
    assert_eq!(
        (never.needed.for_slo, never.keeps_slo),
        (None, Some(false)),
        "the service alone takes longer"
    );
}

#[test]
fn the_cheapest_size_comes_first() {
    let priced = |name: &str, workers, threads, per_month| Size {
        name: Some(name.to_owned()),
        price: Some(Price { per_month, currency: "$".to_owned() }),
        ..size(workers, threads)
    };
    let sizes = [priced("large", 4, 5, 25.0), priced("small", 2, 5, 7.0), size(1, 1)];
    let found = compare(&TrafficFacts::new(100.0, 100.0), &sizes, None).unwrap();
    let names: Vec<_> = found.iter().map(|one| one.size.name.as_deref()).collect();
    assert_eq!(names, [Some("small"), Some("large"), None]);
    let cost = found[0].cost.as_ref().unwrap();
    assert_eq!((found[0].instances, cost.per_month), (2, 14.0));
    // 14 a month for 100 x 3600 x 730 = 262.8 million requests.
    assert!((cost.per_million - 14.0 / 262.8).abs() < 1e-9);
}

#[test]
fn invalid_facts_are_rejected() {
    let good = TrafficFacts::new(1.0, 1.0);
    let bad = [
        TrafficFacts { rate_per_s: 0.0, ..good.clone() },
        TrafficFacts { rate_per_s: f64::NAN, ..good.clone() },
        TrafficFacts { response_ms: -1.0, ..good.clone() },
        TrafficFacts { response_ms: f64::INFINITY, ..good.clone() },
        TrafficFacts { cv: -0.1, ..good.clone() },
        TrafficFacts { headroom: f64::NAN, ..good.clone() },
        TrafficFacts { cpu_ms: Some(2.0), ..good.clone() },
        TrafficFacts { rate_per_s: 1e12, response_ms: 1e6, ..good.clone() },
    ];
    for facts in bad {
        assert!(size_up(&facts, &size(1, 1), None).is_err(), "{facts:?}");
    }
    assert!(size_up(&good, &size(0, 1), None).is_err());
    assert!(size_up(&good, &size(1, 1), None).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn results_are_consistent(
        rate in 0.01..5_000.0, response in 0.5..2_000.0, cv in 0.0..3.0, share in 0.01..1.0,
        workers in 1..20_u32, threads in 1..20_u32, cores in 0.25..16.0, under in 1.0..10_000.0,
    ) {
        let facts = TrafficFacts { cv, cpu_ms: Some(response * share), slo: slo(95.0, under), ..TrafficFacts::new(rate, response) };
        let size = Size { cores: Some(cores), ..size(workers, threads) };
        let found = size_up(&facts, &size, None).unwrap();
        prop_assert!(found.needed.to_keep_up <= found.needed.with_headroom && found.needed.with_headroom <= found.needed.in_all);
        prop_assert!(found.load.utilisation < 1.0 && found.headroom_times >= 1.3 * 0.999);
        let times = found.load.times.unwrap();
        prop_assert!((0.0..=1.0).contains(&times.waits));
        prop_assert!(times.p50_ms <= times.p95_ms && times.p95_ms <= times.p99_ms);
        prop_assert!(times.mean_ms >= response * 0.99);
        // Little's law.
        prop_assert!((times.present - found.load.rate_per_s * times.mean_ms / 1_000.0).abs() < 1e-6 * times.present);
        prop_assert_eq!(found.keeps_slo, Some(found.needed.for_slo.is_some()));
        // One more instance never makes responses slower.
        let more = size_up(&facts, &size, Some(found.instances + 1)).unwrap();
        prop_assert!(more.load.times.unwrap().p99_ms <= times.p99_ms * 1.000_001);
        prop_assert!(found.steps.iter().all(|step| !step.filled_in.contains("NaN") && !step.result.contains("NaN")));
    }
}
