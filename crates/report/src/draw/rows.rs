//! What plots of horizontal bars share: a column of labels at the left, or each label above its bar where it is narrow.

use super::ruler::Ruler;
use super::sheet::{Anchor, Sheet};
use super::text;

/// Where labels and bars go.
pub(crate) struct Rows {
    /// Where bars begin.
    pub left: f64,
    /// Where labels end; 0 when they stand above.
    column: f64,
}

impl Rows {
    /// Makes room for these labels.
    pub fn fit<'a>(sheet: &Sheet, labels: impl Iterator<Item = &'a str>) -> Rows {
        // Bold is a tenth wider.
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

    /// How high a row is at least, so that its label has room beside bars of this height, or above them.
    pub fn height(&self, sheet: &Sheet, label: &str, bars: f64) -> f64 {
        if self.above() {
            return bars + if label.is_empty() { 0.0 } else { sheet.leading() + 2.0 };
        }
        let lines = text::wrap(label, self.column / 1.1, sheet.font, 2).len();
        bars.max(lines as f64 * sheet.leading())
    }

    /// Writes the label of a row that begins at `top` and whose bars are `height` high; returns where the bars begin.
    pub fn label(&self, sheet: &mut Sheet, top: f64, height: f64, label: &str, class: &str) -> f64 {
        if self.above() {
            if label.is_empty() {
                return top;
            }
            let label = text::fit(label, sheet.width / 1.1, sheet.font);
            sheet.text(0.0, top + sheet.font, Anchor::Start, class, &label);
            return top + sheet.leading() + 2.0;
        }
        let lines = text::wrap(label, self.column / 1.1, sheet.font, 2);
        let first =
            top + height / 2.0 + sheet.font * 0.35 - (lines.len().max(1) - 1) as f64 * sheet.leading() / 2.0;
        for (index, line) in lines.iter().enumerate() {
            sheet.text(self.column, first + index as f64 * sheet.leading(), Anchor::End, class, line);
        }
        top
    }
}

/// An upright grid behind bars from `top` to `bottom`, and its labels below.
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

/// The label of the axis, and what else is to be said of it.
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
