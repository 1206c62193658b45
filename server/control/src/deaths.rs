//! Formats the deaths of workers for people: a line for each worker, and a line for each request that it was serving.

use text::people::grouped;

use crate::table::{grid, mib, span};
use stats::{CountedKind, Death, DeathRequest};
use std::fmt::Write;

/// Returns the output of `firebrick deaths`.
pub(crate) fn table(deaths: &[Death]) -> String {
    if deaths.is_empty() {
        return "no worker has ended\n".to_owned();
    }
    let titles = "ended at (UTC)|worker|pid|generation|age|requests|peak MiB|PSS MiB|end|cause";
    let titles = titles.split('|').map(str::to_owned).collect();
    let rows: Vec<Vec<String>> = std::iter::once(titles).chain(deaths.iter().map(row)).collect();
    let grid = grid(&rows);
    let mut lines = grid.lines();
    let mut text = lines.next().map(|titles| format!("{titles}\n")).unwrap_or_default();
    for (line, death) in lines.zip(deaths) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{line}");
        for request in &death.in_flight {
            let _ = writeln!(text, "    {}", serving(request));
        }
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
        let text = table(&deaths);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            lines[1][..],
            [
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
        assert_eq!((lines.len(), lines[3][2]), (4, "0"));
        assert_eq!(table(&[]), "no worker has ended\n");
    }
}
