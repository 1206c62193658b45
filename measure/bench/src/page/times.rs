//! Plots of response times: over the run, as a histogram, and as percentiles.

use load::Histogram;
use load::outcome::Second;
use report::{
    Axis, Block, Bucket, Column, Curve, Limit, Line, Lines, Percentiles, Plot, Section, Table, Unit,
    VerticalLine,
};

use crate::document::Document;
use crate::figures::{Figures, ms, percentile_ms};

/// Bars of the histogram per doubling of the time.
const BARS_PER_DOUBLING: f64 = 3.0;

fn points(course: &[Second], value: impl Fn(&Second) -> f64) -> Vec<(f64, f64)> {
    course.iter().enumerate().map(|(index, second)| (index as f64, value(second))).collect()
}

/// Returns rates per second. The last second is usually incomplete: its rate is extrapolated, or left out if
/// it is short, because it contains only stragglers.
fn per_second(course: &[Second], seconds: f64, value: fn(&Second) -> u64) -> Vec<(f64, f64)> {
    let mut rates = points(course, |second| value(second) as f64);
    let rest = seconds - (course.len() as f64 - 1.0);
    if let Some(last) = rates.last_mut().filter(|_| course.len() > 1 && rest < 1.0) {
        last.1 = if rest < 0.5 { f64::NAN } else { last.1 / rest };
    }
    rates
}

fn line(name: &str, points: Vec<(f64, f64)>) -> Line {
    Line { name: name.to_owned(), points, ..Line::default() }
}

pub(super) fn over_time(document: &Document, limits: &[(f64, String)]) -> Section {
    let course = &document.outcome.course;
    // A second without responses is a gap, not a time of 0.
    let time = |value: fn(&Second) -> u64| {
        points(course, |second| if second.ok > 0 { ms(value(second)) } else { f64::NAN })
    };
    let latency = Lines {
        title: "Response time".to_owned(),
        note: "Half of the requests were faster than p50, 99 % were faster than p99.".to_owned(),
        x: Axis::new("time", Unit::Seconds),
        y: Axis::new("response time", Unit::Milliseconds),
        lines: vec![line("p50", time(|s| s.p50)), line("p95", time(|s| s.p95)), line("p99", time(|s| s.p99))],
        limits: limits.iter().map(|(value, label)| Limit { value: *value, label: label.clone() }).collect(),
        ..Lines::default()
    };
    let rate = |value: fn(&Second) -> u64| per_second(course, document.outcome.seconds, value);
    let mut lines = vec![line("successful", rate(|second| second.ok))];
    if document.outcome.errors.total() > 0 {
        lines.push(line("errors", rate(|second| second.errors)));
    }
    if !document.description.is_closed() {
        lines.push(line("due", rate(|second| second.sent)));
    }
    let rate = Lines {
        title: "Responses per second".to_owned(),
        x: Axis::new("time", Unit::Seconds),
        y: Axis::new("per second", Unit::PerSecond),
        lines,
        ..Lines::default()
    };
    Section {
        title: "Over time".to_owned(),
        text: String::new(),
        blocks: vec![Block::Plot(Plot::Lines(latency)), Block::Plot(Plot::Lines(rate))],
    }
}

pub(super) fn spread(document: &Document, limits: &[(f64, String)]) -> Section {
    let outcome = &document.outcome;
    let figures = Figures::of(&outcome.latency);
    let mark = |at: f64, label: &str| VerticalLine { at, label: label.to_owned() };
    let histogram = report::Histogram {
        title: "Distribution of response times".to_owned(),
        note: "Logarithmic scale.".to_owned(),
        x: Axis::new("response time", Unit::Milliseconds).log(),
        counted: "requests".to_owned(),
        buckets: buckets(&outcome.latency),
        marks: vec![mark(figures.p50, "p50"), mark(figures.p95, "p95"), mark(figures.p99, "p99")],
    };
    let closed = document.description.is_closed();
    let first = if closed { "measured" } else { "from due time" };
    let mut curves = vec![curve(first, &outcome.latency)];
    match &outcome.corrected {
        Some(corrected) if closed => curves.push(curve("corrected", corrected)),
        _ if !closed => curves.push(curve("from send time", &outcome.service)),
        _ => {}
    }
    let percentiles = Percentiles {
        title: "Percentiles of the response time".to_owned(),
        note: String::new(),
        y: Axis::new("response time", Unit::Milliseconds),
        curves,
        limits: limits.iter().map(|(value, label)| Limit { value: *value, label: label.clone() }).collect(),
    };
    let text = if closed {
        "Users who wait for a response send nothing meanwhile, so a stall of the server hides the requests that it would have delayed \
         (coordinated omission). The corrected curve includes them."
    } else {
        "Times count from when a request was due. The second curve counts from when it was actually sent; where the two differ, \
         requests waited for a free connection."
    };
    Section {
        title: "Response times".to_owned(),
        text: text.to_owned(),
        blocks: vec![
            Block::Plots(vec![Plot::Histogram(histogram), Plot::Percentiles(percentiles)]),
            Block::Table(times(document)),
        ],
    }
}

