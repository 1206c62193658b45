//! The report as a page: what happened over time, how answers were spread, where the time went, what went wrong.

use load::outcome::Second;
use load::{Histogram, Outcome};
use report::{
    Axis, Block, Bucket, Column, Curve, KeyFigure, Limit, Line, Lines, Mark, Page, Percentiles, Plot,
    Section, Stack, Stages, Table, Unit, Verdict,
};

use crate::document::Document;
use crate::figures::{Figures, Summary, ms, per_second, percentile_ms};
use crate::limit;
use crate::stages::split;
use crate::text::{SPLIT, kinds, server_lines};

/// Bars of a histogram for each doubling of the time.
const BARS_PER_DOUBLING: f64 = 3.0;

/// The page. `limits` are the times that must not be passed, in milliseconds, with their texts.
pub(crate) fn page(
    document: &Document,
    limits: &[(f64, String)],
    broken: &[String],
    remarks: &[String],
) -> String {
    let sections = [
        Some(over_time(document, limits)),
        Some(spread(document, limits)),
        where_it_went(&document.outcome),
        went_wrong(document),
        by_request(&document.outcome),
        meanwhile(document),
        Some(what_was_run(document, remarks)),
    ];
    let title = document.name.clone().unwrap_or_else(|| format!("Load test of {}", document.plan.whom()));
    Page {
        title,
        subtitle: format!(
            "{}; {}; {}",
            document.outcome.started_at,
            document.plan.whom(),
            document.plan.sentence()
        ),
        lead: lead(document, broken),
        sections: sections.into_iter().flatten().collect(),
        foot: format!("firebrick bench {}", env!("CARGO_PKG_VERSION")),
        refresh_seconds: 0,
    }
    .to_html()
}

fn lead(document: &Document, broken: &[String]) -> Vec<KeyFigure> {
    let summary: &Summary = &document.summary;
    let all = summary.requests + summary.errors;
    let note = |name: &str| broken.iter().find(|line| line.starts_with(name)).cloned();
    let judged = |name: &str| if note(name).is_some() { Verdict::Bad } else { Verdict::Neutral };
    let figure = |label: &str, name: &str, value: String, usual: String| KeyFigure {
        label: label.to_owned(),
        value,
        note: note(name).unwrap_or(usual),
        verdict: judged(name),
    };
    let errors = KeyFigure {
        label: "errors".to_owned(),
        value: Unit::Count.show(summary.errors as f64),
        note: if all > 0 { Unit::Fraction.show(summary.errors as f64 / all as f64) } else { String::new() },
        verdict: if summary.errors > 0 { Verdict::Bad } else { Verdict::Good },
    };
    let rate =
        format!("{} in {}", Unit::Count.show(summary.requests as f64), Unit::Seconds.show(summary.seconds));
    let mut lead = vec![figure("right answers", "rate", Unit::PerSecond.show(summary.rate_per_s), rate)];
    if !document.outcome.latency.is_empty() {
        let time = |value: f64| Unit::Milliseconds.show(value);
        let latency = &summary.latency_ms;
        lead.push(figure("half were answered within", "p50", time(latency.p50), String::new()));
        lead.push(figure("99 % within", "p99", time(latency.p99), String::new()));
        lead.push(figure("the slowest took", "max", time(latency.max), String::new()));
    }
    lead.push(errors);
    lead
}

fn points(course: &[Second], value: impl Fn(&Second) -> f64) -> Vec<(f64, f64)> {
    course.iter().enumerate().map(|(index, second)| (index as f64, value(second))).collect()
}

fn line(name: &str, points: Vec<(f64, f64)>) -> Line {
    Line { name: name.to_owned(), points, ..Line::default() }
}

fn over_time(document: &Document, limits: &[(f64, String)]) -> Section {
    let course = &document.outcome.course;
    // A second without answers is a gap, not a time of zero.
    let time = |value: fn(&Second) -> u64| {
        points(course, |second| if second.ok > 0 { ms(value(second)) } else { f64::NAN })
    };
    let latency = Lines {
        title: "Time to answer".to_owned(),
        note: "Half of the requests were faster than p50, 99 of 100 faster than p99.".to_owned(),
        x: Axis::new("time", Unit::Seconds),
        y: Axis::new("time to answer", Unit::Milliseconds),
        lines: vec![line("p50", time(|s| s.p50)), line("p95", time(|s| s.p95)), line("p99", time(|s| s.p99))],
        limits: limits.iter().map(|(value, label)| Limit { value: *value, label: label.clone() }).collect(),
        ..Lines::default()
    };
    let mut lines = vec![line("right answers", points(course, |second| second.ok as f64))];
    if document.outcome.errors.total() > 0 {
        lines.push(line("errors", points(course, |second| second.errors as f64)));
    }
    if !document.plan.is_closed() {
        lines.push(line("due", points(course, |second| second.sent as f64)));
    }
    let rate = Lines {
        title: "Answers per second".to_owned(),
        x: Axis::new("time", Unit::Seconds),
        y: Axis::new("per second", Unit::PerSecond),
        lines,
        ..Lines::default()
    };
    Section {
        title: "Over time".to_owned(),
        text: String::new(),
        blocks: vec![Block::Plot(Plot::Lines(latency)), Block::Plot(Plot::Lines(rate))],
    }
}

