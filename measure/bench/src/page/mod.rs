//! The HTML report: results over time, distribution of response times, stages, errors.

mod parts;
mod times;

use report::{Block, KeyFigure, Page, Section, Unit, Verdict};

use crate::document::Document;
use crate::figures::{Summary, per_second};
use crate::validity;
use parts::{by_request, comparison, errors, handshakes, server, stages};
pub(crate) use times::curve;
use times::{over_time, spread};

/// Returns the page. `limits` are latency limits in milliseconds with their texts.
pub(crate) fn page(
    document: &Document,
    limits: &[(f64, String)],
    broken: &[String],
    remarks: &[String],
) -> String {
    let sections = [
        comparison(&document.outcome),
        Some(over_time(document, limits)),
        Some(spread(document, limits)),
        stages(&document.outcome),
        handshakes(&document.outcome),
        errors(document),
        by_request(&document.outcome),
        server(document),
        Some(configuration(document, remarks)),
    ];
    let title =
        document.name.clone().unwrap_or_else(|| format!("Load test of {}", document.description.target()));
    Page {
        title,
        subtitle: format!(
            "{}; {}; {}",
            began(document),
            document.description.target(),
            document.description.sentence()
        ),
        lead: lead(document, broken),
        sections: sections.into_iter().flatten().collect(),
        foot: format!("firebrick bench {}", env!("CARGO_PKG_VERSION")),
        refresh_seconds: 0,
    }
    .to_html()
}

/// Returns the start time, to the second.
fn began(document: &Document) -> String {
    let at = &document.outcome.started_at;
    let second = at.split(['.', 'Z']).next().unwrap_or(at);
    format!("{} UTC", second.replace('T', " "))
}

fn lead(document: &Document, broken: &[String]) -> Vec<KeyFigure> {
    let summary: &Summary = &document.summary;
    let all = summary.requests + summary.errors;
    let note = |name: &str| broken.iter().find(|line| line.starts_with(name)).cloned();
    let verdict = |name: &str| if note(name).is_some() { Verdict::Bad } else { Verdict::Neutral };
    let figure = |label: &str, name: &str, value: String, usual: String| KeyFigure {
        label: label.to_owned(),
        value,
        note: note(name).unwrap_or(usual),
        verdict: verdict(name),
    };
    let errors = KeyFigure {
        label: "errors".to_owned(),
        value: Unit::Count.show(summary.errors as f64),
        note: if all > 0 { Unit::Fraction.show(summary.errors as f64 / all as f64) } else { String::new() },
        verdict: if summary.errors > 0 { Verdict::Bad } else { Verdict::Good },
    };
    let rate =
        format!("{} in {}", Unit::Count.show(summary.requests as f64), Unit::Seconds.show(summary.seconds));
    let mut lead =
        vec![figure("successful responses", "rate", Unit::PerSecond.show(summary.rate_per_s), rate)];
    if !document.outcome.latency.is_empty() {
        let time = |value: f64| Unit::Milliseconds.show(value);
        let latency = &summary.latency_ms;
        lead.push(figure("median response time", "p50", time(latency.p50), String::new()));
        lead.push(figure("99th percentile", "p99", time(latency.p99), String::new()));
        lead.push(figure("slowest response", "max", time(latency.max), String::new()));
    }
    lead.push(errors);
    lead
}

fn configuration(document: &Document, remarks: &[String]) -> Section {
    let (description, outcome) = (&document.description, &document.outcome);
    let mut values = vec![
        ("request".to_owned(), format!("{} {}", description.method, description.target())),
        ("load".to_owned(), description.sentence()),
        ("model".to_owned(), description.model().to_owned()),
        ("began".to_owned(), began(document)),
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
                "{}, {} of {}",
                Unit::Seconds.show(outcome.cpu_seconds),
                Unit::Fraction.show(outcome.busy),
                description.generator()
            ),
        ),
    ];
    values.extend(outcome.server.software.iter().map(|software| ("server".to_owned(), software.clone())));
    values.extend(outcome.server.tls.iter().map(|tls| ("TLS".to_owned(), tls.clone())));
    values.extend((document.runs > 1).then(|| ("merged runs".to_owned(), document.runs.to_string())));
    let notes: Vec<String> = validity::remarks(document)
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
    use crate::samples::{description, document, nothing};

    #[test]
    fn a_page_has_all_parts_and_escapes_text() {
        let broken = vec!["p99>200ms: it is 990 ms".to_owned()];
        let text =
            page(&document(), &[(200.0, "p99>200ms".to_owned())], &broken, &["odd <input>".to_owned()]);
        for part in
            ["Over time", "Response times", "Inside the server", "Errors", "By request", "What was run"]
        {
            assert!(text.contains(part), "{part}");
        }
        assert!(text.contains("GET http://h/&lt;b&gt;") && !text.contains("<input>"));
        assert!(text.contains("it is 990 ms"));
    }

    #[test]
    fn handshakes_have_a_section() {
        let mut document = document();
        assert!(!page(&document, &[], &[], &[]).contains("TLS handshakes"));
        document.outcome.handshakes = Some(crate::samples::handshakes());
        let text = page(&document, &[], &[], &[]);
        for part in ["TLS handshakes", "3 full, 7 resumed", "p95 10 ms", "&lt;HandshakeFailure&gt;"] {
            assert!(text.contains(part), "{part}");
        }
    }

    #[test]
    fn a_run_without_responses_has_a_page() {
        let text = page(&Document::new(None, description(), nothing(), None), &[], &[], &[]);
        assert!(text.contains("Errors") && !text.contains("NaN"));
    }
}
