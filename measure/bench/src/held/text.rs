//! The results of held connections as text: a summary for people, and a line per second.

use std::fmt::Write as _;

use ::report::Unit;
use load::held::HoldOutcome;

use super::report::{Messages, Report};
use crate::figures::Figures;
use crate::text::wrapped;

/// The most errors listed.
const ERRORS: usize = 10;

/// Returns what was done as a sentence without the final period.
pub(super) fn sentence(report: &Report) -> String {
    let plan = &report.plan;
    let what = if report.is_web_socket() { "WebSockets" } else { "event streams" };
    let counted = Unit::Count.show(plan.connections as f64);
    let sends = match &plan.messages {
        Some(Messages { send: 1.., rate_per_s: Some(rate), bytes, .. }) => {
            format!(
                ", each sends {} messages of {}",
                Unit::PerSecond.show(*rate),
                Unit::Bytes.show(*bytes as f64)
            )
        }
        Some(Messages { send: 1.., bytes, .. }) => {
            format!(", each sends a message of {} after each reply", Unit::Bytes.show(*bytes as f64))
        }
        _ => String::new(),
    };
    let threads = if plan.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", plan.threads) };
    format!("{counted} {what}{sends}, {threads}")
}

pub(super) fn summary(report: &Report) -> String {
    let (outcome, summary, mut out) = (&report.outcome, &report.summary, String::new());
    if let Some(name) = &report.name {
        let _ = writeln!(out, "{name}");
    }
    let url = report.plan.urls.first().map(String::as_str).unwrap_or_default();
    let _ = writeln!(out, "{url} for {}\n{}\n", Unit::Seconds.show(outcome.seconds), sentence(report));
    for (name, value, note) in lines(report) {
        let _ = writeln!(out, "{}", format!("  {name:<15}{value:>12}   {note}").trim_end());
    }
    let heads = ["mean", "p50", "p90", "p99", "max"];
    let row = |cells: [String; 5]| cells.map(|cell| format!("{cell:>9}")).concat();
    let _ = writeln!(out, "\n  {:<15}{}", "times", row(heads.map(str::to_owned)));
    for (name, histogram, figures) in [
        ("to open", &outcome.open_us, &summary.open_ms),
        (
            if report.is_web_socket() { "first message" } else { "first event" },
            &outcome.first_us,
            &summary.first_ms,
        ),
        ("gaps", &outcome.gaps_us, &summary.gaps_ms),
        ("round trip", &outcome.round_trip_us, &summary.round_trip_ms),
    ] {
        if !histogram.is_empty() {
            let _ = writeln!(out, "  {name:<15}{}", row(times(figures)));
        }
    }
    errors(&mut out, outcome);
    for note in &report.notes {
        let _ = writeln!(out, "\n{}", wrapped(&format!("Note: {note}.")));
    }
    out
}

pub(super) fn times(figures: &Figures) -> [String; 5] {
    [figures.mean, figures.p50, figures.p90, figures.p99, figures.max].map(|ms| Unit::Milliseconds.show(ms))
}

/// Returns the counts: name, value, remark.
pub(super) fn lines(report: &Report) -> Vec<(&'static str, String, String)> {
    let (outcome, summary) = (&report.outcome, &report.summary);
    let count = |value: u64| Unit::Count.show(value as f64);
    let rate = |value: f64| Unit::PerSecond.show(value);
    let range = if outcome.fewest_held < outcome.most_held {
        format!("{} to {} in the run", count(outcome.fewest_held), count(outcome.most_held))
    } else {
        String::new()
    };
    let opening =
        format!("{} opened in {}", count(outcome.opened), Unit::Seconds.show(outcome.opening_seconds));
    let again =
        if outcome.reconnects > 0 { format!(", {} again", count(outcome.reconnects)) } else { String::new() };
    let bytes = |bytes: f64| format!("{}/s", Unit::Bytes.show(bytes));
    let mut lines = vec![
        ("held", count(outcome.held_at_end), range),
        ("connections", count(outcome.opened), format!("{opening}{again}")),
        (
            report.units(),
            count(outcome.received),
            format!("{}, {}", rate(summary.received_per_s), bytes(summary.received_bytes_per_s)),
        ),
    ];
    let mut more = |name, value: u64, note: String| {
        if value > 0 {
            lines.push((name, count(value), note));
        }
    };
    more("sent", outcome.sent, rate(summary.sent_per_s));
    more(
        "unanswered",
        outcome.unanswered,
        format!("no reply within {} (--timeout)", Unit::Milliseconds.show(report.plan.timeout_ms)),
    );
    more("comments", outcome.comments, String::new());
    more("pings", outcome.pings, "answered".to_owned());
    let codes: Vec<String> =
        outcome.close_codes.iter().map(|(code, times)| format!("{code}: {}", count(*times))).collect();
    more(
        "closed",
        outcome.closed_by_server,
        if codes.is_empty() {
            "by the server".to_owned()
        } else {
            format!("by the server, {}", codes.join(", "))
        },
    );
    more("stopped", outcome.stopped_by_server, "by a response 204".to_owned());
    lines.push(("errors", count(outcome.error_count()), String::new()));
    lines
}

fn errors(out: &mut String, outcome: &HoldOutcome) {
    let mut sorted: Vec<(&String, &u64)> = outcome.errors.iter().collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    if !sorted.is_empty() {
        out.push_str("\n  errors\n");
    }
    for (text, count) in sorted.iter().take(ERRORS) {
        let _ = writeln!(out, "  {:>9}   {text}", Unit::Count.show(**count as f64));
    }
}

/// Returns one line per second.
pub(super) fn csv(outcome: &HoldOutcome) -> String {
    let mut out = String::from("second,held,opened,received,sent,errors\n");
    for (second, row) in outcome.course.iter().enumerate() {
        let _ = writeln!(
            out,
            "{second},{},{},{},{},{}",
            row.held, row.opened, row.received, row.sent, row.errors
        );
    }
    out
}
