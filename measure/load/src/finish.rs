//! Combines the results of all threads.

use std::time::Duration;

use crate::clock::{Moment, NEVER, nanoseconds};
use crate::histogram::Histogram;
use crate::outcome::{Bytes, Errors, Outcome, ServerInfo};
use crate::recorder::MOST_KINDS;
use crate::scenario::{Think, Traffic};
use crate::shared::Shared;
use crate::thread::{ThreadResult, length};

/// Returns the outcome of a run whose counted part began at `began`.
pub(crate) fn outcome(
    shared: &Shared,
    results: Vec<ThreadResult>,
    started_at: jiff::Timestamp,
    began: Moment,
) -> Outcome {
    let last = results.iter().map(|result| result.recorder.last_response).max().unwrap_or(began).max(began);
    let now = shared.clock.now();
    let planned = length(&shared.scenario).map(|length| began.saturating_add(nanoseconds(length)));
    let last = match (shared.end(), planned) {
        (NEVER, Some(planned)) => last.max(planned.min(now)),
        (NEVER, None) if last > began => last,
        (end, _) => last.max(end.min(now)),
    };
    let seconds = Duration::from_nanos(last.saturating_sub(began)).as_secs_f64();
    let threads = shared.published.len();
    let names = names(shared);
    let shares = results.into_iter().map(|result| {
        let mut one = empty(started_at, seconds);
        add(&mut one, result, &names);
        one
    });
    let merged = shares.reduce(|mut all, one| {
        all.merge(one);
        all
    });
    let mut all = merged.unwrap_or_else(|| empty(started_at, seconds));
    correct(&mut all, shared);
    if let Some(recorded) = &shared.scenario.checks.recorded {
        for (compared, group) in all.compared.iter_mut().zip(&recorded.groups) {
            compared.recorded.clone_from(&group.took);
        }
    }
    let usable = seconds * f64::from(u32::try_from(threads).unwrap_or(u32::MAX));
    all.busy = if usable > 0.0 { (all.cpu_seconds / usable).min(1.0) } else { 0.0 };
    all
}

fn add(outcome: &mut Outcome, mut result: ThreadResult, names: &[String]) {
    let record = result.recorder.finish(names);
    let recorder = result.recorder;
    outcome.sent = recorder.sent;
    outcome.ok = recorder.ok;
    outcome.statuses = record.statuses;
    outcome.errors = recorder.errors;
    outcome.connections = recorder.connections;
    outcome.crowded = recorder.crowded;
    outcome.bytes = recorder.bytes;
    outcome.latency = record.latency;
    outcome.service = record.service;
    outcome.connect = record.connect;
    outcome.handshakes = record.handshakes;
    outcome.first_byte = record.first_byte;
    outcome.course = record.course;
    outcome.stages = record.stages;
    outcome.cpu_seconds = result.cpu.as_secs_f64();
    outcome.requests = record.requests;
    outcome.journeys = record.journeys;
    outcome.compared = recorder.compared;
    outcome.server = recorder.server.unwrap_or_default();
}

/// Returns one name for each kind of request that is reported separately.
fn names(shared: &Shared) -> Vec<String> {
    if let Some(recorded) = &shared.scenario.checks.recorded {
        return recorded.groups.iter().map(|group| group.name.clone()).collect();
    }
    let kinds = &shared.prepared.kinds;
    if kinds.len() == 1 {
        return Vec::new();
    }
    let mut names: Vec<String> = kinds.iter().take(MOST_KINDS).map(|kind| kind.name.clone()).collect();
    if kinds.len() > MOST_KINDS {
        names.push(format!("{} others", kinds.len() - MOST_KINDS));
    }
    names
}

/// For a closed model, adds the distribution that users who do not wait for each other would have seen.
fn correct(outcome: &mut Outcome, shared: &Shared) {
    // The steps of a journey have pauses of their own, and no usual interval.
    let Traffic::Closed { think, .. } = &shared.scenario.traffic else { return };
    if shared.scenario.journey.is_some() {
        return;
    }
    let think = match think {
        Think::None => Duration::ZERO,
        Think::Fixed(pause) => *pause,
        Think::UpTo(most) => *most / 2,
    };
    let think = u64::try_from(think.as_micros()).unwrap_or(u64::MAX);
    outcome.expected_interval_us = outcome.service.value_at_quantile(0.5).saturating_add(think);
    outcome.corrected = Some(outcome.latency.corrected(outcome.expected_interval_us));
}

fn empty(started_at: jiff::Timestamp, seconds: f64) -> Outcome {
    Outcome {
        started_at: format!("{started_at:.6}"),
        seconds,
        sent: 0,
        ok: 0,
        statuses: std::collections::BTreeMap::new(),
        errors: Errors::default(),
        connections: 0,
        crowded: 0,
        bytes: Bytes::default(),
        latency: Histogram::default(),
        service: Histogram::default(),
        corrected: None,
        expected_interval_us: 0,
        connect: Histogram::default(),
        handshakes: None,
        first_byte: Histogram::default(),
        course: Vec::new(),
        stages: None,
        cpu_seconds: 0.0,
        busy: 0.0,
        requests: Vec::new(),
        journeys: None,
        compared: Vec::new(),
        server: ServerInfo::default(),
    }
}
