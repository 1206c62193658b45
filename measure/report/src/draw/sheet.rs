//! The drawing surface: lines, areas and texts with classes, so that all colours are in one style sheet.

use std::fmt::Write as _;

use super::text;
use crate::markup::Markup;

/// The size of a plot. Two sizes are drawn, because text must not shrink with the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// For more than about 700 pixels, and for paper.
    Wide,
    /// For phones, and for plots side by side.
    Narrow,
}

impl Size {
    pub fn width(self) -> f64 {
        if self == Size::Wide { 880.0 } else { 340.0 }
    }

    pub fn font(self) -> f64 {
        if self == Size::Wide { 13.0 } else { 12.5 }
    }
}

/// Alignment of a text at its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }
}

/// A drawing in progress.
#[derive(Debug)]
pub(crate) struct Sheet {
    pub markup: Markup,
    pub width: f64,
    /// Grows with the drawing.
    pub height: f64,
    pub font: f64,
    pub size: Size,
    /// Horizontal positions of the table's rows, for hovering; empty if marks name their row.
    pub positions: Vec<f64>,
    /// Top and bottom of the line shown on hovering.
    pub guide: (f64, f64),
}

impl Sheet {
    pub fn new(size: Size) -> Sheet {
        Sheet {
            markup: Markup::default(),
            width: size.width(),
            height: 0.0,
            font: size.font(),
            size,
            positions: Vec::new(),
            guide: (0.0, 0.0),
        }
    }

    pub fn wide(&self) -> bool {
        self.size == Size::Wide
    }

    /// Returns the distance between the baselines of two lines of text.
    pub fn leading(&self) -> f64 {
        self.font * 1.35
    }

    /// Draws a text with its baseline at `y`.
    pub fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        let (x, y) = (px(x), px(y));
        if anchor == Anchor::Start {
            self.markup.element("text", &[("x", &x), ("y", &y), ("class", &class)], text);
        } else {
            let anchor = anchor.name();
            self.markup.element(
                "text",
                &[("x", &x), ("y", &y), ("text-anchor", &anchor), ("class", &class)],
                text,
            );
        }
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let (x1, y1, x2, y2) = (px(from.0), px(from.1), px(to.0), px(to.1));
        self.markup.empty("line", &[("x1", &x1), ("y1", &y1), ("x2", &x2), ("y2", &y2), ("class", &class)]);
    }

    pub fn rect(&mut self, area: Area, class: &str) {
        let Area { x, y, width, height } = area;
        let (x, y, width, height) = (px(x), px(y), px(width.max(0.0)), px(height.max(0.0)));
        let attributes: [(_, &dyn std::fmt::Display); 5] =
            [("x", &x), ("y", &y), ("width", &width), ("height", &height), ("class", &class)];
        self.markup.empty("rect", &attributes);
    }

    pub fn path(&mut self, path: &Path, class: &str) {
        if !path.0.is_empty() {
            self.markup.empty("path", &[("d", &path.0), ("class", &class)]);
        }
    }

    /// Draws a marker whose shape identifies the series without colours.
    pub fn marker(&mut self, series: usize, at: (f64, f64), radius: f64, class: &str) {
        let (x, y) = at;
        if series.is_multiple_of(4) {
            let (x, y, radius) = (px(x), px(y), px(radius));
            self.markup.empty("circle", &[("cx", &x), ("cy", &y), ("r", &radius), ("class", &class)]);
            return;
        }
        let corners: &[(f64, f64)] = match series % 4 {
            1 => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
            2 => &[(0.0, -1.2), (1.15, 0.9), (-1.15, 0.9)],
            _ => &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
        };
        let mut path = Path::default();
        for (index, (right, down)) in corners.iter().enumerate() {
            path.step(index == 0, (x + right * radius, y + down * radius));
        }
        path.close();
        self.path(&path, class);
    }

    /// Links everything that `content` draws to this row of the table, for hovering.
    pub fn row(&mut self, row: usize, content: impl FnOnce(&mut Sheet)) {
        let mut outer = std::mem::take(&mut self.markup);
        content(self);
        let inner = std::mem::take(&mut self.markup);
        outer.within("g", &[("data-row", &row)], |markup| markup.append(&inner));
        self.markup = outer;
    }

    pub fn text_width(&self, text: &str) -> f64 {
        text::width(text, self.font)
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Area {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

/// The outline of a line or area.
#[derive(Debug, Default)]
pub(crate) struct Path(String);

impl Path {
    /// Moves to a position, drawing a line unless `lifted`.
    pub fn step(&mut self, lifted: bool, (x, y): (f64, f64)) {
        let _ = write!(self.0, "{}{} {}", if lifted { 'M' } else { 'L' }, px(x), px(y));
    }

    pub fn close(&mut self) {
        if !self.0.is_empty() {
            self.0.push('Z');
        }
    }
}

/// Returns a coordinate, rounded to a tenth.
pub(crate) fn px(value: f64) -> f64 {
    if value.is_finite() { (value * 10.0).round() / 10.0 + 0.0 } else { 0.0 }
}

/// Returns the class for the stroke colour of a series; there are seven colours.
pub(crate) fn stroke(series: usize) -> String {
    format!("s s{}", series % 7)
}

/// Returns the class for the fill colour of a series.
pub(crate) fn fill(series: usize) -> String {
    format!("f{}", series % 7)
}