fn spread(document: &Document, limits: &[(f64, String)]) -> Section {
    let outcome = &document.outcome;
    let figures = Figures::of(&outcome.latency);
    let mark = |at: f64, label: &str| Mark { at, label: label.to_owned() };
    let histogram = report::Histogram {
        title: "How often each time came".to_owned(),
        note: "The scale doubles at even steps, so that the slow ones are seen as well.".to_owned(),
        x: Axis::new("time to answer", Unit::Milliseconds).log(),
        counted: "requests".to_owned(),
        buckets: buckets(&outcome.latency),
        marks: vec![mark(figures.p50, "p50"), mark(figures.p95, "p95"), mark(figures.p99, "p99")],
    };
    let closed = document.plan.is_closed();
    let first = if closed { "as seen" } else { "from when it was due" };
    let mut curves = vec![curve(first, &outcome.latency)];
    match &outcome.corrected {
        Some(corrected) if closed => curves.push(curve("if users had not waited for each other", corrected)),
        _ if !closed => curves.push(curve("from when it was sent", &outcome.service)),
        _ => {}
    }
    let percentiles = Percentiles {
        title: "Share of requests answered within a time".to_owned(),
        note: String::new(),
        y: Axis::new("time to answer", Unit::Milliseconds),
        curves,
        limits: limits.iter().map(|(value, label)| Limit { value: *value, label: label.clone() }).collect(),
    };
    let text = if closed {
        "Users who wait for an answer send nothing meanwhile, so a stall of the server hides the requests that it would have delayed. \
         The second curve puts them back."
    } else {
        "Times count from when a request was due. The second curve counts from when it was really sent; where the two part, \
         requests waited for a free connection."
    };
    Section {
        title: "How long answers took".to_owned(),
        text: text.to_owned(),
        blocks: vec![
            Block::Plots(vec![Plot::Histogram(histogram), Plot::Percentiles(percentiles)]),
            Block::Table(times(document)),
        ],
    }
}

fn times(document: &Document) -> Table {
    let outcome = &document.outcome;
    let heads = ["mean", "p50", "p75", "p90", "p95", "p99", "p99.9", "max"];
    let row = |name: &str, histogram: &Histogram| {
        let f = Figures::of(histogram);
        let cells = [f.mean, f.p50, f.p75, f.p90, f.p95, f.p99, f.p999, f.max];
        std::iter::once(name.to_owned()).chain(cells.map(|value| Unit::Milliseconds.show(value))).collect()
    };
    let mut rows: Vec<Vec<String>> = vec![row("time to answer", &outcome.latency)];
    match &outcome.corrected {
        Some(corrected) if document.plan.is_closed() => rows.push(row("if users had not waited", corrected)),
        _ => rows.push(row("from sending", &outcome.service)),
    }
    rows.push(row("time to the first byte", &outcome.first_byte));
    if !outcome.connect.is_empty() {
        rows.push(row("opening a connection", &outcome.connect));
    }
    let columns = std::iter::once(Column::text("")).chain(heads.map(Column::number)).collect();
    Table { columns, rows, ..Table::default() }
}

/// Bars of equal width on the log scale.
fn buckets(histogram: &Histogram) -> Vec<Bucket> {
    if histogram.is_empty() {
        return Vec::new();
    }
    let index = |us: u64| (us.max(1) as f64).log2().mul_add(BARS_PER_DOUBLING, 1e-9).floor() as usize;
    let edge = |index: usize| (index as f64 / BARS_PER_DOUBLING).exp2() / 1e3;
    let (first, last) = (index(histogram.min()), index(histogram.max()));
    let mut counts = vec![0; last.saturating_sub(first) + 1];
    for step in histogram.iter_recorded() {
        let at = index(step.value_iterated_to()).saturating_sub(first).min(counts.len() - 1);
        counts[at] += step.count_at_value();
    }
    let bucket =
        |(at, count): (usize, u64)| Bucket { from: edge(first + at), to: edge(first + at + 1), count };
    counts.into_iter().enumerate().map(bucket).collect()
}

