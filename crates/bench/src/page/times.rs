//! Times as plots: over the run, how often each came, which share was answered within which.

use load::Histogram;
use load::outcome::Second;
use report::{
    Axis, Block, Bucket, Column, Curve, Limit, Line, Lines, Mark, Percentiles, Plot, Section, Table, Unit,
};

use crate::document::Document;
use crate::figures::{Figures, ms, percentile_ms};

/// Bars of a histogram for each doubling of the time.
const BARS_PER_DOUBLING: f64 = 3.0;

fn points(course: &[Second], value: impl Fn(&Second) -> f64) -> Vec<(f64, f64)> {
    course.iter().enumerate().map(|(index, second)| (index as f64, value(second))).collect()
}

/// How many per second. The last second is seldom a whole one: what is left of it counts for so much, and a short rest
/// for nothing, as there are only stragglers in it.
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
    // A second without answers is a gap, not a time of zero.
    let time = |value: fn(&Second) -> u64| {
        points(course, |second| if second.ok > 0 { ms(value(second)) } else { f64::NAN })
    };
    let latency = Lines {
        title: "Time to answer".to_owned(),
        note: "Half of the requests were faster than p50, 99 of 100 faster than p99.".to_owned(),
        x: Axis::new("time", Unit::Seconds),
        y: Axis::new("time to answer", Unit::Milliseconds),
        lines: vec![line("p50", time(|s| s.p50)), line("p95", time(|s| s.p95)), line("p99", time(|s| s.p99))],
        limits: limits.iter().map(|(value, label)| Limit { value: *value, label: label.clone() }).collect(),
        ..Lines::default()
    };
    let rate = |value: fn(&Second) -> u64| per_second(course, document.outcome.seconds, value);
    let mut lines = vec![line("right answers", rate(|second| second.ok))];
    if document.outcome.errors.total() > 0 {
        lines.push(line("errors", rate(|second| second.errors)));
    }
    if !document.plan.is_closed() {
        lines.push(line("due", rate(|second| second.sent)));
    }
    let rate = Lines {
        title: "Answers per second".to_owned(),
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
    let mark = |at: f64, label: &str| Mark { at, label: label.to_owned() };
    let histogram = report::Histogram {
        title: "How often each time came".to_owned(),
        note: "The scale doubles at even steps, so that the slow ones are seen as well.".to_owned(),
        x: Axis::new("time to answer", Unit::Milliseconds).log(),
        counted: "requests".to_owned(),
        buckets: buckets(&outcome.latency),
        marks: vec![mark(figures.p50, "p50"), mark(figures.p95, "p95"), mark(figures.p99, "p99")],
    };
    let closed = document.plan.is_closed();
    let first = if closed { "as seen" } else { "from when it was due" };
    let mut curves = vec![curve(first, &outcome.latency)];
    match &outcome.corrected {
        Some(corrected) if closed => curves.push(curve("if users had not waited for each other", corrected)),
        _ if !closed => curves.push(curve("from when it was sent", &outcome.service)),
        _ => {}
    }
    let percentiles = Percentiles {
        title: "Share of requests answered within a time".to_owned(),
        note: String::new(),
        y: Axis::new("time to answer", Unit::Milliseconds),
        curves,
        limits: limits.iter().map(|(value, label)| Limit { value: *value, label: label.clone() }).collect(),
    };
    let text = if closed {
        "Users who wait for an answer send nothing meanwhile, so a stall of the server hides the requests that it would have delayed. \
         The second curve puts them back."
    } else {
        "Times count from when a request was due. The second curve counts from when it was really sent; where the two part, \
         requests waited for a free connection."
    };
    Section {
        title: "How long answers took".to_owned(),
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
    let mut rows: Vec<Vec<String>> = vec![row("time to answer", &outcome.latency)];
    match &outcome.corrected {
        Some(corrected) if document.plan.is_closed() => rows.push(row("if users had not waited", corrected)),
        _ => rows.push(row("from sending", &outcome.service)),
    }
    rows.push(row("time to the first byte", &outcome.first_byte));
    if !outcome.connect.is_empty() {
        rows.push(row("opening a connection", &outcome.connect));
    }
    let columns = std::iter::once(Column::text("")).chain(heads.map(Column::number)).collect();
    Table { columns, rows, ..Table::default() }
}

/// Bars of equal width on the log scale.
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

/// Percentiles at even steps of the stretched axis: each step leaves out the same share of what is left.
fn curve(name: &str, histogram: &Histogram) -> Curve {
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
    fn a_rest_of_a_second_is_no_drop() {
        let second = |ok| Second { ok, ..Second::default() };
        let rates = |seconds| per_second(&[second(100), second(80)], seconds, |second| second.ok);
        assert_eq!(rates(1.8), vec![(0.0, 100.0), (1.0, 100.0)]);
        assert_eq!(rates(2.0)[1].1, 80.0);
        assert!(rates(1.1)[1].1.is_nan());
        assert_eq!(per_second(&[second(7)], 0.1, |second| second.ok), vec![(0.0, 7.0)]);
    }
}
