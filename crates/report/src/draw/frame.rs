//! The ground of plots with two axes: ticks, labels, shaded stretches, limits and events. Nothing written there
//! overlaps.

use super::nines::Nines;
use super::ruler::{Ruler, Tick};
use super::sheet::{Anchor, Area, Sheet};
use super::text;
use crate::plot::{Limit, Mark, Span};

/// The axis across.
#[derive(Debug, Clone)]
pub(crate) enum Across {
    Values(Ruler),
    Percentiles(Nines),
}

impl Across {
    fn between(self, from: f64, to: f64) -> Across {
        match self {
            Across::Values(ruler) => Across::Values(ruler.between(from, to)),
            Across::Percentiles(nines) => Across::Percentiles(nines.between(from, to)),
        }
    }

    pub fn at(&self, value: f64) -> Option<f64> {
        match self {
            Across::Values(ruler) => ruler.at(value),
            Across::Percentiles(nines) => nines.at(value),
        }
    }

    fn ticks(&self) -> Vec<Tick> {
        match self {
            Across::Values(ruler) => ruler.ticks(),
            Across::Percentiles(nines) => nines.ticks(),
        }
    }

    fn holds(&self, value: f64) -> bool {
        match self {
            Across::Values(ruler) => ruler.holds(value),
            Across::Percentiles(_) => self.at(value).is_some(),
        }
    }
}

/// What a plot with two axes begins with.
pub(crate) struct Ground<'a> {
    pub x: Across,
    pub x_label: String,
    pub y: Ruler,
    pub y_label: String,
    /// Room at the right, for names of lines.
    pub margin: f64,
    pub spans: &'a [Span],
    pub limits: &'a [Limit],
    pub marks: &'a [Mark],
}

/// The area between the axes.
pub(crate) struct Frame<'a> {
    pub x: Across,
    pub y: Ruler,
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
    limits: &'a [Limit],
    /// Marks that found room for their label: where, in which row, what.
    labels: Vec<(f64, Anchor, f64, String)>,
}

/// Labels of marks take at most so many rows above the plot.
const MARK_ROWS: usize = 3;

