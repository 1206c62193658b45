//! The human-readable summary.

use std::fmt::Write as _;

use load::outcome::{Errors, RequestOutcome};
use load::recorded::Compared;
use load::{Histogram, Outcome};
use report::Unit;

use crate::document::{Document, Server};
use crate::figures::{Figures, HandshakeFigures, per_second, percentile_ms};
use crate::stages::split;
use crate::validity;

/// The longest line.
const COLUMNS: usize = 97;
/// The most kinds of requests listed.
const REQUESTS: usize = 10;
/// The most routes of a replay listed.
const ROUTES: usize = 20;

/// Percentiles that are split into stages.
pub(crate) const SPLIT: [(&str, f64); 4] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("max", 100.0)];

pub(super) fn summary(document: &Document, remarks: &[String]) -> String {
    let mut out = String::new();
    what(&mut out, document);
    counts(&mut out, document);
    comparison(&mut out, &document.outcome);
    latencies(&mut out, document);
    stages(&mut out, &document.outcome);
    by_request(&mut out, &document.outcome);
    errors(&mut out, document);
    server(&mut out, document);
    for remark in validity::remarks(document).iter().chain(remarks) {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "\n{}", wrapped(&format!("Note: {remark}.")));
    }
    next_steps(&mut out, document);
    out
}

/// Wraps a sentence to the width of a terminal.
pub(crate) fn wrapped(text: &str) -> String {
    text::people::wrapped(text, COLUMNS, 2)
}

fn what(out: &mut String, document: &Document) {
    let (description, outcome) = (&document.description, &document.outcome);
    if let Some(name) = &document.name {
        let _ = writeln!(out, "{name}");
    }
    let seconds = Unit::Seconds.show(outcome.seconds);
    let _ = writeln!(out, "{} {} for {seconds}", description.method, description.target());
    let _ = writeln!(out, "{} ({})", description.sentence(), description.model());
    if document.runs > 1 {
        let _ = writeln!(out, "{} runs merged", document.runs);
    }
    let seen = &outcome.server;
    let mut facts: Vec<String> = seen.tls.iter().cloned().collect();
    facts.extend(seen.software.iter().map(|software| format!("server software {software}")));
    if outcome.stages.is_some() {
        facts.push("server is a Firebrick".to_owned());
    }
    if !facts.is_empty() {
        let _ = writeln!(out, "{}", facts.join(", "));
    }
    out.push('\n');
}

fn counts(out: &mut String, document: &Document) {
    let outcome = &document.outcome;
    let failed = outcome.errors.total();
    let rate = Unit::PerSecond.show(per_second(outcome.ok, outcome.seconds));
    let _ = writeln!(out, "  successful     {:>12}   {rate}", Unit::Count.show(outcome.ok as f64));
    let share =
        if failed > 0 { format!("   {}", percent(failed, outcome.ok + failed)) } else { String::new() };
    let _ = writeln!(out, "  errors         {:>12}{share}", Unit::Count.show(failed as f64));
    let bytes = |count: u64| Unit::Bytes.show(count as f64);
    let received = outcome.bytes.received;
    let per_s = Unit::Bytes.show(per_second(received, outcome.seconds));
    let _ = writeln!(out, "  received       {:>12}   {per_s}/s", bytes(received));
    if document.description.body_bytes > 0 {
        let _ = writeln!(out, "  sent           {:>12}", bytes(outcome.bytes.sent));
    }
    let connects = &outcome.connect;
    if outcome.connections > 0 {
        let took = match connects.is_empty() {
            true => String::new(),
            false => format!("   each opened in {} (p50)", time(percentile_ms(connects, 50.0))),
        };
        let _ = writeln!(out, "  connections    {:>12}{took}", Unit::Count.show(outcome.connections as f64));
    }
    if let Some(handshakes) = HandshakeFigures::of(outcome).filter(|handshakes| handshakes.count > 0) {
        let rate = Unit::PerSecond.show(handshakes.per_s);
        // With keep-alive the rate says nothing about the server.
        let rate = if document.description.keep_alive { String::new() } else { format!("{rate}, ") };
        let _ = writeln!(
            out,
            "  TLS handshakes {:>12}   {rate}{}; {}",
            Unit::Count.show(handshakes.count as f64),
            handshakes.kinds(),
            handshakes.times()
        );
    }
}

/// Lists how the responses of a replay compare with the recorded ones: the routes with differences first, then the others.
fn comparison(out: &mut String, outcome: &Outcome) {
    let groups = Compared::ranked(&outcome.compared);
    if groups.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\n  {:>9} {:>8} {:>8} {:>8}  {:>9} {:>9}   by route; the other columns are differences",
        "same", "status", "length", "body", "p95 then", "p95 now"
    );
    for group in groups.iter().take(ROUTES) {
        let count = |count: u64| Unit::Count.show(count as f64);
        let now = outcome.requests.iter().find(|request| request.name == group.name);
        let p95 = |histogram: Option<&Histogram>| match histogram.filter(|histogram| !histogram.is_empty()) {
            Some(histogram) => time(percentile_ms(histogram, 95.0)),
            None => "-".to_owned(),
        };
        let [same, status, length, body] = [group.same, group.status, group.length, group.body].map(count);
        let (before, now) = (p95(Some(&group.recorded)), p95(now.map(|request| &request.latency)));
        let _ = writeln!(
            out,
            "  {same:>9} {status:>8} {length:>8} {body:>8}  {before:>9} {now:>9}   {}",
            group.name
        );
        for example in &group.examples {
            let _ = writeln!(out, "            {example}");
        }
    }
    if groups.len() > ROUTES {
        let _ = writeln!(out, "  and {} more, see --json", groups.len() - ROUTES);
    }
}

