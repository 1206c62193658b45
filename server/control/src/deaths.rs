//! Formats the deaths of workers for people: the requests that workers have died of, a line for each worker, one for each request that it was
//! serving, and what it did last.

use text::people::grouped;

use crate::table::{grid, mib, span};
use stats::{CountedKind, Death, DeathRequest, FlightEvent, FlightSecond};
use std::collections::HashMap;
use std::fmt::Write;

/// The events that are shown of a worker that ended unexpectedly.
const EVENTS: usize = 5;
/// The most requests that are suspected.
const SUSPECTS: usize = 3;

/// Returns the output of `firebrick deaths`. `minute`: with everything that is known of the last minutes.
pub(crate) fn table(deaths: &[Death], minute: bool) -> String {
    if deaths.is_empty() {
        return "no worker has ended\n".to_owned();
    }
    let titles = "no.|ended at (UTC)|worker|pid|generation|age|requests|peak MiB|PSS MiB|end|cause";
    let titles = titles.split('|').map(str::to_owned).collect();
    let rows: Vec<Vec<String>> = std::iter::once(titles).chain(deaths.iter().map(row)).collect();
    let grid = grid(&rows);
    let mut lines = grid.lines();
    let mut text = suspects(deaths);
    lines.next().into_iter().for_each(|titles| text += &format!("{titles}\n"));
    for (line, death) in lines.zip(deaths) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{line}");
        for request in &death.in_flight {
            let _ = writeln!(text, "    {}", serving(request));
        }
        text += &recorded(death, minute);
    }
    text
}

fn row(death: &Death) -> Vec<String> {
    let end = match (death.exit_code, death.signal) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "?".to_owned(),
    };
    vec![
        death.number.to_string(),
        death.when(),
        death.worker.to_string(),
        death.pid.to_string(),
        death.generation.to_string(),
        span(death.age_s),
        grouped(death.requests),
        mib(death.peak_rss_bytes),
        death.pss_bytes.map_or("?".to_owned(), mib),
        end,
        death.cause.name().to_owned(),
    ]
}

/// Names the requests that most workers were serving when they died: one with a response that is not there yet, in at least two deaths,
/// or alone in a worker.
fn suspects(deaths: &[Death]) -> String {
    struct Suspect<'a> {
        deaths: usize,
        /// In how many of them it was the last to begin: what kills at once does so before others come.
        last: usize,
        /// The sum of its shares in the deaths: less beside other requests.
        share: f64,
        newest: &'a Death,
        line: Option<&'a str>,
    }
    let of_requests = |death: &&Death| death.is_unexpected() && !death.in_flight.is_empty();
    let unexpected: Vec<&Death> = deaths.iter().filter(of_requests).collect();
    let mut found: HashMap<(&str, &str), Suspect<'_>> = HashMap::new();
    for &death in &unexpected {
        let mut seen: Vec<(&str, &str)> = Vec::new();
        let youngest = death.in_flight.iter().map(|request| request.age_ms).min_by(f64::total_cmp);
        for request in death.in_flight.iter().rev() {
            let key = (&*request.method, &*request.path);
            let line = request.backtrace.as_deref().and_then(<[String]>::first);
            let one = found.entry(key).or_insert(Suspect {
                deaths: 0,
                last: 0,
                share: 0.0,
                newest: death,
                line: None,
            });
            one.line = one.line.or(line.map(String::as_str));
            if !seen.contains(&key) {
                seen.push(key);
                one.deaths += 1;
                one.last += usize::from(youngest == Some(request.age_ms));
                one.share += 1.0 / death.in_flight.len() as f64;
            }
        }
    }
    let mut found: Vec<_> = found.into_iter().filter(|(_, one)| one.deaths > 1 || one.share >= 1.0).collect();
    found.sort_by(|(a, one), (b, other)| {
        other
            .deaths
            .cmp(&one.deaths)
            .then(other.last.cmp(&one.last))
            .then(other.share.total_cmp(&one.share))
            .then(a.cmp(b))
    });
    let mut text = String::new();
    for ((method, path), one) in found.into_iter().take(SUSPECTS) {
        let at = one.line.map(|line| format!(", last seen at {line}")).unwrap_or_default();
        let _ = writeln!(
            text,
            "{method} {path} was in progress in {} of {} unexpected deaths with requests{at} (newest: no. {})",
            one.deaths,
            unexpected.len(),
            one.newest.number
        );
    }
    if text.is_empty() { text } else { text + "\n" }
}

