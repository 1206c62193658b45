//! The JSON of `firebrick bench` and `firebrick tune` as facts.
//!
//! Only what is needed is read, so that a document of a later version is read as long as those fields are there.

use planner::Shape;
use serde::Deserialize;
use stats::ServerSnapshot;

use super::server;
use crate::known::{Found, Known};

/// Reads a document; `name` is for messages.
pub(super) fn read(name: &str, bytes: &[u8]) -> Result<Found, String> {
    let value: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|why| format!("{name} is not JSON: {why}"))?;
    let wrong = |why: serde_json::Error| format!("{name} lacks what is needed of it: {why}");
    let kind = value.get("kind").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    match kind.as_str() {
        "firebrick bench" => Ok(bench(name, serde_json::from_value(value).map_err(wrong)?)),
        "firebrick tune" => tune(name, serde_json::from_value(value).map_err(wrong)?),
        "firebrick plan" => Err(format!(
            "{name} is a plan's answer; expected what it was made from: a JSON of bench or tune, or an access log"
        )),
        other => Err(format!(
            "{name} is a JSON of `{other}`; expected one of `firebrick bench --json` or `firebrick tune --json`"
        )),
    }
}

#[derive(Deserialize)]
struct Bench {
    summary: Summary,
    #[serde(default)]
    outcome: Outcome,
    server: Option<Server>,
}

#[derive(Deserialize)]
struct Summary {
    rate_per_s: f64,
    latency_ms: Spread,
    service_ms: Option<Spread>,
}

#[derive(Deserialize, Clone, Copy)]
struct Spread {
    mean: f64,
    cv: Option<f64>,
}

#[derive(Deserialize, Default)]
struct Outcome {
    stages: Option<Stages>,
}

#[derive(Deserialize)]
struct Stages {
    #[serde(default)]
    bands: Vec<Band>,
}

/// Sums in microseconds; see the load generator's.
#[derive(Deserialize)]
struct Band {
    count: u64,
    app: u64,
    #[serde(default)]
    cpu: (u64, u64),
}

#[derive(Deserialize)]
struct Server {
    before: Option<ServerSnapshot>,
    after: Option<ServerSnapshot>,
}

fn bench(name: &str, bench: Bench) -> Found {
    let source = format!("the bench {name}");
    let mut found = Found { source: source.clone(), ..Found::default() };
    // The server's own account is the best, the stages of the answers the next; what the client saw includes waiting.
    if let Some((before, after)) = bench.server.and_then(|server| server.before.zip(server.after)) {
        server::shape(&after, &source, &mut found);
        server::times_between(&before, &after, &source, &mut found);
    }
    if let Some(stages) = bench.outcome.stages.filter(|_| found.response_ms.is_none()) {
        staged(&stages, &source, &mut found);
    }
    let seen = bench.summary.service_ms.unwrap_or(bench.summary.latency_ms);
    if found.response_ms.is_none() && seen.mean > 0.0 {
        found.response_ms = Some(Known::new(seen.mean, format!("{source}: mean as the client saw it")));
        found.notes.push("The bench tells response times as the client saw them, waiting under its load included: the time in the app alone is shorter (a Firebrick tells it).".to_owned());
    }
    if found.cv.is_none() {
        found.cv = seen
            .cv
            .filter(|cv| cv.is_finite() && *cv >= 0.0)
            .map(|cv| Known::new(cv, format!("{source}: variation as the client saw it")));
    }
    if bench.summary.rate_per_s > 0.0 {
        found.rate = Some(Known::new(
            bench.summary.rate_per_s,
            format!(
                "{source}: the load that it made, as if it were your busiest minute's; --rate says what yours is"
            ),
        ));
    }
    found
}

fn staged(stages: &Stages, source: &str, found: &mut Found) {
    let sum = |of: fn(&Band) -> u64| stages.bands.iter().map(of).sum::<u64>() as f64;
    let (count, app) = (sum(|band| band.count), sum(|band| band.app));
    if count <= 0.0 || app <= 0.0 {
        return;
    }
    found.response_ms = Some(Known::new(
        app / count / 1_000.0,
        format!("{source}: mean time in the app, as the server told it"),
    ));
    let (cpu, told) = (sum(|band| band.cpu.0), sum(|band| band.cpu.1));
    if told > 0.0 && cpu > 0.0 {
        found.cpu_ms = Some(Known::new(
            cpu / told / 1_000.0,
            format!("{source}: mean CPU time in the app, as the server told it"),
        ));
    }
}

#[derive(Deserialize)]
struct Tune {
    nature: Nature,
    recommendation: Recommendation,
    #[serde(default)]
    budget: Budget,
}

