//! The frame of plots with two axes: ticks, labels, shaded spans, limits and events. Labels never overlap.

use super::nines::Nines;
use super::ruler::{Ruler, Tick};
use super::sheet::{Anchor, Area, Sheet};
use super::text;
use crate::plot::{Limit, Span, VerticalLine};

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

/// The parts of a plot with two axes.
pub(crate) struct Ground<'a> {
    pub x: Across,
    pub x_label: String,
    pub y: Ruler,
    pub y_label: String,
    /// Room at the right for the names of lines.
    pub margin: f64,
    pub spans: &'a [Span],
    pub limits: &'a [Limit],
    pub marks: &'a [VerticalLine],
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
    /// The labels of marks that found room.
    labels: Vec<Label>,
    /// Positions through which lines of data pass.
    ink: Vec<(f64, f64)>,
}

/// The most rows of mark labels above the plot.
const MARK_ROWS: usize = 3;

impl<'a> Frame<'a> {
    /// Draws the frame below the current height, which grows to include the labels of the x axis.
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
        let top =
            sheet.height + sheet.font * if rows == 0 { 1.1 } else { 0.8 } + rows as f64 * sheet.leading();
        let bottom = top + plot_height;
        let y = ground.y.between(bottom, top);
        sheet.guide = (top, bottom);
        let frame = Frame { x, y, left, right, top, bottom, limits: ground.limits, labels, ink: Vec::new() };
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
            // Centred under the axis, unless that would exceed the sheet.
            let half = sheet.text_width(&label) / 2.0;
            let middle = ((self.left + self.right) / 2.0).max(half).min(sheet.width - half);
            sheet.text(middle, y, Anchor::Middle, "mute", &label);
            sheet.height = y + sheet.font * 0.4;
        }
    }

    /// Returns ticks whose labels do not overlap, with the start of each label. The last tick is always kept,
    /// because it shows the end of the axis; round values are preferred.
    fn labelled_ticks(&self, sheet: &Sheet) -> Vec<(Tick, f64)> {
        let mut kept: Vec<(Tick, f64)> = Vec::new();
        let (first, others): (Vec<Tick>, Vec<Tick>) =
            self.x.ticks().into_iter().rev().partition(|tick| tick.first);
        for tick in first.into_iter().chain(others) {
            let width = sheet.text_width(&tick.label);
            let begin = (tick.at - width / 2.0).min(sheet.width - width).max(0.0);
            let apart = |(other, at): &(Tick, f64)| {
                begin + width + 8.0 <= *at || at + sheet.text_width(&other.label) + 8.0 <= begin
            };
            if kept.iter().all(apart) {
                kept.push((tick, begin));
            }
        }
        kept
    }

    /// Draws the line of each mark up to its label.
    fn mark_lines(&self, sheet: &mut Sheet, marks: &[VerticalLine]) {
        for mark in marks.iter().filter(|mark| self.x.holds(mark.at)) {
            let Some(at) = self.x.at(mark.at) else { continue };
            let row = self.labels.iter().find(|label| label.at == at).map_or(0.0, |label| label.row as f64);
            sheet.line((at, self.top - 5.0 - row * sheet.leading()), (at, self.bottom), "mark");
        }
    }

    /// Records the course of a line, so that no label covers it.
    pub fn inked(&mut self, from: (f64, f64), to: (f64, f64)) {
        let steps = ((to.0 - from.0).abs().max((to.1 - from.1).abs()) / 4.0).ceil().clamp(1.0, 200.0);
        let between = |from: f64, to: f64, step: f64| from + (to - from) * step / steps;
        self.ink.extend((0..=steps as u32).map(|step| {
            let step = f64::from(step);
            (between(from.0, to.0, step), between(from.1, to.1, step))
        }));
    }

    /// Returns the upper end of the area for labels of data.
    pub fn ceiling(&self, sheet: &Sheet) -> f64 {
        if self.labels.is_empty() { self.top - sheet.font } else { self.top - 2.0 }
    }

    /// Returns whether a line of data passes through an area.
    pub fn is_inked(&self, left: f64, top: f64, right: f64, bottom: f64) -> bool {
        self.ink.iter().any(|(x, y)| (left..=right).contains(x) && (top..=bottom).contains(y))
    }

    /// Draws the parts above the data: limits, and the labels of events. Returns the areas of the limits' labels.
    pub fn finish(&self, sheet: &mut Sheet) -> Vec<Area> {
        for Label { at, anchor, row, text } in &self.labels {
            let x = if *anchor == Anchor::Start { at - 3.0 } else { at + 3.0 };
            sheet.text(x, self.top - 7.0 - *row as f64 * sheet.leading(), *anchor, "ink halo", text);
        }
        let mut taken: Vec<Area> = Vec::new();
        for limit in self.limits {
            let Some(at) = self.y.at(limit.value) else { continue };
            let inside = self.y.holds(limit.value);
            if inside {
                sheet.line((self.left, at), (self.right, at), "limit");
            }
            let label =
                if inside { limit.label.clone() } else { format!("{} (beyond this plot)", limit.label) };
            let label = text::fit(&label, self.right - self.left - 8.0, sheet.font);
            let area = self.free_place(sheet, at, sheet.text_width(&label), &taken);
            taken.push(area);
            sheet.text(area.x, area.y + sheet.font * 0.85, Anchor::Start, "ink halo", &label);
        }
        taken
    }

    /// Returns the position above or below a horizontal line where a label of this width covers least.
    fn free_place(&self, sheet: &Sheet, at: f64, width: f64, taken: &[Area]) -> Area {
        let height = sheet.font * 1.05;
        let positions = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
            .map(|share| self.left + 6.0 + (self.right - self.left - 12.0 - width) * share);
        let areas = [at - height - 4.0, at + 4.0]
            .into_iter()
            .flat_map(|y| positions.map(|x| Area { x, y, width, height }));
        let covered = |area: &Area| {
            let outside = area.y < self.top - 2.0 || area.y + height > self.bottom;
            let lines = self.ink.iter().filter(|(x, y)| {
                (area.x - 3.0..=area.x + width + 3.0).contains(x)
                    && (area.y - 2.0..=area.y + height + 2.0).contains(y)
            });
            let others = taken.iter().filter(|other| {
                (other.y - area.y).abs() < height
                    && other.x < area.x + width
                    && area.x < other.x + other.width
            });
            lines.count() + others.count() * 1000 + usize::from(outside) * 10_000
        };
        areas.min_by_key(covered).unwrap_or(Area { x: self.left, y: at, width, height })
    }
}