fn percent(part: u64, all: u64) -> String {
    match all {
        0 => "0 %".to_owned(),
        _ => format!("{} %", Unit::Number.show(100.0 * part as f64 / all as f64)),
    }
}

fn time(ms: f64) -> String {
    Unit::Milliseconds.show(ms)
}

fn latencies(out: &mut String, document: &Document) {
    let outcome = &document.outcome;
    if outcome.latency.is_empty() {
        out.push_str("\nNo successful response, so there are no response times.\n");
        return;
    }
    let heads = ["mean", "p50", "p75", "p90", "p95", "p99", "p99.9", "max"];
    let _ = writeln!(out, "\n  {:<15}{}", "response time", row(heads.map(str::to_owned)));
    let closed = document.description.is_closed();
    let shown = |histogram: &Histogram| {
        let f = Figures::of(histogram);
        row([f.mean, f.p50, f.p75, f.p90, f.p95, f.p99, f.p999, f.max].map(time))
    };
    let _ = writeln!(
        out,
        "  {:<15}{}",
        if closed { "measured" } else { "from due time" },
        shown(&outcome.latency)
    );
    match &outcome.corrected {
        Some(corrected) if closed => {
            let _ = writeln!(out, "  {:<15}{}", "corrected *", shown(corrected));
            out.push_str(
                "  * with the requests that would have been sent if users did not wait for slow responses\n",
            );
        }
        _ if !closed => {
            let _ = writeln!(out, "  {:<15}{}", "from send time", shown(&outcome.service));
            out.push_str(
                "  Times count from when a request was due, including the wait for a free connection.\n",
            );
        }
        _ => {}
    }
}

fn row(cells: [String; 8]) -> String {
    cells.iter().map(|cell| format!("{cell:>10}")).collect()
}

fn stages(out: &mut String, outcome: &Outcome) {
    let Some(stages) = &outcome.stages else {
        return;
    };
    let mut lines = String::new();
    for (name, percentile) in SPLIT {
        if let Some(found) = split(stages, percentile, percentile_ms(&outcome.latency, percentile)) {
            let _ = writeln!(lines, "  {name:<4} {}", found.sentence());
        }
    }
    if !lines.is_empty() {
        let _ = writeln!(out, "\nWhere the time went, as reported by the server:\n{}", lines.trim_end());
    }
}

/// Lists the steps of a journey in order, and the journey itself.
fn by_step(out: &mut String, outcome: &Outcome, journeys: &RequestOutcome) {
    let _ = writeln!(
        out,
        "\n  {:>9} {:>8} {:>9} {:>9} {:>9}   by step; a failed request ends its journey",
        "ok", "errors", "p50", "p95", "p99"
    );
    for step in outcome.requests.iter().chain([journeys]) {
        let [p50, p95, p99] =
            [50.0, 95.0, 99.0].map(|percentile| time(percentile_ms(&step.latency, percentile)));
        let (ok, errors) = (Unit::Count.show(step.ok as f64), Unit::Count.show(step.errors as f64));
        let rate = Unit::PerSecond.show(per_second(step.ok, outcome.seconds));
        let name =
            if std::ptr::eq(step, journeys) { format!("whole journey, {rate}") } else { step.name.clone() };
        let _ = writeln!(out, "  {ok:>9} {errors:>8} {p50:>9} {p95:>9} {p99:>9}   {name}");
    }
}

/// Lists the slowest kinds of requests, if there are several.
fn by_request(out: &mut String, outcome: &Outcome) {
    if let Some(journeys) = &outcome.journeys {
        return by_step(out, outcome, journeys);
    }
    if outcome.requests.len() < 2 || !outcome.compared.is_empty() {
        return;
    }
    let mut requests: Vec<_> = outcome.requests.iter().collect();
    requests.sort_by_key(|request| std::cmp::Reverse(request.latency.value_at_percentile(99.0)));
    let _ = writeln!(
        out,
        "\n  {:>9} {:>8} {:>9} {:>9}   by request, slowest first",
        "ok", "errors", "p50", "p99"
    );
    for request in requests.iter().take(REQUESTS) {
        let at = |percentile| time(percentile_ms(&request.latency, percentile));
        let (ok, errors) = (Unit::Count.show(request.ok as f64), Unit::Count.show(request.errors as f64));
        let _ = writeln!(out, "  {ok:>9} {errors:>8} {:>9} {:>9}   {}", at(50.0), at(99.0), request.name);
    }
    if requests.len() > REQUESTS {
        let _ = writeln!(out, "  and {} more, see --html or --json", requests.len() - REQUESTS);
    }
}

