//! The data of a plot as a table, for accessibility and exact values. Hovering shows its rows.

use std::collections::BTreeMap;

use super::frontier::efficient;
use super::nines;
use super::percentiles::steps;
use super::stages::total;
use super::thin;
use crate::page::{Column, Table};
use crate::plot::{Bar, Bars, Frontier, Heat, Histogram, Lines, Percentiles, Plot, Stages};
use crate::unit::Unit;

/// Returns the data as a table, with the rows to which the drawing refers.
pub(crate) fn twin(plot: &Plot) -> Table {
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

fn named(label: &str, otherwise: &str) -> String {
    if label.is_empty() { otherwise.to_owned() } else { label.to_owned() }
}

/// Returns values by x, which is looked up by its bits.
fn by_place(points: impl Iterator<Item = (f64, String)>) -> BTreeMap<u64, String> {
    points.map(|(x, text)| ((x + 0.0).to_bits(), text)).collect()
}

fn lines(plot: &Lines) -> Table {
    let mut columns = vec![Column::number(named(&plot.x.label, "at"))];
    let mut values = Vec::new();
    for line in &plot.lines {
        columns.push(Column::number(&line.name));
        values.push(by_place(line.points.iter().map(|&(x, y)| (x, plot.y.unit.show(y)))));
    }
    for band in &plot.bands {
        columns.push(Column::number(&band.name));
        let show = |low, high| format!("{} to {}", plot.y.unit.show(low), plot.y.unit.show(high));
        values.push(by_place(band.points.iter().map(|&(x, low, high)| (x, show(low, high)))));
    }
    let cell = |values: &BTreeMap<u64, String>, x: f64| {
        values.get(&(x + 0.0).to_bits()).cloned().unwrap_or_default()
    };
    let positions = thin::positions(plot);
    let row = |x: &f64| {
        std::iter::once(plot.x.unit.show(*x)).chain(values.iter().map(|column| cell(column, *x))).collect()
    };
    let all = plot.lines.iter().map(|line| line.points.len()).max().unwrap_or(0);
    let caption =
        if all > positions.len() { format!("{} of {all} rows.", positions.len()) } else { String::new() };
    let events = plot.marks.iter().map(|mark| format!("{}: {}", plot.x.unit.show(mark.at), mark.label));
    let spans = plot.spans.iter().map(|span| {
        format!("{} to {}: {}", plot.x.unit.show(span.from), plot.x.unit.show(span.to), span.label)
    });
    let parts: Vec<String> =
        std::iter::once(caption).filter(|part| !part.is_empty()).chain(events).chain(spans).collect();
    Table {
        caption: parts.join(" · "),
        columns,
        rows: positions.iter().map(row).collect(),
        marked: Vec::new(),
    }
}

fn histogram(plot: &Histogram) -> Table {
    let all: f64 = plot.buckets.iter().map(|bucket| bucket.count as f64).sum();
    let columns = ["from", "below"].map(Column::number).into_iter();
    let columns =
        columns.chain([Column::number(named(&plot.counted, "count")), Column::number("share")]).collect();
    let rows = plot.buckets.iter().map(|bucket| {
        let share = bucket.count as f64 / all.max(1.0);
        let count = Unit::Count.show(bucket.count as f64);
        vec![plot.x.unit.show(bucket.from), plot.x.unit.show(bucket.to), count, Unit::Fraction.show(share)]
    });
    let marks: Vec<String> =
        plot.marks.iter().map(|mark| format!("{}: {}", mark.label, plot.x.unit.show(mark.at))).collect();
    Table { caption: marks.join(" · "), columns, rows: rows.collect(), marked: Vec::new() }
}

fn percentiles(plot: &Percentiles) -> Table {
    let mut columns = vec![Column::number("share")];
    columns.extend(plot.curves.iter().map(|curve| Column::number(named(&curve.name, "value"))));
    let curves: Vec<_> = plot
        .curves
        .iter()
        .map(|curve| by_place(curve.points.iter().map(|&(share, value)| (share, plot.y.unit.show(value)))))
        .collect();
    let cell = |curve: &BTreeMap<u64, String>, share: f64| {
        curve.get(&(share + 0.0).to_bits()).cloned().unwrap_or_default()
    };
    let rows = steps(plot).into_iter().map(|share| {
        std::iter::once(nines::label(share)).chain(curves.iter().map(|curve| cell(curve, share))).collect()
    });
    Table { caption: String::new(), columns, rows: rows.collect(), marked: Vec::new() }
}

fn stages(plot: &Stages) -> Table {
    let mut columns = vec![Column::text("")];
    columns.extend(plot.parts.iter().map(Column::number));
    columns.push(Column::number("together"));
    let rows = plot.stacks.iter().map(|stack| {
        let part =
            |index: usize| stack.values.get(index).map(|value| plot.x.unit.show(*value)).unwrap_or_default();
        let parts = (0..plot.parts.len()).map(part);
        std::iter::once(stack.label.clone())
            .chain(parts)
            .chain([plot.x.unit.show(total(plot, stack))])
            .collect()
    });
    Table { caption: String::new(), columns, rows: rows.collect(), marked: Vec::new() }
}

fn bars(plot: &Bars) -> Table {
    let count = plot.groups.iter().map(|group| group.bars.len()).max().unwrap_or(0);
    let mut columns = vec![Column::text("")];
    let name = |index: usize| plot.series.get(index).map_or(plot.x.label.as_str(), String::as_str);
    columns.extend((0..count).map(|index| Column::number(named(name(index), "value"))));
    let rows = plot.groups.iter().map(|group| {
        let bars = group.bars.iter().map(|bar| bar_text(&plot.x.unit, bar));
        std::iter::once(group.label.clone()).chain(bars).collect()
    });
    let marked =
        plot.groups.iter().enumerate().filter(|(_, group)| group.marked).map(|(row, _)| row).collect();
    Table { caption: String::new(), columns, rows: rows.collect(), marked }
}

fn bar_text(unit: &Unit, bar: &Bar) -> String {
    let mut text = if bar.value.is_finite() { unit.show(bar.value) } else { String::new() };
    if let (Some(low), Some(high)) = (bar.low, bar.high) {
        text += &format!(" ({} to {})", unit.show(low), unit.show(high));
    }
    match (text.is_empty(), bar.note.is_empty()) {
        (_, true) => text,
        (true, false) => bar.note.clone(),
        (false, false) => format!("{text}, {}", bar.note),
    }
}

fn frontier(plot: &Frontier) -> Table {
    let mut columns = vec![Column::text(""), Column::number(&plot.x.label), Column::number(&plot.y.label)];
    let kinds = plot.series.len() > 1;
    if kinds {
        columns.push(Column::text("kind"));
    }
    columns.push(Column::text("remark"));
    let best = efficient(plot);
    let rows = plot.spots.iter().enumerate().map(|(index, spot)| {
        let mut row = vec![spot.label.clone(), plot.x.unit.show(spot.x), plot.y.unit.show(spot.y)];
        if kinds {
            row.push(plot.series.get(spot.series).cloned().unwrap_or_default());
        }
        let remarks = [(spot.chosen, "chosen"), (best.contains(&index), "on the frontier")];
        let remarks: Vec<_> = remarks.iter().filter(|(holds, _)| *holds).map(|(_, remark)| *remark).collect();
        row.push(remarks.join(", "));
        row
    });
    let marked = plot.spots.iter().enumerate().filter(|(_, spot)| spot.chosen).map(|(row, _)| row).collect();
    Table { caption: String::new(), columns, rows: rows.collect(), marked }
}

/// Returns a table with one row per cell, for hovering.
fn heat(plot: &Heat) -> Table {
    let columns = vec![
        Column::text(named(&plot.row_label, "row")),
        Column::text(named(&plot.column_label, "column")),
        Column::number(named(&plot.measure, "value")),
        Column::text("remark"),
    ];
    let mut table = Table { columns, ..Table::default() };
    for (row, row_name) in plot.rows.iter().enumerate() {
        for (column, column_name) in plot.columns.iter().enumerate() {
            let cell = plot.cells.get(row).and_then(|cells| cells.get(column));
            let value = cell.map(|cell| plot.unit.show(cell.value)).unwrap_or_default();
            let note = cell.map(|cell| cell.note.clone()).unwrap_or_default();
            if cell.is_some_and(|cell| cell.chosen) {
                table.marked.push(table.rows.len());
            }
            table.rows.push(vec![row_name.clone(), column_name.clone(), value, note]);
        }
    }
    table
}
