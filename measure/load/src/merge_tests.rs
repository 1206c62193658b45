use super::*;
use crate::histogram::Histogram;
use crate::recorded::Compared;
use crate::{bands, recorder::STAGES};
use proptest::prelude::*;

fn histogram(values: &[u64]) -> Histogram {
    let mut histogram = Histogram::default();
    for value in values {
        histogram.saturating_record(*value);
    }
    histogram
}

fn outcome(second: i64, values: Vec<u64>, corrected: bool, names: Vec<String>, reported: bool) -> Outcome {
    let started = jiff::Timestamp::from_second(1_700_000_000 + second).expect("a time");
    let count = values.len() as u64;
    let mut one = Second {
        sent: count,
        ok: count,
        max: values.iter().copied().max().unwrap_or(0),
        ..Second::default()
    };
    let spread: Vec<(u64, u64)> =
        values.iter().map(|value| (bands::upto::<COURSE>(bands::index::<COURSE>(*value)), 1)).collect();
    one.add_spread(&spread);
    let bands = values.iter().map(|value| {
        let upto_us = bands::upto::<STAGES>(bands::index::<STAGES>(*value));
        Stages {
            reported: 1,
            bands: vec![Band { upto_us, count: 1, latency: *value, cpu: (1, 1), ..Band::default() }],
        }
    });
    let compared = reported.then(|| Compared {
        name: "GET /".to_owned(),
        same: count,
        status: 1,
        ..Compared::default()
    });
    Outcome {
        started_at: started.to_string(),
        seconds: count as f64,
        sent: count,
        ok: count,
        statuses: values.iter().map(|value| (200 + (value % 3) as u16, 1)).collect(),
        errors: Errors {
            read: count,
            texts: [(format!("text {}", count % 3), count)].into(),
            ..Errors::default()
        },
        connections: count,
        crowded: count,
        bytes: Bytes { sent: count, received: count, bodies: count },
        latency: histogram(&values),
        service: histogram(&values),
        corrected: corrected.then(|| histogram(&values)),
        expected_interval_us: count,
        connect: histogram(&values),
        handshakes: reported.then(|| Handshakes {
            full: count,
            resumed: count / 2,
            counted: count,
            took: histogram(&values),
            suites: [(format!("suite {}", count % 2), count)].into(),
            failed: [(format!("reason {}", count % 3), 1)].into(),
        }),
        first_byte: histogram(&values),
        course: vec![one; values.len() % 4],
        stages: bands.reduce(Stages::merge).filter(|_| reported),
        cpu_seconds: count as f64,
        busy: 1.0 / (count + 1) as f64,
        requests: names
            .into_iter()
            .map(|name| RequestOutcome { name, ok: count, errors: 1, latency: histogram(&values) })
            .collect(),
        journeys: reported.then(|| RequestOutcome {
            name: "journey".to_owned(),
            ok: count,
            errors: 1,
            latency: histogram(&values),
        }),
        compared: compared.into_iter().collect(),
        server: ServerInfo {
            software: reported.then(|| format!("{count}")),
            protocol: if reported { "HTTP/1.1".to_owned() } else { String::new() },
            tls: None,
            length: count,
        },
    }
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    let values = prop::collection::vec(1u64..100_000_000, 0..8);
    let names = prop::collection::btree_set("[abc]", 0..3).prop_map(|names| names.into_iter().collect());
    (0i64..5, values, any::<bool>(), names, any::<bool>()).prop_map(
        |(second, values, corrected, names, reported)| outcome(second, values, corrected, names, reported),
    )
}

fn sum(mut one: Outcome, two: &Outcome) -> Outcome {
    one.merge(two.clone());
    one
}

/// Compares histograms as histograms, because the same counts can be serialized in more than one way.
fn assert_same(one: &Outcome, two: &Outcome) {
    for (one, two) in [
        (&one.latency, &two.latency),
        (&one.service, &two.service),
        (&one.connect, &two.connect),
        (&one.first_byte, &two.first_byte),
    ] {
        assert!(one == two);
    }
    assert!(one.corrected == two.corrected);
    assert!(
        one.requests
            .iter()
            .map(|request| &request.latency)
            .eq(two.requests.iter().map(|request| &request.latency))
    );
    let plain = |outcome: &Outcome| {
        let mut outcome = outcome.clone();
        for histogram in
            [&mut outcome.latency, &mut outcome.service, &mut outcome.connect, &mut outcome.first_byte]
        {
            histogram.reset();
        }
        outcome.corrected = None;
        for request in &mut outcome.requests {
            request.latency.reset();
        }
        serde_json::to_value(&outcome).expect("plain data")
    };
    assert_eq!(plain(one), plain(two));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn order_and_grouping_do_not_matter(one in outcomes(), two in outcomes(), three in outcomes()) {
        assert_same(&sum(one.clone(), &two), &sum(two.clone(), &one));
        assert_same(&sum(sum(one.clone(), &two), &three), &sum(one, &sum(two, &three)));
    }
}

#[test]
fn seconds_are_aligned_by_the_clock() {
    let early = outcome(0, vec![100, 200], false, Vec::new(), true);
    let late = outcome(1, vec![300, 400], false, Vec::new(), true);
    let both = sum(late, &early);
    assert_eq!(both.started_at, early.started_at);
    assert_eq!(
        both.course.iter().map(|second| (second.ok, second.max)).collect::<Vec<_>>(),
        [(2, 200), (4, 400), (2, 400)]
    );
    assert!(both.course[1].p50.abs_diff(200) <= 4, "{}", both.course[1].p50);
}

#[test]
fn serialized_outcomes_are_read_back() {
    let outcome = outcome(3, vec![5, 70, 900_000], true, vec!["a".to_owned(), "b".to_owned()], true);
    let text = serde_json::to_string(&outcome).expect("it can be written");
    assert_same(&serde_json::from_str(&text).expect("it can be read"), &outcome);
}
