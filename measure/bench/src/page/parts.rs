//! Optional parts of the page: stages of a Firebrick server, errors, results by request, the server's statistics.

use load::Outcome;
use load::recorded::Compared;
use report::{Axis, Block, Column, Plot, Section, Stack, Stages, Table, Unit};

use crate::document::Document;
use crate::figures::{Figures, HandshakeFigures, ms, percentile_ms};
use crate::stages::split;
use crate::text::{SPLIT, kinds, server_lines};

pub(super) fn stages(outcome: &Outcome) -> Option<Section> {
    let description = outcome.stages.as_ref()?;
    let names = ["waiting to be sent", "queue", "waiting for the GVL", "app", "network and sending"];
    let mut stacks = Vec::new();
    let mut sentences = Vec::new();
    for (name, percentile) in SPLIT {
        let Some(found) = split(description, percentile, percentile_ms(&outcome.latency, percentile)) else {
            continue;
        };
        let parts = found.parts();
        let values =
            names.map(|name| parts.iter().find(|(part, _)| *part == name).map_or(0.0, |(_, value)| *value));
        stacks.push(Stack { label: name.to_owned(), values: values.to_vec() });
        sentences.push(format!("{name} {}", found.sentence()));
    }
    if stacks.is_empty() {
        return None;
    }
    // Parts that are always 0 would only clutter the legend.
    let used: Vec<usize> =
        (0..names.len()).filter(|at| stacks.iter().any(|stack| stack.values[*at] > 0.0)).collect();
    for stack in &mut stacks {
        stack.values = used.iter().map(|at| stack.values[*at]).collect();
    }
    let plot = Stages {
        title: "Where the time went".to_owned(),
        note: "The mean of the responses that took about as long.".to_owned(),
        x: Axis::new("response time", Unit::Milliseconds),
        parts: used.iter().map(|at| names[*at].to_owned()).collect(),
        shares: true,
        stacks,
    };
    let text = format!(
        "The server is a Firebrick. For {} responses it reported the time in the queue, the time in the app, and how much \
         of that was waiting for the GVL, if Ruby provides it. The rest is network, reading and writing.",
        Unit::Count.show(description.reported as f64)
    );
    let blocks = vec![Block::Plot(Plot::Stages(plot)), Block::Notes(sentences)];
    Some(Section { title: "Inside the server".to_owned(), text, blocks })
}

pub(super) fn handshakes(outcome: &Outcome) -> Option<Section> {
    let (all, figures) = (outcome.handshakes.as_ref()?, HandshakeFigures::of(outcome)?);
    let count = |count: u64| Unit::Count.show(count as f64);
    let mut values = vec![
        ("handshakes".to_owned(), format!("{}, {}", count(figures.count), figures.kinds())),
        ("per second".to_owned(), Unit::PerSecond.show(figures.per_s)),
        ("time".to_owned(), figures.times()),
        ("failed".to_owned(), count(figures.failed)),
    ];
    values.extend(
        all.suites.iter().map(|(suite, times)| (suite.clone(), format!("{} connections", count(*times)))),
    );
    let mut blocks = vec![Block::KeyValues(values)];
    if !all.failed.is_empty() {
        let rows = all.failed.iter().map(|(reason, times)| vec![reason.clone(), count(*times)]).collect();
        let columns = vec![Column::text("why handshakes failed"), Column::number("count")];
        blocks.push(Block::Table(Table { columns, rows, ..Table::default() }));
    }
    let text =
        "From the client's first message until requests can be sent, without the TCP connection.".to_owned();
    Some(Section { title: "TLS handshakes".to_owned(), text, blocks })
}

