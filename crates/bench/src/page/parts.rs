//! Parts of the page that only some runs have: stages of a Firebrick, errors, several requests, the server's own figures.

use load::Outcome;
use report::{Axis, Block, Column, Plot, Section, Stack, Stages, Table, Unit};

use crate::document::Document;
use crate::figures::{Figures, ms, percentile_ms};
use crate::stages::split;
use crate::text::{SPLIT, kinds, server_lines};

pub(super) fn where_it_went(outcome: &Outcome) -> Option<Section> {
    let told = outcome.stages.as_ref()?;
    let names = ["waiting to be sent", "queue", "waiting for the GVL", "app", "network and sending"];
    let mut stacks = Vec::new();
    let mut sentences = Vec::new();
    for (name, percentile) in SPLIT {
        let Some(found) = split(told, percentile, percentile_ms(&outcome.latency, percentile)) else {
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
    // Parts that nobody waited for would only take up the legend.
    let used: Vec<usize> =
        (0..names.len()).filter(|at| stacks.iter().any(|stack| stack.values[*at] > 0.0)).collect();
    for stack in &mut stacks {
        stack.values = used.iter().map(|at| stack.values[*at]).collect();
    }
    let plot = Stages {
        title: "Where the time went".to_owned(),
        note: "The average of the answers that took about as long.".to_owned(),
        x: Axis::new("time to answer", Unit::Milliseconds),
        parts: used.iter().map(|at| names[*at].to_owned()).collect(),
        shares: true,
        stacks,
    };
    let text = format!(
        "The server is a Firebrick and told of {} answers how long they waited for a worker, how long the app took, and how much \
         of that was waiting for the GVL, where Ruby can tell. The rest is network, reading and writing.",
        Unit::Count.show(told.told as f64)
    );
    let blocks = vec![Block::Plot(Plot::Stages(plot)), Block::Notes(sentences)];
    Some(Section { title: "Inside the server".to_owned(), text, blocks })
}

pub(super) fn went_wrong(document: &Document) -> Option<Section> {
    let outcome = &document.outcome;
    let kinds = kinds(&outcome.errors, document.plan.timeout_ms);
    if kinds.is_empty() {
        return None;
    }
    let count = |count: u64| Unit::Count.show(count as f64);
    let table = Table {
        columns: vec![Column::text("kind"), Column::number("how many"), Column::text("what it means")],
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
        blocks.push(Block::KeyValues(vec![("answers by status".to_owned(), all.join(", "))]));
    }
    let texts: Vec<String> =
        outcome.errors.texts.iter().map(|(text, found)| format!("{} times: {text}", count(*found))).collect();
    if !texts.is_empty() {
        blocks.push(Block::Notes(texts));
    }
    Some(Section { title: "What went wrong".to_owned(), text: String::new(), blocks })
}

/// As many kinds of requests are shown.
const REQUESTS: usize = 50;

pub(super) fn by_request(outcome: &Outcome) -> Option<Section> {
    if outcome.requests.len() < 2 {
        return None;
    }
    let mut requests: Vec<_> = outcome.requests.iter().collect();
    requests.sort_by_key(|request| std::cmp::Reverse((ms(request.latency.max()) * 1e3) as u64));
    let rows = requests.iter().take(REQUESTS).map(|request| {
        let f = Figures::of(&request.latency);
        let times = [f.p50, f.p95, f.p99, f.max].map(|value| Unit::Milliseconds.show(value));
        let counts = [request.ok, request.errors].map(|count| Unit::Count.show(count as f64));
        std::iter::once(request.name.clone()).chain(counts).chain(times).collect()
    });
    let heads = ["answers", "errors", "p50", "p95", "p99", "max"];
    let table = Table {
        columns: std::iter::once(Column::text("request")).chain(heads.map(Column::number)).collect(),
        rows: rows.collect(),
        ..Table::default()
    };
    let text = match outcome.requests.len() {
        count if count > REQUESTS => format!("The {REQUESTS} slowest of {count} kinds."),
        _ => "The slowest first.".to_owned(),
    };
    Some(Section { title: "By request".to_owned(), text, blocks: vec![Block::Table(table)] })
}

pub(super) fn meanwhile(document: &Document) -> Option<Section> {
    let server = document.server.as_ref()?;
    let values = server_lines(server, document.outcome.ok)
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    Some(Section {
        title: "The server meanwhile".to_owned(),
        text: String::new(),
        blocks: vec![Block::KeyValues(values)],
    })
}
