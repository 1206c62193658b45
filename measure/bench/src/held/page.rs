//! The HTML report of held connections.

use ::report::{
    Axis, Block, Column, Curve, KeyFigure, Line, Lines, Page, Percentiles, Plot, Section, Table, Unit,
    Verdict,
};
use load::held::Interval;

use super::report::Report;
use super::text::{lines, sentence, times};
use crate::page::curve;

pub(super) fn page(report: &Report, broken: &[String]) -> String {
    let (outcome, summary) = (&report.outcome, &report.summary);
    let key = |label: &str, value: String, note: String, verdict: Verdict| KeyFigure {
        label: label.to_owned(),
        value,
        note,
        verdict,
    };
    let bad = |is_bad: bool| if is_bad { Verdict::Bad } else { Verdict::Good };
    let wanted = report.plan.connections as u64;
    let mut lead = vec![
        key(
            "connections held",
            Unit::Count.show(outcome.held_at_end as f64),
            format!("of {}", Unit::Count.show(wanted as f64)),
            bad(outcome.held_at_end < wanted),
        ),
        key(report.units(), Unit::PerSecond.show(summary.received_per_s), String::new(), Verdict::Neutral),
    ];
    let (label, figures) = match outcome.round_trip_us.is_empty() {
        false => ("round trip, 99th percentile", &summary.round_trip_ms),
        true => ("time to open, 99th percentile", &summary.open_ms),
    };
    lead.push(key(label, Unit::Milliseconds.show(figures.p99), String::new(), Verdict::Neutral));
    lead.push(key(
        "errors",
        Unit::Count.show(summary.errors as f64),
        broken.first().cloned().unwrap_or_default(),
        bad(summary.errors > 0 || !broken.is_empty()),
    ));
    let mut sections = vec![over_time(report), spread(report)];
    let rows: Vec<Vec<String>> = outcome
        .errors
        .iter()
        .map(|(text, count)| vec![Unit::Count.show(*count as f64), text.clone()])
        .collect();
    if !rows.is_empty() {
        let table =
            Table { columns: vec![Column::number("count"), Column::text("error")], rows, ..Table::default() };
        sections.push(section("Errors", vec![Block::Table(table)]));
    }
    let values = lines(report).into_iter().map(|(name, value, note)| {
        (name.to_owned(), if note.is_empty() { value } else { format!("{value}: {note}") })
    });
    let mut blocks = vec![Block::KeyValues(values.collect())];
    if !report.notes.is_empty() {
        blocks.push(Block::Notes(report.notes.iter().map(|note| format!("{note}.")).collect()));
    }
    sections.push(section("Counts", blocks));
    let url = report.plan.urls.first().cloned().unwrap_or_default();
    Page {
        title: report.name.clone().unwrap_or_else(|| url.clone()),
        subtitle: format!("{url}; {}", sentence(report)),
        lead,
        sections,
        foot: format!("firebrick bench {}", env!("CARGO_PKG_VERSION")),
        refresh_seconds: 0,
    }
    .to_html()
}

fn section(title: &str, blocks: Vec<Block>) -> Section {
    Section { title: title.to_owned(), text: String::new(), blocks }
}

fn over_time(report: &Report) -> Section {
    let line = |name: &str, value: fn(&Interval) -> u64| Line {
        name: name.to_owned(),
        points: report
            .outcome
            .course
            .iter()
            .enumerate()
            .map(|(second, interval)| (second as f64, value(interval) as f64))
            .collect(),
        ..Line::default()
    };
    let plot = |title: &str, y: Axis, lines: Vec<Line>| {
        Block::Plot(Plot::Lines(Lines {
            title: title.to_owned(),
            x: Axis::new("time", Unit::Seconds),
            y,
            lines,
            ..Lines::default()
        }))
    };
    let mut traffic = vec![line("received", |second| second.received)];
    if report.outcome.sent > 0 {
        traffic.push(line("sent", |second| second.sent));
    }
    if report.summary.errors > 0 {
        traffic.push(line("errors", |second| second.errors));
    }
    let connections = vec![line("open", |second| second.held)];
    section(
        "Over time",
        vec![
            plot(
                &format!("{} per second", report.units()),
                Axis::new("per second", Unit::PerSecond),
                traffic,
            ),
            plot("Connections", Axis::new("connections", Unit::Count), connections),
        ],
    )
}

fn spread(report: &Report) -> Section {
    let (outcome, summary) = (&report.outcome, &report.summary);
    let all = [
        ("to open", &outcome.open_us, &summary.open_ms),
        ("to the first", &outcome.first_us, &summary.first_ms),
        ("gaps", &outcome.gaps_us, &summary.gaps_ms),
        ("round trip", &outcome.round_trip_us, &summary.round_trip_ms),
    ];
    let measured = || all.iter().filter(|(_, histogram, _)| !histogram.is_empty());
    let curves: Vec<Curve> = measured().map(|(name, histogram, _)| curve(name, histogram)).collect();
    let percentiles = Percentiles {
        title: "Percentiles".to_owned(),
        note: String::new(),
        y: Axis::new("time", Unit::Milliseconds).log(),
        curves,
        limits: Vec::new(),
    };
    let heads = ["mean", "p50", "p90", "p99", "max"];
    let rows = measured()
        .map(|(name, _, figures)| std::iter::once((*name).to_owned()).chain(times(figures)).collect())
        .collect();
    let table = Table {
        columns: [Column::text("")].into_iter().chain(heads.map(Column::number)).collect(),
        rows,
        ..Table::default()
    };
    section("Times", vec![Block::Plot(Plot::Percentiles(percentiles)), Block::Table(table)])
}
