//! Describes a plot in a sentence or two, as its text alternative.

use super::frontier::efficient;
use super::stages::total;
use crate::plot::{Bars, Better, Frontier, Heat, Histogram, Lines, Percentiles, Plot, Stages};
use crate::unit::Unit;

/// The longest list; longer ones are abbreviated.
const LISTED: usize = 8;

pub(crate) fn describe(plot: &Plot) -> String {
    if plot.is_empty() {
        return "No data.".to_owned();
    }
    match plot {
        Plot::Lines(plot) => lines(plot),
        Plot::Histogram(plot) => histogram(plot),
        Plot::Percentiles(plot) => percentiles(plot),
        Plot::Stages(plot) => stages(plot),
        Plot::Bars(plot) => bars(plot),
        Plot::Frontier(plot) => frontier(plot),
        Plot::Heat(plot) => heat(plot),
    }
}

fn list(kind: &str, items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    let more = items.len().saturating_sub(LISTED);
    let mut text = format!("{kind}: {}", items[..items.len().min(LISTED)].join("; "));
    if more > 0 {
        text += &format!("; and {more} more");
    }
    text + "."
}

fn ends(values: impl Iterator<Item = f64>, unit: &Unit) -> String {
    let finite = values.filter(|value| value.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    if low > high { "no data".to_owned() } else { format!("{} to {}", unit.show(low), unit.show(high)) }
}

fn lines(plot: &Lines) -> String {
    let kind = format!("Lines of {} over {}", plot.y.label, plot.x.label);
    list(
        &kind,
        plot.lines.iter().map(|line| {
            format!("{} from {}", line.name, ends(line.points.iter().map(|point| point.1), &plot.y.unit))
        }),
    )
}

fn histogram(plot: &Histogram) -> String {
    let all: f64 = plot.buckets.iter().map(|bucket| bucket.count as f64).sum();
    let all = Unit::Count.show(all);
    let filled = plot.buckets.iter().filter(|bucket| bucket.count > 0);
    let ends = ends(filled.flat_map(|bucket| [bucket.from, bucket.to]), &plot.x.unit);
    let marks = plot.marks.iter().map(|mark| format!("{} at {}", mark.label, plot.x.unit.show(mark.at)));
    let text = format!("Histogram of {all} {} from {ends}", plot.counted);
    if plot.marks.is_empty() { format!("{text}.") } else { list(&text, marks) }
}

fn percentiles(plot: &Percentiles) -> String {
    list(
        "Percentile curves",
        plot.curves.iter().map(|curve| {
            let known =
                curve.points.iter().filter(|(percentile, _)| [50.0, 99.0, 100.0].contains(percentile));
            let points = known.map(|(percentile, value)| {
                format!("{} {}", super::nines::label(*percentile), plot.y.unit.show(*value))
            });
            let points: Vec<_> = points.collect();
            if points.is_empty() {
                curve.name.clone()
            } else {
                format!("{} {}", curve.name, points.join(", "))
            }
        }),
    )
}

fn stages(plot: &Stages) -> String {
    let kind = format!("Bars of {}, divided into {}", plot.x.label, plot.parts.join(", "));
    list(
        &kind,
        plot.stacks.iter().map(|stack| format!("{} {}", stack.label, plot.x.unit.show(total(plot, stack)))),
    )
}

fn bars(plot: &Bars) -> String {
    let kind = format!("Bars of {}", plot.x.label);
    list(
        &kind,
        plot.groups.iter().map(|group| {
            let bars = group.bars.iter().map(|bar| {
                if bar.value.is_finite() { plot.x.unit.show(bar.value) } else { bar.note.clone() }
            });
            format!("{} {}", group.label, bars.collect::<Vec<_>>().join(", "))
        }),
    )
}

fn frontier(plot: &Frontier) -> String {
    let best = efficient(plot);
    let spots = best.iter().map(|index| &plot.spots[*index]);
    let kind =
        format!("{} points of {} over {}; on the frontier", plot.spots.len(), plot.y.label, plot.x.label);
    let text = list(
        &kind,
        spots.map(|spot| {
            format!("{} with {} and {}", spot.label, plot.x.unit.show(spot.x), plot.y.unit.show(spot.y))
        }),
    );
    match plot.spots.iter().find(|spot| spot.chosen) {
        Some(spot) => format!("{text} Chosen: {}.", spot.label),
        None => text,
    }
}

fn heat(plot: &Heat) -> String {
    let cells = plot.cells.iter().flatten().map(|cell| cell.value);
    let better = if plot.better == Better::More { "more is better" } else { "less is better" };
    format!("Table of {} from {}, {better}.", plot.measure, ends(cells, &plot.unit))
}
