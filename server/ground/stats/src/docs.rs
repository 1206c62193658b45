//! Makes the tables of docs/stats.md and docs/metrics.md from the table of figures.
//!
//! A comment `<!-- figures: NAME -->` stands before each table, which ends with an empty line. All other text is written by hand.

use crate::counts::CountedKind;
use crate::deaths::{Death, DeathCause};
use crate::figures::{Figure, FigureGroup, Figures, Metric, MetricType};
use crate::handlers::HandlersSnapshot;
use crate::history::Point;
use crate::in_flight::InFlight;
use crate::puma::PumaStatus;
use crate::queue::{QueueClassSnapshot, WaiterSnapshot};
use crate::reloads::{ReforkOutcome, ReloadOutcome, UpgradeOutcome};
use crate::route::RouteSnapshot;
use crate::scrape::Scrape;
use crate::server::{PoolSnapshot, QueueSnapshot, ServerSnapshot, WorkerSnapshot};
use crate::snapshot::Snapshot;
use crate::{CertificateSnapshot, TlsSnapshot};
use std::path::Path;

const MARK: &str = "<!-- figures: ";
/// The parts of the server that have tables of their own.
const APART: [&str; 10] =
    ["workers", "queue", "queue_classes", "waiters", "pools", "handlers", "acme", "tls", "routes", "front"];

fn table(name: &str) -> String {
    match name {
        "server" => fields::<ServerSnapshot>("field", |figure| !APART.contains(&figure.name)),
        "workers" => fields::<WorkerSnapshot>("field", |_| true),
        "deaths" => fields::<Death>("field", |_| true),
        "causes" => kinds::<DeathCause>("cause"),
        "reloads" => kinds::<ReloadOutcome>("outcome"),
        "reforks" => kinds::<ReforkOutcome>("outcome"),
        "upgrades" => kinds::<UpgradeOutcome>("outcome"),
        "queue" => fields::<QueueSnapshot>("field", |_| true),
        "queue_classes" => fields::<QueueClassSnapshot>("field", |_| true),
        "waiters" => fields::<WaiterSnapshot>("field", |_| true),
        "pools" => fields::<PoolSnapshot>("field", |_| true),
        "acme" => fields::<CertificateSnapshot>("field", |_| true),
        "tls" => fields::<TlsSnapshot>("field", |_| true),
        "handlers" => fields::<HandlersSnapshot>("field", |_| true),
        "routes" => fields::<RouteSnapshot>("field", |_| true),
        "counters" => fields::<Snapshot>("field", |figure| !is_histogram(figure)),
        "histograms" => fields::<Snapshot>("field", is_histogram),
        "requests" => fields::<InFlight>("field", |_| true),
        "history" => fields::<Point>("field", |_| true),
        "puma" => fields::<PumaStatus>("Puma's field", |_| true),
        "metrics" => metrics(),
        _ => panic!("there is no table {name:?}"),
    }
}

fn is_histogram(figure: &Figure) -> bool {
    figure.metric.is_some_and(|metric| metric.kind == MetricType::Histogram)
}

/// Returns a table of two columns. Parts that `shown` leaves out have one row.
fn fields<F: Figures>(title: &str, shown: fn(&Figure) -> bool) -> String {
    let mut rows = Vec::new();
    collect("", F::PART, shown, &mut rows);
    lines(title, rows)
}

fn collect(before: &str, part: FigureGroup, shown: fn(&Figure) -> bool, rows: &mut Vec<(String, String)>) {
    for figure in part.figures {
        let flat = figure.part.is_some_and(|part| part.joint.is_empty());
        let name = format!("{before}{}", if flat { "" } else { figure.name });
        let inner = figure.part.filter(|_| shown(figure));
        if !flat && (figure.part.is_some() || shown(figure)) {
            rows.push((name.clone(), sentence(figure.text)));
        }
        if let Some(inner) = inner {
            collect(&format!("{name}{}", inner.joint), inner, |_| true, rows);
        }
    }
}

fn kinds<K: CountedKind>(title: &str) -> String {
    lines(title, K::EVERY.iter().map(|(_, name, text)| ((*name).to_owned(), sentence(text))).collect())
}

