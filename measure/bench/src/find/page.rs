//! The HTML report of a search: the response time by rate.

use ::report::{
    Axis, Block, Column, KeyFigure, Limit, Line, Lines, Page, Plot, Section, Table, Unit, Verdict,
    VerticalLine,
};

use super::report::{Report, StepRow};
use super::text::sentence;

pub(super) fn page(report: &Report, broken: &[String]) -> String {
    let rate = |rate: Option<f64>| rate.map_or_else(|| "none".to_owned(), |rate| Unit::PerSecond.show(rate));
    let found = &report.result;
    let verdict = if found.rate_per_s.is_none() || !broken.is_empty() { Verdict::Bad } else { Verdict::Good };
    let key = |label: &str, value: String, note: String, verdict: Verdict| KeyFigure {
        label: label.to_owned(),
        value,
        note,
        verdict,
    };
    let lead = vec![
        key(
            "highest rate",
            rate(found.rate_per_s),
            broken.first().cloned().unwrap_or_else(|| report.objectives.join(" and ")),
            verdict,
        ),
        key("lowest that misses", rate(found.missed_per_s), String::new(), Verdict::Neutral),
        key(
            "one user alone",
            Unit::Milliseconds.show(report.alone.p50_ms),
            "p50".to_owned(),
            Verdict::Neutral,
        ),
    ];
    let mut blocks = vec![Block::Plot(Plot::Lines(curve(report))), Block::Table(table(&report.steps))];
    let notes = |prefix: &str, lines: &[String]| {
        lines.iter().map(|line| format!("{prefix}{line}.")).collect::<Vec<_>>()
    };
    let all =
        [notes("", &report.findings), notes("Advice: ", &report.advice), notes("Note: ", &report.notes)]
            .concat();
    if !all.is_empty() {
        blocks.push(Block::Notes(all));
    }
    Page {
        title: report.name.clone().unwrap_or_else(|| format!("Highest rate of {}", report.plan.target())),
        subtitle: format!("{}; {}", report.plan.target(), report.plan.sentence()),
        lead,
        sections: vec![Section { title: "Rates".to_owned(), text: format!("{}.", sentence(report)), blocks }],
        foot: format!("firebrick bench {}", env!("CARGO_PKG_VERSION")),
        refresh_seconds: 0,
    }
    .to_html()
}

fn curve(report: &Report) -> Lines {
    let line = |name: &str, value: fn(&StepRow) -> Option<f64>| Line {
        name: name.to_owned(),
        points: report.steps.iter().map(|row| (row.rate_per_s, value(row).unwrap_or(f64::NAN))).collect(),
        dots: true,
        ..Line::default()
    };
    Lines {
        title: "Response time by rate".to_owned(),
        note: "Each point is a rate that was tried. A gap: too many requests failed.".to_owned(),
        x: Axis::new("rate", Unit::PerSecond),
        y: Axis::new("response time", Unit::Milliseconds).log(),
        lines: vec![
            line("p50", |row| row.p50_ms),
            line("p95", |row| row.p95_ms),
            line("p99", |row| row.p99_ms),
        ],
        limits: report
            .limits
            .iter()
            .map(|(value, label)| Limit { value: *value, label: label.clone() })
            .collect(),
        marks: report
            .result
            .rate_per_s
            .map(|at| VerticalLine { at, label: "holds".to_owned() })
            .into_iter()
            .collect(),
        ..Lines::default()
    }
}

fn table(steps: &[StepRow]) -> Table {
    let time = |ms: Option<f64>| ms.map_or_else(|| "failed".to_owned(), |ms| Unit::Milliseconds.show(ms));
    let cells = |row: &StepRow| {
        let verdict = match (row.limited, row.holds) {
            (true, _) => "load generator".to_owned(),
            (_, true) => "holds".to_owned(),
            (_, false) => format!("misses {}", row.missed),
        };
        let counts = [row.requests, row.errors].map(|count| Unit::Count.show(count as f64));
        let [requests, errors] = counts;
        vec![
            Unit::PerSecond.show(row.rate_per_s),
            requests,
            errors,
            time(row.p50_ms),
            time(row.p95_ms),
            time(row.p99_ms),
            verdict,
        ]
    };
    let names = ["rate", "requests", "errors", "p50", "p95", "p99"];
    Table {
        columns: names.map(Column::number).into_iter().chain([Column::text("verdict")]).collect(),
        rows: steps.iter().map(cells).collect(),
        ..Table::default()
    }
}