/// Returns what the worker did last.
fn recorded(death: &Death, minute: bool) -> String {
    let shown = match (minute, death.is_unexpected()) {
        (true, _) => death.events.len(),
        (false, true) => EVENTS.min(death.events.len()),
        (false, false) => 0,
    };
    let mut text = if shown > 0 { summary(&death.seconds) } else { String::new() };
    if minute {
        death.seconds.iter().for_each(|one| text += &second(one));
    }
    death.events[death.events.len() - shown..].iter().for_each(|one| text += &event(one));
    text
}

/// Sums up the last minute in a line.
fn summary(seconds: &[FlightSecond]) -> String {
    let Some(first) = seconds.first() else { return String::new() };
    let sum = |of: fn(&FlightSecond) -> u32| grouped(seconds.iter().map(|one| u64::from(of(one))).sum());
    let mut text = format!(
        "    in the last {} s: {} requests begun, {} ended, {} failed; {} collections",
        first.ago_s.max(1),
        sum(|one| one.begun),
        sum(|one| one.ended),
        sum(|one| one.failed),
        sum(|one| one.collections)
    );
    let known = |one: &&FlightSecond| one.rss_bytes > 0;
    if let (Some(from), Some(to)) = (seconds.iter().find(known), seconds.iter().rfind(known)) {
        let _ = write!(text, "; memory from {} to {} MiB", mib(from.rss_bytes), mib(to.rss_bytes));
    }
    text + "\n"
}

fn second(one: &FlightSecond) -> String {
    let mut text = format!(
        "    {:>3} s before: {} begun, {} ended",
        one.ago_s,
        grouped(one.begun.into()),
        grouped(one.ended.into())
    );
    // Writing to a String cannot fail.
    if one.failed > 0 {
        let _ = write!(text, ", {} failed", grouped(one.failed.into()));
    }
    if one.collections > 0 {
        let _ = write!(text, ", {} collections", grouped(one.collections.into()));
    }
    if one.rss_bytes > 0 {
        let _ = write!(text, ", {} MiB", mib(one.rss_bytes));
    }
    text + "\n"
}

fn event(one: &FlightEvent) -> String {
    let what = match &*one.event {
        "begin" => "began",
        "end" => "ended",
        "fail" => "failed",
        "told" => "received",
        "raised" => "raised",
        other => other,
    };
    let mut text = format!("    {:>9} before: {what} {}", ago(one.ago_ms), one.text);
    if let Some(ms) = one.took_ms {
        let _ = write!(text, "{} after {ms:.1} ms", if one.text.is_empty() { "a request" } else { "" });
    }
    if let Some(status) = one.status {
        let _ = write!(text, ", status {status}");
    }
    if let Some(ms) = one.queued_ms.filter(|ms| *ms >= 1.0) {
        let _ = write!(text, " after {ms:.1} ms in the queue");
    }
    if one.collections > 0 {
        let _ = write!(text, ", {} collections", one.collections);
    }
    let _ = writeln!(text, " (thread {})", one.thread);
    text
}

fn ago(ms: f64) -> String {
    if ms < 1_000.0 { format!("{ms:.1} ms") } else { format!("{:.1} s", ms / 1_000.0) }
}

