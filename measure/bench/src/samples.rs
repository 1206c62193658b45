//! Sample outcomes for tests.

use std::collections::BTreeMap;

use load::outcome::{Band, Bytes, Errors, Handshakes, RequestOutcome, Second, ServerInfo, Stages};
use load::{Histogram, Outcome};

use crate::description::Description;
use crate::document::Document;

pub(crate) fn histogram(us: impl IntoIterator<Item = u64>) -> Histogram {
    let mut histogram = Histogram::default();
    for us in us {
        histogram.record(us).unwrap();
    }
    histogram
}

/// Returns a thousand responses between 1 and 1000 ms within two seconds.
pub(crate) fn outcome() -> Outcome {
    let latency = histogram((1..=1_000).map(|ms| ms * 1_000));
    let band = |upto_us, count, each| Band {
        upto_us,
        count,
        latency: count * upto_us,
        queue: count * each,
        app: count * each,
        gvl: (count * each / 2, count),
        ..Band::default()
    };
    Outcome {
        started_at: "2026-01-31T12:00:00Z".to_owned(),
        seconds: 2.0,
        sent: 1_003,
        ok: 1_000,
        statuses: BTreeMap::from([(200, 1_000), (500, 2)]),
        errors: Errors {
            status: 2,
            read: 1,
            texts: BTreeMap::from([("connection reset".to_owned(), 1)]),
            ..Errors::default()
        },
        connections: 10,
        crowded: 0,
        bytes: Bytes { sent: 50_000, received: 2_097_152, bodies: 1_048_576 },
        service: latency.clone(),
        corrected: Some(latency.clone()),
        latency,
        expected_interval_us: 20_000,
        connect: histogram([1_000; 10]),
        handshakes: None,
        first_byte: histogram([500_000]),
        course: [(600, 3), (400, 0)]
            .map(|(ok, errors)| Second {
                sent: ok,
                ok,
                errors,
                p50: 500_000,
                p95: 950_000,
                p99: 990_000,
                max: 1_000_000,
                ..Second::default()
            })
            .to_vec(),
        stages: Some(Stages {
            reported: 1_000,
            bands: vec![band(500_000, 500, 100_000), band(1_000_000, 500, 300_000)],
        }),
        cpu_seconds: 0.5,
        busy: 0.25,
        requests: vec![
            RequestOutcome {
                name: "GET http://h/a".to_owned(),
                ok: 600,
                errors: 3,
                latency: histogram([1_000]),
            },
            RequestOutcome {
                name: "GET http://h/<b>".to_owned(),
                ok: 400,
                errors: 0,
                latency: histogram([2_000]),
            },
        ],
        journeys: None,
        compared: Vec::new(),
        server: ServerInfo {
            software: Some("nginx/1.22.1".to_owned()),
            protocol: "HTTP/1.1".to_owned(),
            tls: None,
            length: 1_048,
        },
    }
}

/// Returns TLS handshakes: three full, seven resumed, two failed.
pub(crate) fn handshakes() -> Handshakes {
    Handshakes {
        full: 3,
        resumed: 7,
        counted: 10,
        took: histogram((1..=10).map(|ms| ms * 1_000)),
        suites: BTreeMap::from([("TLSv1.3 TLS13_AES_256_GCM_SHA384".to_owned(), 10)]),
        failed: BTreeMap::from([("received fatal alert: <HandshakeFailure>".to_owned(), 2)]),
    }
}

/// Returns a run without any response.
pub(crate) fn nothing() -> Outcome {
    let empty = Histogram::default;
    Outcome {
        ok: 0,
        sent: 5,
        statuses: BTreeMap::new(),
        errors: Errors { connect: 5, ..Errors::default() },
        bytes: Bytes::default(),
        latency: empty(),
        service: empty(),
        corrected: Some(empty()),
        connect: empty(),
        first_byte: empty(),
        course: Vec::new(),
        stages: None,
        requests: Vec::new(),
        server: ServerInfo::default(),
        ..outcome()
    }
}

pub(crate) fn description() -> Description {
    Description {
        urls: vec!["http://h:9292/a".to_owned()],
        url_count: 1,
        method: "GET".to_owned(),
        host: "h".to_owned(),
        port: 9292,
        path: "/a".to_owned(),
        connections: 10,
        threads: 1,
        duration_s: Some(2.0),
        protocol: "HTTP/1.1".to_owned(),
        keep_alive: true,
        depth: 1,
        timeout_ms: 30_000.0,
        ..Description::default()
    }
}

pub(crate) fn document() -> Document {
    Document::new(None, description(), outcome(), None)
}
