//! The output of ApacheBench (ab 2.3), label for label, for scripts that parse it.
//!
//! Differences: times are whole milliseconds, as in ab; `Waiting` is the time to the first byte; later
//! requests on a kept connection have a `Connect` time of 0.

use std::fmt::Write as _;

use load::Histogram;

use crate::document::Document;
use crate::figures::{ms, per_second, percentile_ms};

const PERCENTILES: [u32; 8] = [50, 66, 75, 80, 90, 95, 98, 99];

pub(super) fn report(document: &Document) -> String {
    let mut out = String::new();
    head(&mut out, document);
    totals(&mut out, document);
    if complete(document) > 0 {
        connection_times(&mut out, document);
        served_within(&mut out, document);
    }
    out
}

/// Writes a label, followed by a value that starts in a fixed column.
fn line(out: &mut String, label: &str, value: impl std::fmt::Display) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{:<24}{value}", format!("{label}:"));
}

fn head(out: &mut String, document: &Document) {
    let (description, seen) = (&document.description, &document.outcome.server);
    let _ = writeln!(out, "This is firebrick bench, in the format of ApacheBench, Version 2.3\n");
    let _ = writeln!(out, "Benchmarking {} (be patient).....done\n\n", description.host);
    line(out, "Server Software", seen.software.as_deref().unwrap_or(""));
    line(out, "Server Hostname", &description.host);
    line(out, "Server Port", description.port);
    if let Some(tls) = &seen.tls {
        line(out, "SSL/TLS Protocol", tls.replace(' ', ","));
        line(out, "TLS Server Name", &description.host);
    }
    out.push('\n');
    line(out, "Document Path", &description.path);
    line(out, "Document Length", format!("{} bytes", seen.length));
    out.push('\n');
}

/// Returns the complete responses; ab counts all of them, whatever their status or length.
fn complete(document: &Document) -> u64 {
    document.outcome.statuses.values().sum()
}

fn totals(out: &mut String, document: &Document) {
    let (description, outcome) = (&document.description, &document.outcome);
    let (seconds, done) = (outcome.seconds, complete(document));
    line(out, "Concurrency Level", description.connections * description.depth);
    line(out, "Time taken for tests", format!("{seconds:.3} seconds"));
    line(out, "Complete requests", done);
    failures(out, document);
    let bad: u64 = outcome
        .statuses
        .iter()
        .filter(|(status, _)| !(200..300).contains(*status))
        .map(|(_, count)| count)
        .sum();
    if bad > 0 {
        line(out, "Non-2xx responses", bad);
    }
    if description.keep_alive {
        line(out, "Keep-Alive requests", done);
    }
    line(out, "Total transferred", format!("{} bytes", outcome.bytes.received));
    let sends = description.body_bytes > 0;
    if sends {
        line(
            out,
            if description.method == "PUT" { "Total PUT" } else { "Total body sent" },
            outcome.bytes.sent,
        );
    }
    line(out, "HTML transferred", format!("{} bytes", outcome.bytes.bodies));
    if seconds <= 0.0 {
        return;
    }
    let rate = per_second(done, seconds);
    let each = if rate > 0.0 { 1e3 / rate } else { 0.0 };
    let users = (description.connections * description.depth) as f64;
    line(out, "Requests per second", format!("{rate:.2} [#/sec] (mean)"));
    line(out, "Time per request", format!("{:.3} [ms] (mean)", each * users));
    line(out, "Time per request", format!("{each:.3} [ms] (mean, across all concurrent requests)"));
    let kib = |bytes: u64| per_second(bytes, seconds) / 1024.0;
    line(out, "Transfer rate", format!("{:.2} [Kbytes/sec] received", kib(outcome.bytes.received)));
    if sends {
        let _ = writeln!(out, "{:24}{:.2} kb/s sent", "", kib(outcome.bytes.sent));
        let _ = writeln!(out, "{:24}{:.2} kb/s total", "", kib(outcome.bytes.sent + outcome.bytes.received));
    }
}

