//! The output of wrk (4.x) with `--latency`, column for column.

use std::fmt::Write as _;

use load::Histogram;

use crate::document::Document;
use crate::figures::per_second;

/// wrk switches to the next unit at this share of it.
const FULL: f64 = 0.85;

pub(super) fn report(document: &Document) -> String {
    let (description, outcome) = (&document.description, &document.outcome);
    let mut out = String::new();
    let url = description.urls.first().map_or("", String::as_str);
    let planned = description.duration_s.unwrap_or(outcome.seconds);
    let complete: u64 = outcome.statuses.values().sum();
    // Writing to a String cannot fail.
    let _ = writeln!(out, "Running {} test @ {url}", time(planned * 1e6, 0));
    let _ = writeln!(out, "  {} threads and {} connections", description.threads, description.connections);
    out.push_str("  Thread Stats   Avg      Stdev     Max   +/- Stdev\n");
    // wrk corrects for coordinated omission (its `stats_correct`).
    let corrected = outcome.corrected.as_ref().unwrap_or(&outcome.latency);
    latency(&mut out, corrected);
    rates(&mut out, document);
    out.push_str("  Latency Distribution\n");
    for percentile in [50.0, 75.0, 90.0, 99.0] {
        let value = corrected.value_at_percentile(percentile).min(corrected.max());
        let _ = writeln!(out, "{percentile:>7.0}%{}", padded(&time(value as f64, 2), 10).trim_end());
    }
    let (seconds, received) = (outcome.seconds, outcome.bytes.received);
    let _ = writeln!(
        out,
        "  {complete} requests in {}, {}B read",
        time(seconds * 1e6, 2),
        binary(received as f64)
    );
    failures(&mut out, document);
    let _ = writeln!(out, "Requests/sec: {:>9.2}", per_second(complete, seconds));
    let _ = writeln!(out, "Transfer/sec: {:>10}B", binary(per_second(received, seconds)));
    out
}

fn latency(out: &mut String, latency: &Histogram) {
    let (mean, sd) = if latency.is_empty() { (0.0, 0.0) } else { (latency.mean(), latency.stdev()) };
    let within: u64 = latency
        .iter_recorded()
        .filter(|step| (step.value_iterated_to() as f64 - mean).abs() <= sd)
        .map(|step| step.count_at_value())
        .sum();
    row(out, "Latency", [mean, sd, latency.max() as f64].map(|us| time(us, 2)), share(within, latency.len()));
}

/// Writes requests per second and thread, in complete seconds.
fn rates(out: &mut String, document: &Document) {
    let threads = document.description.threads.max(1) as f64;
    let course = &document.outcome.course;
    // The last second is usually incomplete.
    let whole = if course.len() > 1 { &course[..course.len() - 1] } else { &course[..] };
    let rates: Vec<f64> = whole.iter().map(|second| second.ok as f64 / threads).collect();
    let count = rates.len().max(1) as f64;
    let mean = rates.iter().sum::<f64>() / count;
    let sd = (rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / count).sqrt();
    let max = rates.iter().copied().fold(0.0, f64::max);
    let within = rates.iter().filter(|rate| (*rate - mean).abs() <= sd).count();
    row(out, "Req/Sec", [mean, sd, max].map(metric), share(within as u64, rates.len() as u64));
}

fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { 100.0 * part as f64 / all as f64 }
}

fn row(out: &mut String, name: &str, [mean, sd, max]: [String; 3], within: f64) {
    let _ = writeln!(
        out,
        "    {name:<10}{}{}{}{within:>8.2}%",
        padded(&mean, 8),
        padded(&sd, 10),
        padded(&max, 9)
    );
}

/// Aligns units in a column of two letters.
fn padded(text: &str, width: usize) -> String {
    let letters = text.chars().rev().take(2).take_while(char::is_ascii_alphabetic).count();
    let pad = 2 - letters;
    format!("{text:>0$}{1}", width - pad, " ".repeat(pad))
}

fn failures(out: &mut String, document: &Document) {
    let (errors, statuses) = (&document.outcome.errors, &document.outcome.statuses);
    let (connect, timeout) =
        (errors.connect, errors.connect_timeout + errors.timeout + errors.cut_off + errors.unsent);
    let (read, write) = (errors.read, errors.write);
    if connect + read + write + timeout > 0 {
        let _ = writeln!(
            out,
            "  Socket errors: connect {connect}, read {read}, write {write}, timeout {timeout}"
        );
    }
    let bad: u64 = statuses.iter().filter(|(status, _)| **status > 399).map(|(_, count)| count).sum();
    if bad > 0 {
        let _ = writeln!(out, "  Non-2xx or 3xx responses: {bad}");
    }
}

fn scaled(amount: f64, scale: f64, units: &[&str], decimals: usize) -> String {
    let mut amount = amount;
    let mut unit = 0;
    while unit + 1 < units.len() && amount >= scale * FULL {
        amount /= scale;
        unit += 1;
    }
    format!("{amount:.decimals$}{}", units[unit])
}

fn time(us: f64, decimals: usize) -> String {
    if us >= 1e6 {
        return scaled(us / 1e6, 60.0, &["s", "m", "h"], decimals);
    }
    scaled(us, 1e3, &["us", "ms", "s"], decimals)
}

fn metric(amount: f64) -> String {
    scaled(amount, 1e3, &["", "k", "M", "G", "T", "P"], 2)
}

fn binary(bytes: f64) -> String {
    scaled(bytes, 1024.0, &["", "K", "M", "G", "T", "P"], 2)
}
