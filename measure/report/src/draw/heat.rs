//! Draws heat maps: tables with tinted cells.

use super::ruler::usable;
use super::sheet::{Anchor, Area, Sheet};
use super::text;
use crate::figure::significant;
use crate::plot::{Better, Cell, Heat};

/// Number of tints.
const TINTS: f64 = 6.0;

pub(crate) fn draw(sheet: &mut Sheet, plot: &Heat) {
    let columns = plot.columns.len().max(1) as f64;
    let notes = plot.cells.iter().flatten().any(|cell| !cell.note.is_empty());
    let widest = plot.rows.iter().map(|row| sheet.text_width(row)).fold(0.0, f64::max);
    let left = widest.min(sheet.width * 0.25) + 10.0;
    let width = ((sheet.width - left) / columns).min(120.0);
    let height = if notes { sheet.leading() * 2.0 + 12.0 } else { sheet.leading() + 16.0 };
    for line in text::wrap(&heading(plot), sheet.width, sheet.font, 3) {
        sheet.height += sheet.leading();
        sheet.text(0.0, sheet.height, Anchor::Start, "mute", &line);
    }
    let second = sheet.height + sheet.leading();
    let top = second + 8.0;
    for (index, column) in plot.columns.iter().enumerate() {
        let middle = left + width * (index as f64 + 0.5);
        let column = text::fit(column, width - 4.0, sheet.font);
        sheet.text(middle, second, Anchor::Middle, "mute", &column);
    }
    let one = one(plot);
    for (row, label) in plot.rows.iter().enumerate() {
        let y = top + height * row as f64;
        let label = text::fit(label, left - 10.0, sheet.font);
        sheet.text(left - 8.0, y + height / 2.0 + sheet.font * 0.35, Anchor::End, "mute", &label);
        let cells = plot.cells.get(row).map_or(&[][..], Vec::as_slice);
        for (column, cell) in cells.iter().take(plot.columns.len()).enumerate() {
            let area = Area { x: left + width * column as f64, y, width, height };
            sheet.row(row * plot.columns.len() + column, |sheet| draw_cell(sheet, plot, cell, area, one));
        }
    }
    sheet.height = top + height * plot.rows.len() as f64 + 2.0;
    // Frames are drawn last, so that no neighbour covers them.
    for (row, cells) in plot.cells.iter().enumerate().take(plot.rows.len()) {
        for (column, _) in cells.iter().enumerate().take(plot.columns.len()).filter(|(_, cell)| cell.chosen) {
            let area = Area { x: left + width * column as f64, y: top + height * row as f64, width, height };
            sheet.rect(area, "ring");
        }
    }
}

/// Returns the captions of cells, rows and columns.
fn heading(plot: &Heat) -> String {
    let mut parts = vec![plot.unit.words(&plot.measure, largest(plot))];
    if !plot.row_label.is_empty() {
        parts.push(format!("rows: {}", plot.row_label));
    }
    if !plot.column_label.is_empty() {
        parts.push(format!("columns: {}", plot.column_label));
    }
    parts.join(" · ")
}

fn values(plot: &Heat) -> impl Iterator<Item = f64> + '_ {
    plot.cells.iter().flatten().filter_map(|cell| usable(cell.value))
}

fn largest(plot: &Heat) -> f64 {
    values(plot).map(f64::abs).fold(0.0, f64::max)
}

/// Returns one of the displayed unit in base units; all cells use the same unit.
fn one(plot: &Heat) -> f64 {
    plot.unit.one(largest(plot)).0
}

fn draw_cell(sheet: &mut Sheet, plot: &Heat, cell: &Cell, area: Area, one: f64) {
    let tint = tint(plot, cell.value);
    let inner = Area { x: area.x + 1.0, y: area.y + 1.0, width: area.width - 2.0, height: area.height - 2.0 };
    sheet.rect(inner, &format!("h{}", tint.map_or("x".to_owned(), |tint| tint.to_string())));
    let class = |strong: &str| format!("{strong} t{}", tint.map_or("x".to_owned(), |tint| tint.to_string()));
    let room = area.width - 6.0;
    let figure = usable(cell.value).map(|value| figure(sheet, value / one, room)).unwrap_or_default();
    let lines: Vec<&str> =
        [figure.as_str(), cell.note.as_str()].into_iter().filter(|line| !line.is_empty()).collect();
    let middle = area.y + area.height / 2.0 + sheet.font * 0.35;
    let first = middle - (lines.len().max(1) - 1) as f64 * sheet.leading() / 2.0;
    for (index, line) in lines.iter().enumerate() {
        let line = text::fit(line, room, sheet.font);
        let strong = if cell.chosen && index == 0 { "strong" } else { "" };
        let y = first + index as f64 * sheet.leading();
        sheet.text(area.x + area.width / 2.0, y, Anchor::Middle, &class(strong), &line);
    }
}

/// Returns a value that fits its cell: in full, or in thousands or millions. Returns an empty text if it does
/// not fit, because a truncated number would be wrong.
fn figure(sheet: &Sheet, value: f64, room: f64) -> String {
    let choices = [(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")]
        .into_iter()
        .filter(|(one, _)| *one == 1.0 || value.abs() >= *one);
    let mut texts = choices.map(|(one, sign)| format!("{}{sign}", significant(value / one)));
    texts.find(|text| sheet.text_width(text) <= room).unwrap_or_default()
}

/// Returns the tint of a cell, 0 to 6; stronger is better.
fn tint(plot: &Heat, value: f64) -> Option<u32> {
    let value = usable(value)?;
    let (low, high) = values(plot).fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    let share = if high > low { (value - low) / (high - low) } else { 0.5 };
    let share = if plot.better == Better::More { share } else { 1.0 - share };
    Some((share * TINTS).round() as u32)
}
