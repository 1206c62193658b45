//! Facts from the JSON of `firebrick bench` and `firebrick tune`.
//!
//! Reads only the needed fields, so that documents of later versions work as long as they have those fields.

use planner::Shape;
use serde::Deserialize;
use stats::ServerSnapshot;

use super::server;
use crate::sourced::{SourceFacts, Sourced};

/// Reads a document; messages call it `name`.
pub(super) fn read(name: &str, bytes: &[u8]) -> Result<SourceFacts, String> {
    let no_json = |why: String| format!("{name} is not JSON: {why}");
    let text = str::from_utf8(bytes).map_err(|why| no_json(why.to_string()))?;
    let value: serde_json::Value = serde_json::from_str(text).map_err(|why| no_json(why.to_string()))?;
    let wrong = |why: serde_json::Error| format!("{name} lacks a required field: {why}");
    let kind = value.get("kind").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    match kind.as_str() {
        "firebrick bench" => Ok(bench(name, serde_json::from_str(text).map_err(wrong)?)),
        "firebrick tune" => tune(name, serde_json::from_str(text).map_err(wrong)?),
        "firebrick plan" => Err(format!(
            "{name} is the output of plan; expected its input: the JSON of bench or tune, or an access log"
        )),
        other => Err(format!(
            "{name} is the JSON of `{other}`; expected that of `firebrick bench --json` or `firebrick tune --json`"
        )),
    }
}

#[derive(Deserialize)]
struct Bench {
    summary: Summary,
    #[serde(default)]
    outcome: Outcome,
    server: Option<Server>,
    /// The missing results, if several processes sent the load.
    #[serde(default)]
    incomplete: Vec<String>,
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

/// Sums in microseconds; see [`load::outcome::Band`] in the crate `load`.
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

fn bench(name: &str, bench: Bench) -> SourceFacts {
    let source = format!("the bench {name}");
    let mut found = SourceFacts { source: source.clone(), ..SourceFacts::default() };
    // The server's own statistics are best, then the stages in the responses; the client's view includes waiting.
    if let Some((before, after)) = bench.server.and_then(|server| server.before.zip(server.after)) {
        server::shape(&after, &source, &mut found);
        server::times_between(&before, &after, &source, &mut found);
    }
    if let Some(stages) = bench.outcome.stages.filter(|_| found.response_ms.is_none()) {
        staged(&stages, &source, &mut found);
    }
    let seen = bench.summary.service_ms.unwrap_or(bench.summary.latency_ms);
    if found.response_ms.is_none() && seen.mean > 0.0 {
        found.response_ms = Some(Sourced::new(seen.mean, format!("{source}: mean as seen by the client")));
        found.notes.push("The bench contains response times as seen by the client, including waiting under its load: the time in the app is shorter (a Firebrick server reports it).".to_owned());
    }
    if found.cv.is_none() {
        found.cv = seen
            .cv
            .filter(|cv| cv.is_finite() && *cv >= 0.0)
            .map(|cv| Sourced::new(cv, format!("{source}: variation as seen by the client")));
    }
    if bench.summary.rate_per_s > 0.0 {
        found.rate = Some(Sourced::new(
            bench.summary.rate_per_s,
            format!("{source}: its load, as if it were your busiest minute's; set yours with --rate"),
        ));
    }
    if !bench.incomplete.is_empty() {
        found.notes.push(format!(
            "The bench is incomplete, because {}: its rate is too low. Repeat it, or set yours with --rate.",
            bench.incomplete.join(", and ")
        ));
    }
    found
}

fn staged(stages: &Stages, source: &str, found: &mut SourceFacts) {
    let sum = |of: fn(&Band) -> u64| stages.bands.iter().map(of).sum::<u64>() as f64;
    let (count, app) = (sum(|band| band.count), sum(|band| band.app));
    if count <= 0.0 || app <= 0.0 {
        return;
    }
    found.response_ms = Some(Sourced::new(
        app / count / 1_000.0,
        format!("{source}: mean time in the app, as reported by the server"),
    ));
    let (cpu, cpu_count) = (sum(|band| band.cpu.0), sum(|band| band.cpu.1));
    if cpu_count > 0.0 && cpu > 0.0 {
        found.cpu_ms = Some(Sourced::new(
            cpu / cpu_count / 1_000.0,
            format!("{source}: mean CPU time in the app, as reported by the server"),
        ));
    }
}

#[derive(Deserialize)]
struct Tune {
    nature: Profile,
    recommendation: Recommendation,
    #[serde(default)]
    budget: Budget,
}

#[derive(Deserialize)]
struct Profile {
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

fn tune(name: &str, tune: Tune) -> Result<SourceFacts, String> {
    let source = format!("the tuning {name}");
    let model = tune.nature.model.ok_or_else(|| {
        format!("{source} has too few measurements for a response time; tune again, or give --response-time")
    })?;
    let known = |value: f64, what: &str| Some(Sourced::new(value, format!("{source}: {what}")));
    let running = model.lock_ms.max(model.cpu_ms);
    let mut found = SourceFacts {
        source: source.clone(),
        rate: tune.budget.rate_per_s.and_then(|rate| known(rate, "the rate given to it")),
        response_ms: known(model.alone_ms(), "a request on its own"),
        cv: known(model.cv, "variation in the app"),
        cpu_ms: (model.lock_known && running > 0.0)
            .then(|| known(running, "time that a request computes or holds the GVL"))
            .flatten(),
        cores: known(
            tune.budget.cpus.map_or(model.cores, |cpus| cpus.min(model.cores)),
            "the cores available to it",
        ),
        ..SourceFacts::default()
    };
    match tune.recommendation.best {
        Some(best) => {
            found.workers = Some(Sourced::new(best.shape.processes, format!("{source}: recommended")));
            found.threads = Some(Sourced::new(best.shape.threads, format!("{source}: recommended")));
            found.fibers = (best.shape.fibers > 0)
                .then(|| Sourced::new(best.shape.fibers, format!("{source}: recommended")));
        }
        None => found
            .notes
            .push("The tuning recommends no shape; assuming one worker with one thread.".to_owned()),
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
    fn a_bench_of_another_server() {
        let text = br#"{"kind": "firebrick bench", "summary": {"rate_per_s": 50.0, "latency_ms": {"mean": 30.0, "cv": 0.8}}, "outcome": {"stages": null}}"#;
        let found = read("b.json", text).unwrap();
        assert_eq!(found.response_ms.unwrap().value, 30.0);
        assert_eq!(found.notes.len(), 1);
    }

    #[test]
    fn an_incomplete_bench_says_so() {
        let text = br#"{"kind": "firebrick bench", "summary": {"rate_per_s": 50.0, "latency_ms": {"mean": 30.0, "cv": 0.8}},
            "incomplete": ["worker 1 of 3 was killed by signal 9", "worker 2 of 3 did not report for 10 s"]}"#;
        let found = read("b.json", text).unwrap();
        assert!(
            found.notes[1].contains("worker 1 of 3 was killed by signal 9, and worker 2 of 3 did not report"),
            "{:?}",
            found.notes
        );
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
            "nature": planner::profile(&cells), "recommendation": planner::recommend(&cells, &[], &budget),
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