fn failures(out: &mut String, document: &Document) {
    let errors = &document.outcome.errors;
    let connect = errors.connect + errors.connect_timeout;
    let receive = errors.read + errors.timeout + errors.cut_off + errors.unsent;
    let exceptions = errors.body + errors.status;
    line(out, "Failed requests", connect + receive + errors.length + exceptions + errors.write);
    if connect + receive + errors.length + exceptions > 0 {
        let length = errors.length;
        let _ = writeln!(
            out,
            "   (Connect: {connect}, Receive: {receive}, Length: {length}, Exceptions: {exceptions})"
        );
    }
    if errors.write > 0 {
        line(out, "Write errors", errors.write);
    }
}

/// A row of ab's table, in milliseconds.
struct Row {
    min: f64,
    mean: f64,
    sd: f64,
    median: f64,
    max: f64,
}

impl Row {
    fn of(histogram: &Histogram) -> Row {
        let at = |percentile| percentile_ms(histogram, percentile);
        let min = if histogram.is_empty() { 0.0 } else { ms(histogram.min()) };
        let (mean, sd) =
            if histogram.is_empty() { (0.0, 0.0) } else { (histogram.mean() / 1e3, histogram.stdev() / 1e3) };
        Row { min, mean, sd, median: at(50.0), max: at(100.0) }
    }

    /// Returns the row of connect times per request, which is 0 for requests that reused a connection.
    fn connect(connect: &Histogram, requests: u64) -> Row {
        let opened = connect.len();
        if requests <= opened {
            return Row::of(connect);
        }
        let share = opened as f64 / requests as f64;
        let all = Row::of(connect);
        let mean = all.mean * share;
        let square = (all.sd * all.sd + all.mean * all.mean) * share;
        let median_rank = 1.0 - 0.5 / share.max(f64::MIN_POSITIVE);
        let median = if share > 0.5 { percentile_ms(connect, median_rank * 100.0) } else { 0.0 };
        Row { min: 0.0, mean, sd: (square - mean * mean).max(0.0).sqrt(), median, max: all.max }
    }

    fn write(&self, out: &mut String, label: &str) {
        let [min, mean, median, max] = [self.min, self.mean, self.median, self.max].map(f64::round);
        let _ = writeln!(
            out,
            "{:<12}{min:>5.0} {mean:>4.0} {:>5.1} {median:>6.0} {max:>7.0}",
            format!("{label}:"),
            self.sd
        );
    }
}

fn connection_times(out: &mut String, document: &Document) {
    let outcome = &document.outcome;
    out.push_str("\nConnection Times (ms)\n              min  mean[+/-sd] median   max\n");
    Row::connect(&outcome.connect, complete(document)).write(out, "Connect");
    Row::of(&outcome.service).write(out, "Processing");
    Row::of(&outcome.first_byte).write(out, "Waiting");
    Row::of(&outcome.latency).write(out, "Total");
}

fn served_within(out: &mut String, document: &Document) {
    let latency = &document.outcome.latency;
    out.push_str("\nPercentage of the requests served within a certain time (ms)\n");
    for percentile in PERCENTILES {
        let _ =
            writeln!(out, "  {percentile}%  {:>5.0}", percentile_ms(latency, f64::from(percentile)).round());
    }
    let _ = writeln!(out, " 100%  {:>5.0} (longest request)", ms(latency.max()).round());
}

/// Returns the output of ab's `-e`: the time of each percentile from 0 to 100.
pub(super) fn percentiles(document: &Document) -> String {
    let latency = &document.outcome.latency;
    let mut out = String::from("Percentage served,Time in ms\n");
    for percentile in 0..=100 {
        let time = if percentile == 0 && !latency.is_empty() {
            ms(latency.min())
        } else {
            percentile_ms(latency, f64::from(percentile))
        };
        let _ = writeln!(out, "{percentile},{time:.3}");
    }
    out
}