fn times(document: &Document) -> Table {
    let outcome = &document.outcome;
    let heads = ["mean", "p50", "p75", "p90", "p95", "p99", "p99.9", "max"];
    let row = |name: &str, histogram: &Histogram| {
        let f = Figures::of(histogram);
        let cells = [f.mean, f.p50, f.p75, f.p90, f.p95, f.p99, f.p999, f.max];
        std::iter::once(name.to_owned()).chain(cells.map(|value| Unit::Milliseconds.show(value))).collect()
    };
    let mut rows: Vec<Vec<String>> = vec![row("response time", &outcome.latency)];
    match &outcome.corrected {
        Some(corrected) if document.description.is_closed() => rows.push(row("corrected", corrected)),
        _ => rows.push(row("from send time", &outcome.service)),
    }
    rows.push(row("time to first byte", &outcome.first_byte));
    if !outcome.connect.is_empty() {
        rows.push(row("opening a connection", &outcome.connect));
    }
    let columns = std::iter::once(Column::text("")).chain(heads.map(Column::number)).collect();
    Table { columns, rows, ..Table::default() }
}

/// Returns bars of equal width on the log scale.
fn buckets(histogram: &Histogram) -> Vec<Bucket> {
    if histogram.is_empty() {
        return Vec::new();
    }
    let index = |us: u64| (us.max(1) as f64).log2().mul_add(BARS_PER_DOUBLING, 1e-9).floor() as usize;
    let edge = |index: usize| (index as f64 / BARS_PER_DOUBLING).exp2() / 1e3;
    let (first, last) = (index(histogram.min()), index(histogram.max()));
    let mut counts = vec![0; last.saturating_sub(first) + 1];
    for step in histogram.iter_recorded() {
        let at = index(step.value_iterated_to()).saturating_sub(first).min(counts.len() - 1);
        counts[at] += step.count_at_value();
    }
    let bucket =
        |(at, count): (usize, u64)| Bucket { from: edge(first + at), to: edge(first + at + 1), count };
    counts.into_iter().enumerate().map(bucket).collect()
}

/// Returns percentiles at equal steps of the stretched axis: each step leaves out the same share of the
/// remaining requests.
pub(crate) fn curve(name: &str, histogram: &Histogram) -> Curve {
    let most = (histogram.len().max(1) as f64).log10().ceil().clamp(1.0, 7.0);
    let steps = 60;
    let tail = |step: i32| 100.0 * (1.0 - 10f64.powf(-most * f64::from(step) / f64::from(steps)));
    let mut points: Vec<(f64, f64)> =
        (0..steps).map(tail).map(|percentile| (percentile, percentile_ms(histogram, percentile))).collect();
    points.push((100.0, ms(histogram.max())));
    Curve { name: name.to_owned(), points }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::histogram;

    #[test]
    fn bars_hold_everything_once() {
        let histogram = histogram((1..5_000).map(|us| us * 7));
        let bars = buckets(&histogram);
        assert_eq!(bars.iter().map(|bar| bar.count).sum::<u64>(), histogram.len());
        assert!(bars.windows(2).all(|pair| pair[0].to <= pair[1].from * (1.0 + 1e-9)));
        assert!(buckets(&Histogram::default()).is_empty());
    }

    #[test]
    fn curves_rise() {
        let curve = curve("x", &histogram((1..5_000).map(|us| us * us)));
        assert!(curve.points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
        assert_eq!(curve.points.last().map(|point| point.0), Some(100.0));
    }

    #[test]
    fn an_incomplete_last_second_is_not_a_drop() {
        let second = |ok| Second { ok, ..Second::default() };
        let rates = |seconds| per_second(&[second(100), second(80)], seconds, |second| second.ok);
        assert_eq!(rates(1.8), vec![(0.0, 100.0), (1.0, 100.0)]);
        assert_eq!(rates(2.0)[1].1, 80.0);
        assert!(rates(1.1)[1].1.is_nan());
        assert_eq!(per_second(&[second(7)], 0.1, |second| second.ok), vec![(0.0, 7.0)]);
    }
}