fn lines(title: &str, rows: Vec<(String, String)>) -> String {
    let rows = rows.into_iter().map(|(name, text)| format!("| `{name}` | {text} |\n")).collect::<String>();
    format!("| {title} | meaning |\n|---|---|\n{rows}")
}

/// Returns the text of a comment without its last full stop.
fn sentence(comment: &str) -> String {
    comment.trim().trim_end_matches('.').to_owned()
}

/// A family of `/metrics`: its samples' metrics, each with its source, and the labels of their structs.
type Family = (Metric, Vec<(Metric, String)>, Vec<&'static str>);

fn metrics() -> String {
    let mut families = Vec::new();
    families_of(ServerSnapshot::PART, Some(String::new()), &[], &mut families);
    families_of(Scrape::PART, None, &[], &mut families);
    let rows = families.iter().map(row).collect::<String>();
    format!("| name | type | labels | meaning | path in `/stats`, or source |\n|---|---|---|---|---|\n{rows}")
}

/// `before`: what stands before the fields in JSON; `None` if they are in `/metrics` only.
fn families_of(
    part: FigureGroup,
    before: Option<String>,
    around: &[&'static str],
    families: &mut Vec<Family>,
) {
    let labels = [around, part.labels].concat();
    for figure in part.figures {
        let name = before.as_ref().map(|before| format!("{before}{}", figure.name));
        if let Some(metric) = figure.metric {
            let source = name.as_ref().map_or(sentence(figure.text), |name| format!("`.{name}`"));
            match families.iter_mut().find(|(known, ..)| known.name == metric.name) {
                Some((_, samples, _)) => samples.push((metric, source)),
                None => families.push((metric, vec![(metric, source)], labels.clone())),
            }
        }
        if let Some(inner) = figure.part {
            let flat = inner.joint.is_empty();
            let before = if flat { before.clone() } else { name.map(|name| name + inner.joint) };
            families_of(inner, before, &labels, families);
        }
    }
}

fn row((metric, samples, labels): &Family) -> String {
    let (kind, suffix) = match metric.kind {
        MetricType::Counter => ("counter", "_total"),
        MetricType::Gauge => ("gauge", ""),
        MetricType::Histogram => ("histogram", ""),
    };
    let value = |sample: &Metric| sample.labels.first().map_or("", |(_, value)| value);
    let own = metric.labels.first().map(|(label, _)| {
        let values = samples.iter().map(|(sample, _)| value(sample)).filter(|value| !value.is_empty());
        let values = values.map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
        if values.is_empty() { format!("`{label}`") } else { format!("`{label}`: {values}") }
    });
    let labels = labels.iter().map(|label| format!("`{label}`")).chain(own).collect::<Vec<_>>().join("; ");
    let sources = samples.iter().map(|(sample, source)| match value(sample) {
        "" => source.clone(),
        value => format!("{value}: {source}"),
    });
    let (help, sources) = (sentence(metric.help), sources.collect::<Vec<_>>().join("; "));
    format!("| `{}{suffix}` | {kind} | {labels} | {help} | {sources} |\n", metric.name)
}

/// Replaces the tables behind their comments.
fn with_tables(page: &str) -> String {
    let mut made = String::new();
    let mut lines = page.split_inclusive('\n');
    while let Some(line) = lines.next() {
        made.push_str(line);
        if let Some(name) = line.strip_prefix(MARK).and_then(|rest| rest.strip_suffix(" -->\n")) {
            made.push_str(&table(name));
            made.extend(lines.by_ref().find(|line| *line == "\n"));
        }
    }
    made
}

#[test]
fn the_tables_of_the_documentation_are_up_to_date() {
    for name in ["stats.md", "metrics.md"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs").join(name);
        let kept = std::fs::read_to_string(&path).expect("the page can be read");
        let made = with_tables(&kept);
        assert!(made.contains(MARK), "docs/{name} has no table");
        if std::env::var_os("FIREBRICK_REGENERATE").is_some() {
            std::fs::write(&path, &made).expect("the page can be written");
        } else {
            assert!(kept == made, "docs/{name} is old: FIREBRICK_REGENERATE=1 cargo test -p stats docs");
        }
    }
}