/// Returns the kinds of errors that occurred, with explanations.
pub(crate) fn kinds(errors: &Errors, timeout_ms: f64) -> Vec<(&'static str, u64, String)> {
    let timeout = time(timeout_ms);
    [
        ("connect", errors.connect, "connection refused, host unreachable, or TLS failed".to_owned()),
        (
            "connect timeout",
            errors.connect_timeout,
            "no connection in time: the server's backlog may be full".to_owned(),
        ),
        ("write", errors.write, "the connection broke while the request was sent".to_owned()),
        ("read", errors.read, "the connection broke or the response was invalid".to_owned()),
        ("timeout", errors.timeout, format!("no complete response within {timeout} (--timeout)")),
        ("status", errors.status, "unexpected status (--expect-status)".to_owned()),
        ("length", errors.length, "unexpected body length (--expect-length)".to_owned()),
        ("body", errors.body, "unexpected body (--expect-sha256, --expect-body)".to_owned()),
        ("cut off", errors.cut_off, "not completed when the run ended, nor within --grace".to_owned()),
        ("never sent", errors.unsent, "due, but no connection was free before the end (-c)".to_owned()),
    ]
    .into_iter()
    .filter(|(_, count, _)| *count > 0)
    .collect()
}

fn errors(out: &mut String, document: &Document) {
    let outcome = &document.outcome;
    let kinds = kinds(&outcome.errors, document.description.timeout_ms);
    if kinds.is_empty() {
        return;
    }
    out.push_str("\nErrors:\n");
    for (name, count, meaning) in kinds {
        let _ = writeln!(out, "  {name:<16}{:>9}   {meaning}", Unit::Count.show(count as f64));
    }
    let bad: Vec<String> = outcome
        .statuses
        .iter()
        .map(|(status, count)| format!("{status}: {}", Unit::Count.show(*count as f64)))
        .collect();
    if outcome.errors.status > 0 {
        let _ = writeln!(out, "  responses by status: {}", bad.join(", "));
    }
    for (text, count) in &outcome.errors.texts {
        let _ = writeln!(out, "  {:>8} x {text}", Unit::Count.show(*count as f64));
    }
    let failed = outcome.handshakes.iter().flat_map(|handshakes| &handshakes.failed);
    for (index, (reason, count)) in failed.enumerate() {
        if index == 0 {
            out.push_str("  TLS handshakes that failed:\n");
        }
        let _ = writeln!(out, "  {:>8} x {reason}", Unit::Count.show(*count as f64));
    }
}

/// Returns CPU and memory of the server, as names and values.
pub(crate) fn server_lines(server: &Server, requests: u64) -> Vec<(&'static str, String)> {
    let (before, after) = (&server.before, &server.after);
    let took = after.uptime() - before.uptime();
    let cpu_ms = after.total_cpu_ms().saturating_sub(before.total_cpu_ms());
    let mut lines = Vec::new();
    if took > 0.0 && cpu_ms > 0 {
        let cores = cpu_ms as f64 / 1e3 / took;
        let of =
            if after.cores > 0.0 { format!(" of {}", Unit::Number.show(after.cores)) } else { String::new() };
        let each = if requests > 0 {
            format!(", {} per request", time(cpu_ms as f64 / requests as f64))
        } else {
            String::new()
        };
        lines.push(("CPU", format!("{}{of} cores busy{each}", Unit::Number.show(cores))));
    }
    let bytes = |count: u64| Unit::Bytes.show(count as f64);
    if after.total_pss_bytes() > 0 {
        lines.push((
            "memory",
            format!("{} before, {} after", bytes(before.total_pss_bytes()), bytes(after.total_pss_bytes())),
        ));
    }
    lines.push((
        "longest queue",
        format!("{} requests, since the server started", Unit::Count.show(after.queue.longest as f64)),
    ));
    let restarts = |snapshot: &stats::ServerSnapshot| {
        snapshot.workers.iter().map(|worker| u64::from(worker.restarts)).sum::<u64>()
    };
    let replaced = restarts(after).saturating_sub(restarts(before));
    if replaced > 0 {
        lines.push(("workers replaced", Unit::Count.show(replaced as f64)));
    }
    lines
}

fn server(out: &mut String, document: &Document) {
    let Some(server) = &document.server else {
        return;
    };
    out.push_str("\nServer statistics:\n");
    for (name, value) in server_lines(server, document.outcome.ok) {
        let _ = writeln!(out, "  {name:<16}{value}");
    }
}

fn next_steps(out: &mut String, document: &Document) {
    if document.outcome.ok == 0 {
        return;
    }
    out.push_str(
        "\nNext steps: --rate 100/s for response times at a given load; --html report.html for plots;\n\
         `firebrick tune` for the best number of processes and threads; `firebrick plan --from run.json`\n\
         for the number of machines (--json run.json writes the file).\n",
    );
}