fn serving(request: &DeathRequest) -> String {
    let at = request.backtrace.as_deref().and_then(<[String]>::first);
    format!(
        "{} {}, {:.1} s{}{}",
        request.method,
        request.path,
        request.age_ms / 1_000.0,
        if request.answered { ", answered" } else { "" },
        at.map(|line| format!(", last seen at {line}")).unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_death_is_a_line_with_its_requests_below() {
        let death = |worker: u32, in_flight: serde_json::Value| {
            json!({
                "at": "2026-01-31T12:00:00.500Z", "worker": worker, "pid": 100 + worker, "generation": 1, "age_s": 3_725.5,
                "requests": 12_345, "cause": "out_of_memory", "exit_code": null, "signal": 9,
                "peak_rss_bytes": 419_430_400, "rss_bytes": null, "pss_bytes": null, "oom_kills_before": 0,
                "oom_kills_after": 1, "in_flight": in_flight, "text": "",
            })
        };
        let request = json!([{ "method": "POST", "path": "/import", "age_ms": 2_500.0, "answered": true,
            "backtrace": ["app.rb:3:in `read'", "app.rb:9"] }]);
        let deaths: Vec<Death> =
            serde_json::from_value(json!([death(1, request), death(0, json!([]))])).unwrap();
        let text = table(&deaths, false);
        let (first, text) = text.split_once("\n\n").expect("suspects first");
        assert!(first.starts_with("POST /import was in progress in 1 of 1 unexpected deaths with requests, last seen at app.rb:3"), "{first}");
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            lines[1][..],
            [
                "0",
                "2026-01-31",
                "12:00:00",
                "1",
                "101",
                "1",
                "1",
                "h",
                "2",
                "min",
                "12,345",
                "400.0",
                "?",
                "signal",
                "9",
                "out_of_memory"
            ]
        );
        assert_eq!(
            text.lines().nth(2),
            Some("    POST /import, 2.5 s, answered, last seen at app.rb:3:in `read'")
        );
        assert_eq!((lines.len(), lines[3][3]), (4, "0"));
        assert_eq!(table(&[], false), "no worker has ended\n");
        let one = |path: &str, age_ms: f64| json!({ "method": "GET", "path": path, "age_ms": age_ms, "answered": false, "backtrace": null });
        let both = || death(0, json!([one("/busy", 900.0), one("/poison", 2.0)]));
        let deaths: Vec<Death> = serde_json::from_value(json!([both(), both()])).unwrap();
        assert!(
            suspects(&deaths).starts_with("GET /poison was in progress in 2 of 2 "),
            "{}",
            suspects(&deaths)
        );
    }

    #[test]
    fn the_last_events_and_the_minute() {
        let event = |n: u32, event: &str, text: &str, took: Option<f64>| json!({ "ago_ms": 1500.0 - 100.0 * f64::from(n), "event": event, "thread": 0, "text": text, "took_ms": took, "queued_ms": null, "status": null, "collections": 0 });
        let mut events: Vec<_> = (0..6).map(|n| event(n, "end", "posts#show", Some(2.5))).collect();
        events.push(event(6, "begin", "GET /segv", None));
        let death: Death = serde_json::from_value(json!({
            "at": "2026-01-31T12:00:00.500Z", "worker": 0, "pid": 9, "generation": 1, "age_s": 1.0, "requests": 6, "cause": "signal",
            "exit_code": null, "signal": 11, "peak_rss_bytes": 1, "rss_bytes": null, "pss_bytes": null, "oom_kills_before": null,
            "oom_kills_after": null, "in_flight": [], "text": "", "events": events,
            "seconds": [{ "ago_s": 1, "begun": 7, "ended": 6, "failed": 1, "collections": 2, "rss_bytes": 1 << 20, "busy_ms": 15 }],
        }))
        .unwrap();
        let few = table(std::slice::from_ref(&death), false);
        assert_eq!(few.lines().count(), 3 + EVENTS, "{few}");
        assert_eq!(few.lines().last(), Some("     900.0 ms before: began GET /segv (thread 0)"));
        assert!(few.contains("    in the last 1 s: 7 requests begun, 6 ended, 1 failed; 2 collections; memory from 1.0 to 1.0 MiB"), "{few}");
        let all = table(&[death], true);
        assert!(
            all.contains("      1 s before: 7 begun, 6 ended, 1 failed, 2 collections, 1.0 MiB\n"),
            "{all}"
        );
        assert!(all.contains("        1.5 s before: ended posts#show after 2.5 ms (thread 0)\n"), "{all}");
    }
}