/// The label of a mark.
struct Label {
    at: f64,
    anchor: Anchor,
    /// Row above the plot, from 0 upward.
    row: usize,
    text: String,
}

/// Places the label of each mark right or left of its line, in the lowest free row. Marks are processed from
/// right to left, so that lines up to higher rows pass no label of a lower row.
fn place_marks(sheet: &Sheet, marks: &[VerticalLine], x: &Across) -> (Vec<Label>, usize) {
    let mut rows: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut placed = Vec::new();
    let labelled = marks.iter().filter(|mark| !mark.label.is_empty() && x.holds(mark.at));
    let mut positions: Vec<(f64, &VerticalLine)> =
        labelled.filter_map(|mark| Some((x.at(mark.at)?, mark))).collect();
    positions.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (at, mark) in positions {
        let text = text::fit(&mark.label, sheet.width / 2.0, sheet.font);
        let width = sheet.text_width(&text);
        let anchor = if at + width + 2.0 <= sheet.width { Anchor::Start } else { Anchor::End };
        let begin = if anchor == Anchor::Start { at - 3.0 } else { at + 3.0 - width };
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
        placed.push(Label { at, anchor, row, text });
    }
    (placed, rows.len())
}

/// Returns the values that an axis should include: the data, and limits not far beyond them.
pub(crate) fn with_limits(data: &[f64], limits: &[Limit]) -> Vec<f64> {
    let most = data.iter().copied().filter_map(super::ruler::usable).fold(0.0, f64::max);
    let near = |value: &f64| *value <= most * 3.0 || most == 0.0;
    data.iter().copied().chain(limits.iter().map(|limit| limit.value).filter(near)).collect()
}