impl<'a> Frame<'a> {
    /// Draws the ground under the present height, which grows past the labels of the x axis.
    pub fn draw(sheet: &mut Sheet, ground: Ground<'a>) -> Frame<'a> {
        let plot_height = if sheet.wide() { 270.0 } else { 210.0 };
        if !ground.y_label.is_empty() {
            let label = text::fit(&ground.y_label, sheet.width, sheet.font);
            let y = sheet.height + sheet.leading();
            sheet.text(0.0, y, Anchor::Start, "mute", &label);
            sheet.height = y;
        }
        let ticks = ground.y.ticks();
        let widest = ticks.iter().map(|tick| sheet.text_width(&tick.label)).fold(0.0, f64::max);
        let left = widest.min(sheet.width * 0.3) + 8.0;
        let right = sheet.width - ground.margin.max(6.0);
        let x = ground.x.between(left, right);
        let (labels, rows) = place_marks(sheet, ground.marks, &x);
        let top = sheet.height + sheet.font * 0.8 + rows as f64 * sheet.leading();
        let bottom = top + plot_height;
        let y = ground.y.between(bottom, top);
        sheet.guide = (top, bottom);
        let frame = Frame { x, y, left, right, top, bottom, limits: ground.limits, labels };
        frame.shade(sheet, ground.spans);
        frame.levels(sheet);
        frame.uprights(sheet, &ground.x_label);
        frame.mark_lines(sheet, ground.marks);
        frame
    }

    fn shade(&self, sheet: &mut Sheet, spans: &[Span]) {
        let mut free = self.left;
        for span in spans {
            let (Some(from), Some(to)) =
                (self.x.at(span.from.min(span.to)), self.x.at(span.from.max(span.to)))
            else {
                continue;
            };
            let height = self.bottom - self.top;
            sheet.rect(Area { x: from, y: self.top, width: (to - from).max(1.0), height }, "span");
            let begin = from.max(free) + 4.0;
            let label = text::fit(&span.label, self.right - begin, sheet.font);
            if label == span.label {
                sheet.text(begin, self.top + sheet.font + 1.0, Anchor::Start, "mute halo", &label);
                free = begin + sheet.text_width(&label);
            }
        }
    }

    fn levels(&self, sheet: &mut Sheet) {
        for tick in self.y.ticks() {
            sheet.line((self.left, tick.at), (self.right, tick.at), "grid");
        }
        let mut above = f64::INFINITY;
        for tick in self.y.ticks() {
            if above - tick.at >= sheet.font * 1.1 && !tick.label.is_empty() {
                let label = text::fit(&tick.label, self.left - 6.0, sheet.font);
                sheet.text(self.left - 6.0, tick.at + sheet.font * 0.35, Anchor::End, "mute", &label);
                above = tick.at;
            }
        }
        sheet.line((self.left, self.bottom), (self.right, self.bottom), "axis");
    }

    fn uprights(&self, sheet: &mut Sheet, label: &str) {
        let base = self.bottom + sheet.leading() + 1.0;
        for (tick, begin) in self.labelled_ticks(sheet) {
            sheet.line((tick.at, self.bottom), (tick.at, self.bottom + 4.0), "axis");
            sheet.text(begin, base, Anchor::Start, "mute", &tick.label);
        }
        sheet.height = base + sheet.font * 0.4;
        if !label.is_empty() {
            let label = text::fit(label, sheet.width, sheet.font);
            let y = base + sheet.leading();
            // Centred under the axis, unless that would run off the sheet.
            let half = sheet.text_width(&label) / 2.0;
            let middle = ((self.left + self.right) / 2.0).max(half).min(sheet.width - half);
            sheet.text(middle, y, Anchor::Middle, "mute", &label);
            sheet.height = y + sheet.font * 0.4;
        }
    }

    /// Ticks whose labels do not run into each other, with where each label begins. The last one is kept, because it
    /// tells how far the axis goes.
    fn labelled_ticks(&self, sheet: &Sheet) -> Vec<(Tick, f64)> {
        let mut kept: Vec<(Tick, f64)> = Vec::new();
        for tick in self.x.ticks().into_iter().rev() {
            let width = sheet.text_width(&tick.label);
            let begin = (tick.at - width / 2.0).min(sheet.width - width).max(0.0);
            if kept.last().is_none_or(|(_, next)| begin + width + 8.0 <= *next) {
                kept.push((tick, begin));
            }
        }
        kept.reverse();
        kept
    }

    fn mark_lines(&self, sheet: &mut Sheet, marks: &[Mark]) {
        for at in marks.iter().filter(|mark| self.x.holds(mark.at)).filter_map(|mark| self.x.at(mark.at)) {
            sheet.line((at, self.top - 4.0), (at, self.bottom), "mark");
        }
    }

    /// What lies above the data: limits, and the labels of events.
    pub fn finish(&self, sheet: &mut Sheet) {
        for (x, anchor, row, label) in &self.labels {
            let y = self.top - 7.0 - row * sheet.leading();
            sheet.text(*x, y, *anchor, "ink", label);
        }
        let mut taken: Vec<f64> = Vec::new();
        for limit in self.limits {
            let Some(at) = self.y.at(limit.value) else { continue };
            let inside = self.y.holds(limit.value);
            if inside {
                sheet.line((self.left, at), (self.right, at), "limit");
            }
            let label =
                if inside { limit.label.clone() } else { format!("{} (beyond this plot)", limit.label) };
            let label = text::fit(&label, self.right - self.left - 8.0, sheet.font);
            let mut y = if at - self.top > sheet.leading() { at - 5.0 } else { at + sheet.font + 2.0 };
            while taken.iter().any(|other| (other - y).abs() < sheet.font) {
                y += sheet.leading();
            }
            taken.push(y);
            sheet.text(self.left + 6.0, y, Anchor::Start, "ink halo", &label);
        }
    }
}

/// Gives each mark's label a place right or left of its line, in the lowest row where it is free.
fn place_marks(sheet: &Sheet, marks: &[Mark], x: &Across) -> (Vec<(f64, Anchor, f64, String)>, usize) {
    let mut rows: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut placed = Vec::new();
    for mark in marks.iter().filter(|mark| !mark.label.is_empty() && x.holds(mark.at)) {
        let Some(at) = x.at(mark.at) else { continue };
        let label = text::fit(&mark.label, sheet.width / 2.0, sheet.font);
        let width = sheet.text_width(&label);
        let (begin, anchor, place) = if at + width + 2.0 <= sheet.width {
            (at - 3.0, Anchor::Start, at - 3.0)
        } else {
            (at + 3.0 - width, Anchor::End, at + 3.0)
        };
        let free = |row: &Vec<(f64, f64)>| {
            row.iter().all(|(from, to)| begin > to + 8.0 || begin + width + 8.0 < *from)
        };
        let row = rows.iter().position(free).unwrap_or(rows.len());
        if row == MARK_ROWS {
            continue;
        }
        if row == rows.len() {
            rows.push(Vec::new());
        }
        rows[row].push((begin, begin + width));
        placed.push((place, anchor, row as f64, label));
    }
    (placed, rows.len())
}

/// Values an axis should reach: the data, and limits that are not far beyond them.
pub(crate) fn with_limits(data: &[f64], limits: &[Limit]) -> Vec<f64> {
    let most = data.iter().copied().filter_map(super::ruler::usable).fold(0.0, f64::max);
    let near = |value: &f64| *value <= most * 3.0 || most == 0.0;
    data.iter().copied().chain(limits.iter().map(|limit| limit.value).filter(near)).collect()
}
