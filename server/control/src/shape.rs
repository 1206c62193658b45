//! `firebrick shape`: the objective of response times, whether it holds, the shape, and its last steps.
//!
//! Contract: the exit code is 0 if the server has responded and has an objective, else 1.

use crate::client::{ControlClient, ask, show};
use stats::{ShapeFigures, ShapeSnapshot, ShapeStepSnapshot};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;
use text::people::{grouped, span, wrapped};

/// The widest line, in columns.
const WIDTH: usize = 100;
/// The columns before the text of a step.
const INDENT: usize = 10;

/// Runs `firebrick shape` for the server in `dir`.
pub fn shape_command(dir: &Path, client: &ControlClient, json: bool) -> ExitCode {
    let mut missing = false;
    let text = ask(dir, client, "/shape", json, |shape: Option<ShapeSnapshot>| match shape {
        Some(shape) => table(&shape, SystemTime::now()),
        None => {
            missing = true;
            String::new()
        }
    });
    if missing {
        return show(Err("this server has no objective: set slo, for example slo = \"p95 < 200ms\" in firebrick.toml, and \
                         run `firebrick reload` (docs/shape.md)"
            .to_owned()));
    }
    show(text)
}

fn table(shape: &ShapeSnapshot, now: SystemTime) -> String {
    let mut text = String::new();
    let holds = match (shape.holds, shape.response_ms, shape.missed) {
        (Some(holds), Some(ms), Some(missed)) => format!(
            "{}: {} at the percentile, {} missed it (last 10 s)",
            if holds { "holds" } else { "is broken" },
            milliseconds(ms),
            percent(missed)
        ),
        _ => "no requests in the last 10 s".to_owned(),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "objective {}  {holds}", shape.objective);
    let range = |[least, most]: [u32; 2]| format!("{least}:{most}");
    let _ = writeln!(
        text,
        "shape     {}x{}  workers {}, requests at a time in each {}",
        shape.workers,
        shape.seats,
        range(shape.workers_bounds),
        range(shape.seats_bounds)
    );
    if let Some(last_run) = &shape.last_run {
        let _ = writeln!(text, "start     from the last run: {last_run}");
    }
    let [responses, late, refused] = [shape.responses, shape.late, shape.refused].map(grouped);
    let _ = writeln!(text, "requests  {responses} responses, {late} of them late, {refused} refused");
    if let Some(limit) = shape.wait_limit_ms {
        let _ = writeln!(
            text,
            "overload  requests that would wait for more than {} are refused",
            milliseconds(limit)
        );
    }
    if shape.steps.is_empty() {
        text.push_str("no step so far\n");
    }
    for step in shape.steps.iter().rev() {
        text.push_str(&described(step, now));
    }
    text
}

/// Describes a step: a line with its course, and its reason.
fn described(step: &ShapeStepSnapshot, now: SystemTime) -> String {
    let ago = span(now.duration_since(step.at).unwrap_or_default());
    let course = match step.from == step.to {
        true => step.to.clone(),
        false => format!("{} -> {}", step.from, step.to),
    };
    let figures = match (step.before, step.after) {
        (Some(before), Some(after)) => format!("  {} -> {}", brief(before), brief(after)),
        (Some(one), None) | (None, Some(one)) => format!("  {}", brief(one)),
        (None, None) => String::new(),
    };
    let head = format!("{:<INDENT$}{course} {ago} ago{figures}", step.verdict);
    format!("{head}\n{}\n", wrapped(&step.why, WIDTH, INDENT))
}

fn brief(figures: ShapeFigures) -> String {
    let ShapeFigures { rate, response_ms, missed, app_ms } = figures;
    format!(
        "{rate:.0}/s {} (app {}, {} missed)",
        milliseconds(response_ms),
        milliseconds(app_ms),
        percent(missed)
    )
}

fn milliseconds(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::LastRunShape;
    use std::time::Duration;

    fn shape() -> ShapeSnapshot {
        let figures = |rate, response_ms| ShapeFigures { rate, response_ms, missed: 0.25, app_ms: 20.0 };
        let step = ShapeStepSnapshot {
            at: SystemTime::UNIX_EPOCH,
            verdict: "kept".to_owned(),
            from: "1x1".to_owned(),
            to: "1x2".to_owned(),
            why: "requests waited 90 ms (p95); the throughput grew: 50/s before, 99/s with it".to_owned(),
            before: Some(figures(50.0, 250.0)),
            after: Some(figures(99.0, 120.0)),
        };
        ShapeSnapshot {
            objective: "p95 < 200ms".to_owned(),
            objective_ms: 200.0,
            holds: Some(true),
            response_ms: Some(119.0),
            missed: Some(0.01),
            responses: 12_345,
            late: 45,
            refused: 6,
            last_run: Some(LastRunShape {
                shape: "1x8".to_owned(),
                learnt_at: SystemTime::UNIX_EPOCH + Duration::from_secs(86_400),
            }),
            workers: 1,
            workers_bounds: [1, 2],
            seats: 2,
            seats_bounds: [1, 64],
            wait_limit_ms: Some(120.0),
            kept: 1,
            reverted: 0,
            shrunk: 0,
            forbidden: 0,
            overloads: 1,
            steps: vec![step],
        }
    }

    #[test]
    fn the_table_says_what_holds_and_why() {
        let text = table(&shape(), SystemTime::UNIX_EPOCH + Duration::from_secs(5));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "objective p95 < 200ms  holds: 119 ms at the percentile, 1 % missed it (last 10 s)"
        );
        assert_eq!(lines[1], "shape     1x2  workers 1:2, requests at a time in each 1:64");
        assert_eq!(lines[2], "start     from the last run: 1x8, learnt at 1970-01-02T00:00:00Z");
        assert_eq!(lines[3], "requests  12,345 responses, 45 of them late, 6 refused");
        assert!(lines[4].ends_with("more than 120 ms are refused"));
        assert!(lines[5].starts_with("kept      1x1 -> 1x2 5 s ago  50/s 250 ms"), "{text}");
        assert!(text.contains("the throughput grew"));
        // The figures of a step stay in one line.
        assert!(lines[..5].iter().chain(&lines[6..]).all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn without_load_and_steps_it_says_so() {
        let quiet = ShapeSnapshot {
            holds: None,
            response_ms: None,
            missed: None,
            last_run: None,
            wait_limit_ms: None,
            steps: Vec::new(),
            ..shape()
        };
        let text = table(&quiet, SystemTime::now());
        assert!(
            text.contains("no requests in the last 10 s") && text.ends_with("no step so far\n"),
            "{text}"
        );
        assert!(!text.contains("overload") && !text.contains("last run"));
    }
}