#[derive(Deserialize)]
struct Nature {
    model: Option<planner::Model>,
}

#[derive(Deserialize)]
struct Recommendation {
    best: Option<Best>,
}

#[derive(Deserialize)]
struct Best {
    shape: Shape,
}

#[derive(Deserialize, Default)]
struct Budget {
    rate_per_s: Option<f64>,
    cpus: Option<f64>,
}

fn tune(name: &str, tune: Tune) -> Result<Found, String> {
    let source = format!("the tuning {name}");
    let model = tune.nature.model.ok_or_else(|| format!("{source} measured too little to say how long a request takes; tune again, or give --response-time"))?;
    let known = |value: f64, what: &str| Some(Known::new(value, format!("{source}: {what}")));
    let running = model.lock_ms.max(model.cpu_ms);
    let mut found = Found {
        source: source.clone(),
        rate: tune.budget.rate_per_s.and_then(|rate| known(rate, "the rate that it was given")),
        response_ms: known(model.alone_ms(), "a request that is alone"),
        cv: known(model.cv, "variation in the app"),
        cpu_ms: (model.lock_known && running > 0.0)
            .then(|| known(running, "time that a request computes or holds the lock"))
            .flatten(),
        cores: known(
            tune.budget.cpus.map_or(model.cores, |cpus| cpus.min(model.cores)),
            "the cores that it had",
        ),
        ..Found::default()
    };
    match tune.recommendation.best {
        Some(best) => {
            found.workers = Some(Known::new(best.shape.processes, format!("{source}: recommended")));
            found.threads = Some(Known::new(best.shape.threads, format!("{source}: recommended")));
        }
        None => found
            .notes
            .push("The tuning recommends no shape; one worker with one thread is assumed.".to_owned()),
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bench_with_stages() {
        let text = br#"{"kind": "firebrick bench", "version": 1, "server": null,
            "summary": {"requests": 100, "rate_per_s": 50.0, "latency_ms": {"mean": 30.0, "cv": 0.8}, "service_ms": {"mean": 29.0, "cv": 0.7}},
            "outcome": {"stages": {"told": 100, "bands": [{"upto_us": 1, "count": 60, "latency": 0, "unsent": 0, "queue": 0, "app": 600000, "cpu": [120000, 60], "gvl": [0, 0]},
            {"upto_us": 2, "count": 40, "latency": 0, "unsent": 0, "queue": 0, "app": 800000, "cpu": [0, 0], "gvl": [0, 0]}]}}}"#;
        let found = read("b.json", text).unwrap();
        assert_eq!(found.rate.unwrap().value, 50.0);
        assert_eq!(found.response_ms.unwrap().value, 14.0);
        assert_eq!(found.cpu_ms.unwrap().value, 2.0);
        assert_eq!(found.cv.unwrap().value, 0.7);
    }

    #[test]
    fn a_bench_of_a_stranger() {
        let text = br#"{"kind": "firebrick bench", "summary": {"rate_per_s": 50.0, "latency_ms": {"mean": 30.0, "cv": 0.8}}, "outcome": {"stages": null}}"#;
        let found = read("b.json", text).unwrap();
        assert_eq!(found.response_ms.unwrap().value, 30.0);
        assert_eq!(found.notes.len(), 1);
    }

    #[test]
    fn a_tuning() {
        let cell = |processes: u32, threads: u32, rate_per_s: f64| planner::Cell {
            processes,
            threads,
            users: 30,
            rate_per_s,
            cores: Some(2.0),
            cpu_ms: Some(5.0),
            ..planner::Cell::default()
        };
        let cells = [cell(1, 1, 10.0), cell(1, 10, 90.0), cell(2, 1, 20.0)];
        let budget = planner::Budget { rate_per_s: Some(40.0), ..planner::Budget::default() };
        let text = serde_json::json!({
            "kind": "firebrick tune", "version": 1, "cells": cells, "budget": budget,
            "nature": planner::nature(&cells), "recommendation": planner::recommend(&cells, &[], &budget),
        });
        let found = read("t.json", text.to_string().as_bytes()).unwrap();
        assert_eq!((found.workers.unwrap().value, found.threads.unwrap().value), (1, 10));
        assert_eq!((found.rate.unwrap().value, found.cores.unwrap().value), (40.0, 2.0));
        assert!((found.response_ms.unwrap().value - 100.0).abs() < 10.0);
        assert!(
            read(
                "t.json",
                br#"{"kind": "firebrick tune", "nature": {"model": null}, "recommendation": {"best": null}}"#
            )
            .unwrap_err()
            .contains("tune again")
        );
    }
}
