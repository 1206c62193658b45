//! The report as a page: what happened over time, how answers were spread, where the time went, what went wrong.

mod parts;
mod times;

use report::{Block, KeyFigure, Page, Section, Unit, Verdict};

use crate::document::Document;
use crate::figures::{Summary, per_second};
use crate::limit;
use parts::{by_request, meanwhile, went_wrong, where_it_went};
use times::{over_time, spread};

/// The page. `limits` are the times that must not be passed, in milliseconds, with their texts.
pub(crate) fn page(
    document: &Document,
    limits: &[(f64, String)],
    broken: &[String],
    remarks: &[String],
) -> String {
    let sections = [
        Some(over_time(document, limits)),
        Some(spread(document, limits)),
        where_it_went(&document.outcome),
        went_wrong(document),
        by_request(&document.outcome),
        meanwhile(document),
        Some(what_was_run(document, remarks)),
    ];
    let title = document.name.clone().unwrap_or_else(|| format!("Load test of {}", document.plan.whom()));
    Page {
        title,
        subtitle: format!("{}; {}; {}", began(document), document.plan.whom(), document.plan.sentence()),
        lead: lead(document, broken),
        sections: sections.into_iter().flatten().collect(),
        foot: format!("firebrick bench {}", env!("CARGO_PKG_VERSION")),
        refresh_seconds: 0,
    }
    .to_html()
}

/// When it began, to the second.
fn began(document: &Document) -> String {
    let at = &document.outcome.started_at;
    let second = at.split(['.', 'Z']).next().unwrap_or(at);
    format!("{} UTC", second.replace('T', " "))
}

fn lead(document: &Document, broken: &[String]) -> Vec<KeyFigure> {
    let summary: &Summary = &document.summary;
    let all = summary.requests + summary.errors;
    let note = |name: &str| broken.iter().find(|line| line.starts_with(name)).cloned();
    let judged = |name: &str| if note(name).is_some() { Verdict::Bad } else { Verdict::Neutral };
    let figure = |label: &str, name: &str, value: String, usual: String| KeyFigure {
        label: label.to_owned(),
        value,
        note: note(name).unwrap_or(usual),
        verdict: judged(name),
    };
    let errors = KeyFigure {
        label: "errors".to_owned(),
        value: Unit::Count.show(summary.errors as f64),
        note: if all > 0 { Unit::Fraction.show(summary.errors as f64 / all as f64) } else { String::new() },
        verdict: if summary.errors > 0 { Verdict::Bad } else { Verdict::Good },
    };
    let rate =
        format!("{} in {}", Unit::Count.show(summary.requests as f64), Unit::Seconds.show(summary.seconds));
    let mut lead = vec![figure("right answers", "rate", Unit::PerSecond.show(summary.rate_per_s), rate)];
    if !document.outcome.latency.is_empty() {
        let time = |value: f64| Unit::Milliseconds.show(value);
        let latency = &summary.latency_ms;
        lead.push(figure("half were answered within", "p50", time(latency.p50), String::new()));
        lead.push(figure("99 % within", "p99", time(latency.p99), String::new()));
        lead.push(figure("the slowest took", "max", time(latency.max), String::new()));
    }
    lead.push(errors);
    lead
}

fn what_was_run(document: &Document, remarks: &[String]) -> Section {
    let (told, outcome) = (&document.plan, &document.outcome);
    let mut values = vec![
        ("request".to_owned(), format!("{} {}", told.method, told.whom())),
        ("how".to_owned(), told.sentence()),
        ("model".to_owned(), told.model().to_owned()),
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
                "{}, {} of its {}",
                Unit::Seconds.show(outcome.cpu_seconds),
                Unit::Fraction.show(outcome.busy),
                if told.threads == 1 { "one thread".to_owned() } else { format!("{} threads", told.threads) }
            ),
        ),
    ];
    values.extend(outcome.server.software.iter().map(|software| ("server".to_owned(), software.clone())));
    values.extend(outcome.server.tls.iter().map(|tls| ("TLS".to_owned(), tls.clone())));
    values.extend((document.runs > 1).then(|| ("runs joined".to_owned(), document.runs.to_string())));
    let notes: Vec<String> = limit::remarks(document)
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
    use crate::samples::{document, nothing, told};

    #[test]
    fn a_page_has_all_parts_and_takes_no_text_for_markup() {
        let broken = vec!["p99>200ms: it is 990 ms".to_owned()];
        let text =
            page(&document(), &[(200.0, "p99>200ms".to_owned())], &broken, &["odd <input>".to_owned()]);
        for part in [
            "Over time",
            "How long answers took",
            "Inside the server",
            "What went wrong",
            "By request",
            "What was run",
        ] {
            assert!(text.contains(part), "{part}");
        }
        assert!(text.contains("GET http://h/&lt;b&gt;") && !text.contains("<input>"));
        assert!(text.contains("it is 990 ms"));
    }

    #[test]
    fn a_run_without_answers_has_a_page_too() {
        let text = page(&Document::new(None, told(), nothing(), None), &[], &[], &[]);
        assert!(text.contains("What went wrong") && !text.contains("NaN"));
    }
}
