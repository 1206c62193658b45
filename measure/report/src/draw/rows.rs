//! The layout shared by plots of horizontal bars: a column of labels at the left, or labels above the bars if
//! the plot is narrow.

use super::ruler::Ruler;
use super::sheet::{Anchor, Sheet};
use super::text;

pub(crate) struct Rows {
    /// Start of the bars.
    pub left: f64,
    /// End of the labels; 0 if they are above the bars.
    column: f64,
}

impl Rows {
    /// Computes the layout for these labels.
    pub fn fit<'a>(sheet: &Sheet, labels: impl Iterator<Item = &'a str>) -> Rows {
        // Bold text is a tenth wider.
        let widest = labels.map(|label| sheet.text_width(label) * 1.1).fold(0.0, f64::max);
        let most = if sheet.wide() { sheet.width * 0.34 } else { sheet.width * 0.2 };
        if sheet.wide() || widest <= most {
            let column = widest.min(most);
            Rows { left: column + 10.0, column }
        } else {
            Rows { left: 0.0, column: 0.0 }
        }
    }

    pub fn above(&self) -> bool {
        self.column == 0.0
    }

    /// Returns the lines of a label; bold text is a tenth wider.
    fn lines(&self, sheet: &Sheet, label: &str) -> Vec<String> {
        let room = if self.above() { sheet.width } else { self.column };
        text::wrap(label, room / 1.1, sheet.font, 2)
    }

    /// Returns the smallest height of a row with bars of this height, so that its label fits next to or above them.
    pub fn height(&self, sheet: &Sheet, label: &str, bars: f64) -> f64 {
        let lines = self.lines(sheet, label).len() as f64 * sheet.leading();
        if !self.above() {
            bars.max(lines)
        } else if lines > 0.0 {
            bars + lines + 2.0
        } else {
            bars
        }
    }

    /// Draws the label of a row at `top` with this height; returns where its bars may begin.
    pub fn label(&self, sheet: &mut Sheet, top: f64, height: f64, label: &str, class: &str) -> f64 {
        let lines = self.lines(sheet, label);
        let all = lines.len() as f64 * sheet.leading();
        let (x, anchor, first) = if self.above() {
            (0.0, Anchor::Start, top + sheet.font)
        } else {
            (self.column, Anchor::End, top + (height - all) / 2.0 + sheet.font * 1.03)
        };
        for (index, line) in lines.iter().enumerate() {
            sheet.text(x, first + index as f64 * sheet.leading(), anchor, class, line);
        }
        if lines.is_empty() { top } else { top + all + 2.0 }
    }
}

/// Draws a vertical grid behind bars from `top` to `bottom`, with labels below.
pub(crate) fn grid(sheet: &mut Sheet, ruler: &Ruler, top: f64, bottom: f64) {
    let base = bottom + sheet.leading();
    let mut free = f64::NEG_INFINITY;
    for tick in ruler.ticks() {
        sheet.line((tick.at, top), (tick.at, bottom), "grid");
        let width = sheet.text_width(&tick.label);
        let begin = (tick.at - width / 2.0).min(sheet.width - width).max(0.0);
        if begin > free {
            sheet.text(begin, base, Anchor::Start, "mute", &tick.label);
            free = begin + width + 8.0;
        }
    }
    sheet.line((ruler.from, top), (ruler.from, bottom), "axis");
    sheet.height = base + sheet.font * 0.4;
}

/// Draws the label of the axis, with a remark.
pub(crate) fn axis_label(sheet: &mut Sheet, left: f64, label: &str) {
    if label.is_empty() {
        return;
    }
    let fitted = text::fit(label, sheet.width, sheet.font);
    let begin = left.min(sheet.width - sheet.text_width(&fitted)).max(0.0);
    let y = sheet.height + sheet.leading() - 2.0;
    sheet.text(begin, y, Anchor::Start, "mute", &fitted);
    sheet.height = y + sheet.font * 0.4;
}
