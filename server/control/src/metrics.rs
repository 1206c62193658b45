//! `/metrics`: the figures that have a metric, in Prometheus's formats.
//!
//! There are two formats: OpenMetrics 1.0, and the text format 0.0.4 for older readers. The names are those of the table of figures
//! ([`stats::Figure`]); docs/metrics.md lists them.
//!
//! Contract:
//! 1. Pure. Names carry their unit; every family has HELP and TYPE and is contiguous.
//! 2. Label values never come from clients. The most series are one per worker, service or certificate, and `stats.route_metrics` routes that the app
//!    has named.
//! 3. Counters never fall while the server runs, except for those of routes that have given way to others. Figures of a process that can be replaced are gauges.

use stats::{DurationSummary, Label, Metric, MetricType, RecentLoad, ServerSnapshot};
use std::fmt::{Display, Write};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    OpenMetrics,
    /// The text format 0.0.4.
    Text,
}

impl Format {
    /// Chooses the format by an `Accept` field: OpenMetrics if it is named and no other is preferred.
    pub(crate) fn accepted(accept: &str) -> Format {
        let quality = |wanted: &str| {
            let ranges = accept.split(',').filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let name = parts.next()?;
                let q = parts.find_map(|part| part.strip_prefix("q=")).and_then(|q| q.parse().ok());
                name.eq_ignore_ascii_case(wanted).then_some(q.unwrap_or(1.0))
            });
            ranges.fold(0.0_f64, f64::max)
        };
        let open = quality("application/openmetrics-text");
        if open > 0.0 && open >= quality("text/plain") { Format::OpenMetrics } else { Format::Text }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Renders all families. `recent`: the load of the last seconds.
pub(crate) fn render(server: &ServerSnapshot, recent: &RecentLoad, ready: bool, format: Format) -> String {
    let mut page = Page { families: Vec::with_capacity(64), format };
    stats::metrics(server, recent, ready, &mut page);
    let mut text = page.families.into_iter().map(|(_, samples)| samples).collect::<String>();
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

/// The families by name, each with its text.
struct Page {
    families: Vec<(&'static str, String)>,
    format: Format,
}

impl Page {
    /// Returns the text of the metric's family, which begins with its HELP and TYPE.
    fn family(&mut self, metric: &Metric) -> &mut String {
        let known = self.families.iter().position(|(name, _)| *name == metric.name);
        let index = known.unwrap_or_else(|| {
            self.families.push((metric.name, self.head(metric)));
            self.families.len() - 1
        });
        &mut self.families[index].1
    }

    fn head(&self, metric: &Metric) -> String {
        let open = self.format == Format::OpenMetrics;
        let (kind, suffix) = match metric.kind {
            MetricType::Counter if open => ("counter", ""),
            MetricType::Counter => ("counter", "_total"),
            MetricType::Gauge => ("gauge", ""),
            MetricType::Histogram => ("histogram", ""),
        };
        let (name, help) = (metric.name, metric.help.trim().trim_end_matches('.'));
        let head = format!("# HELP {name}{suffix} {help}.\n# TYPE {name}{suffix} {kind}\n");
        let unit = name.rsplit('_').next().filter(|unit| open && ["seconds", "bytes"].contains(unit));
        unit.map_or(head.clone(), |unit| format!("{head}# UNIT {name} {unit}\n"))
    }
}

impl stats::Page for Page {
    fn sample(&mut self, metric: &'static Metric, labels: &[Label<'_>], value: &dyn Display) {
        let text = self.family(metric);
        text.push_str(metric.name);
        text.push_str(if metric.kind == MetricType::Counter { "_total" } else { "" });
        let fixed = metric.labels.iter().filter(|(_, value)| !value.is_empty()).copied();
        let mut open = "{";
        for (label, value) in labels.iter().copied().chain(fixed) {
            text.extend([open, label, "=\""]);
            push_escaped(text, value);
            text.push('"');
            open = ",";
        }
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} {value}", if open == "," { "}" } else { "" });
    }

    fn histogram(&mut self, metric: &'static Metric, times: &DurationSummary) {
        let (name, text) = (metric.name, self.family(metric));
        // Writing to a String cannot fail.
        for bucket in &times.buckets {
            let _ = writeln!(text, "{name}_bucket{{le=\"{:?}\"}} {}", bucket.le / 1e3, bucket.count);
        }
        let (count, sum) = (times.count, times.sum / 1e3);
        let _ =
            writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}");
    }
}

fn push_escaped(text: &mut String, label: &str) {
    for letter in label.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            plain => text.push(plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_negotiated() {
        use Format::{OpenMetrics, Text};
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        let old = "text/plain;version=0.0.4;q=1,*/*;q=0.1";
        let unwilling = "application/openmetrics-text;q=0, */*";
        let prefers_text = "application/openmetrics-text;q=0.2, text/plain";
        for (accept, wanted) in [
            (prometheus, OpenMetrics),
            ("application/openmetrics-text", OpenMetrics),
            (old, Text),
            ("*/*", Text),
            ("", Text),
            (unwilling, Text),
            (prefers_text, Text),
        ] {
            assert_eq!(Format::accepted(accept), wanted, "{accept}");
        }
    }

    #[test]
    fn labels_are_escaped() {
        const ONE: Metric = Metric {
            name: "one",
            kind: MetricType::Counter,
            labels: &[("z", "own"), ("b", "")],
            help: " Help.",
            field: "",
        };
        let mut page = Page { families: Vec::new(), format: Format::Text };
        let labels = [("a", "a\"b\\c\nd"), ("b", ""), ("c", "\n")];
        stats::Page::sample(&mut page, &ONE, &labels, &1);
        stats::Page::sample(&mut page, &ONE, &[], &0.5);
        let expected = "# HELP one_total Help.\n# TYPE one_total counter\n\
                        one_total{a=\"a\\\"b\\\\c\\nd\",b=\"\",c=\"\\n\",z=\"own\"} 1\none_total{z=\"own\"} 0.5\n";
        assert_eq!(page.families, [("one", expected.to_owned())]);
    }
}