/// Percentiles at even steps of the stretched axis: each step leaves out the same share of what is left.
fn curve(name: &str, histogram: &Histogram) -> Curve {
    let most = (histogram.len().max(1) as f64).log10().ceil().clamp(1.0, 7.0);
    let steps = 60;
    let tail = |step: i32| 100.0 * (1.0 - 10f64.powf(-most * f64::from(step) / f64::from(steps)));
    let mut points: Vec<(f64, f64)> =
        (0..steps).map(tail).map(|percentile| (percentile, percentile_ms(histogram, percentile))).collect();
    points.push((100.0, ms(histogram.max())));
    Curve { name: name.to_owned(), points }
}

fn where_it_went(outcome: &Outcome) -> Option<Section> {
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

fn went_wrong(document: &Document) -> Option<Section> {
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

fn by_request(outcome: &Outcome) -> Option<Section> {
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

fn meanwhile(document: &Document) -> Option<Section> {
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

fn what_was_run(document: &Document, remarks: &[String]) -> Section {
    let (told, outcome) = (&document.plan, &document.outcome);
    let mut values = vec![
        ("request".to_owned(), format!("{} {}", told.method, told.whom())),
        ("how".to_owned(), told.sentence()),
        ("model".to_owned(), told.model().to_owned()),
        ("began".to_owned(), outcome.started_at.clone()),
        ("took".to_owned(), Unit::Seconds.show(outcome.seconds)),
        ("connections opened".to_owned(), Unit::Count.show(outcome.connections as f64)),
        (
            "received".to_owned(),
            format!(
                "{}, {}/s",
                Unit::Bytes.show(outcome.bytes.received as f64),
                Unit::Bytes.show(per_second(outcome.bytes.received, outcome.seconds))
            ),
        ),
        (
            "CPU of the load generator".to_owned(),
            format!(
                "{}, {} of its {}",
                Unit::Seconds.show(outcome.cpu_seconds),
                Unit::Fraction.show(outcome.busy),
                if told.threads == 1 { "one thread".to_owned() } else { format!("{} threads", told.threads) }
            ),
        ),
    ];
    values.extend(outcome.server.software.iter().map(|software| ("server".to_owned(), software.clone())));
    values.extend(outcome.server.tls.iter().map(|tls| ("TLS".to_owned(), tls.clone())));
    values.extend((document.runs > 1).then(|| ("runs joined".to_owned(), document.runs.to_string())));
    let notes: Vec<String> = limit::remarks(document)
        .into_iter()
        .chain(remarks.iter().cloned())
        .map(|note| format!("{note}."))
        .collect();
    let mut blocks = vec![Block::KeyValues(values)];
    if !notes.is_empty() {
        blocks.push(Block::Notes(notes));
    }
    Section { title: "What was run".to_owned(), text: String::new(), blocks }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{document, histogram, nothing, told};

    #[test]
    fn a_page_has_all_parts_and_takes_no_text_for_markup() {
        let broken = vec!["p99>200ms: it is 990 ms".to_owned()];
        let text =
            page(&document(), &[(200.0, "p99>200ms".to_owned())], &broken, &["odd <input>".to_owned()]);
        for part in [
            "Over time",
            "How long answers took",
            "Inside the server",
            "What went wrong",
            "By request",
            "What was run",
        ] {
            assert!(text.contains(part), "{part}");
        }
        assert!(text.contains("GET http://h/&lt;b&gt;") && !text.contains("<input>"));
        assert!(text.contains("it is 990 ms"));
    }

    #[test]
    fn a_run_without_answers_has_a_page_too() {
        let text = page(&Document::new(None, told(), nothing(), None), &[], &[], &[]);
        assert!(text.contains("What went wrong") && !text.contains("NaN"));
    }

    #[test]
    fn bars_hold_everything_once() {
        let histogram = histogram((1..5_000).map(|us| us * 7));
        let bars = buckets(&histogram);
        assert_eq!(bars.iter().map(|bar| bar.count).sum::<u64>(), histogram.len());
        assert!(bars.windows(2).all(|pair| pair[0].to <= pair[1].from * (1.0 + 1e-9)));
        assert!(buckets(&Histogram::default()).is_empty());
    }

    #[test]
    fn curves_rise() {
        let curve = curve("x", &histogram((1..5_000).map(|us| us * us)));
        assert!(curve.points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
        assert_eq!(curve.points.last().map(|point| point.0), Some(100.0));
    }
}