pub(super) fn errors(document: &Document) -> Option<Section> {
    let outcome = &document.outcome;
    let kinds = kinds(&outcome.errors, document.description.timeout_ms);
    if kinds.is_empty() {
        return None;
    }
    let count = |count: u64| Unit::Count.show(count as f64);
    let table = Table {
        columns: vec![Column::text("kind"), Column::number("count"), Column::text("meaning")],
        rows: kinds
            .into_iter()
            .map(|(name, found, meaning)| vec![name.to_owned(), count(found), meaning])
            .collect(),
        ..Table::default()
    };
    let mut blocks = vec![Block::Table(table)];
    if !outcome.statuses.is_empty() {
        let all: Vec<String> =
            outcome.statuses.iter().map(|(status, found)| format!("{status}: {}", count(*found))).collect();
        blocks.push(Block::KeyValues(vec![("responses by status".to_owned(), all.join(", "))]));
    }
    let texts: Vec<String> =
        outcome.errors.texts.iter().map(|(text, found)| format!("{} × {text}", count(*found))).collect();
    if !texts.is_empty() {
        blocks.push(Block::Notes(texts));
    }
    Some(Section { title: "Errors".to_owned(), text: String::new(), blocks })
}

/// The most kinds of requests listed.
const REQUESTS: usize = 50;

/// How the responses of a replay compare with the recorded ones.
pub(super) fn comparison(outcome: &Outcome) -> Option<Section> {
    if outcome.compared.is_empty() {
        return None;
    }
    let rows = Compared::ranked(&outcome.compared).into_iter().map(|group| {
        let counts = [group.same, group.status, group.length, group.body];
        let now = outcome.requests.iter().find(|request| request.name == group.name);
        let now = now.map_or(0.0, |request| Figures::of(&request.latency).p95);
        let times = [Figures::of(&group.recorded).p95, now].map(|ms| Unit::Milliseconds.show(ms));
        let counts = counts.map(|count| Unit::Count.show(count as f64));
        let example = group.examples.first().cloned().unwrap_or_default();
        std::iter::once(group.name.clone()).chain(counts).chain(times).chain([example]).collect()
    });
    let heads = ["same", "other status", "other length", "other body", "p95 recorded", "p95 now"];
    let table = Table {
        columns: std::iter::once(Column::text("route"))
            .chain(heads.map(Column::number))
            .chain([Column::text("for example")])
            .collect(),
        rows: rows.collect(),
        ..Table::default()
    };
    let text = "The routes with most differences first. Recorded times are those of the server, times now those of the client.";
    let title = "Compared with the recording".to_owned();
    Some(Section { title, text: text.to_owned(), blocks: vec![Block::Table(table)] })
}

pub(super) fn by_request(outcome: &Outcome) -> Option<Section> {
    if outcome.requests.len() < 2 && outcome.journeys.is_none() {
        return None;
    }
    let mut requests: Vec<_> = outcome.requests.iter().collect();
    match &outcome.journeys {
        Some(journeys) => requests.push(journeys),
        None => requests.sort_by_key(|request| std::cmp::Reverse((ms(request.latency.max()) * 1e3) as u64)),
    }
    let most = if outcome.journeys.is_some() { requests.len() } else { REQUESTS };
    let rows = requests.iter().take(most).map(|request| {
        let f = Figures::of(&request.latency);
        let times = [f.p50, f.p95, f.p99, f.max].map(|value| Unit::Milliseconds.show(value));
        let counts = [request.ok, request.errors].map(|count| Unit::Count.show(count as f64));
        std::iter::once(request.name.clone()).chain(counts).chain(times).collect()
    });
    let heads = ["ok", "errors", "p50", "p95", "p99", "max"];
    let table = Table {
        columns: std::iter::once(Column::text("request")).chain(heads.map(Column::number)).collect(),
        rows: rows.collect(),
        ..Table::default()
    };
    let text = match outcome.requests.len() {
        _ if outcome.journeys.is_some() => {
            "The steps in order, and the whole journey with its pauses.".to_owned()
        }
        count if count > REQUESTS => format!("The {REQUESTS} slowest of {count} kinds."),
        _ => "The slowest first.".to_owned(),
    };
    Some(Section { title: "By request".to_owned(), text, blocks: vec![Block::Table(table)] })
}

pub(super) fn server(document: &Document) -> Option<Section> {
    let server = document.server.as_ref()?;
    let values = server_lines(server, document.outcome.ok)
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    Some(Section {
        title: "Server statistics".to_owned(),
        text: String::new(),
        blocks: vec![Block::KeyValues(values)],
    })
}
