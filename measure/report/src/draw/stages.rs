//! Draws stacked bars.

use super::hatch;
use super::legend::{self, Entry, Sample};
use super::rows::{self, Rows};
use super::ruler::{Ruler, Start, usable};
use super::sheet::{Anchor, Area, Sheet, fill};
use super::text;
use crate::plot::{Axis, Stack, Stages};
use crate::unit::Unit;

const BAR: f64 = 24.0;

pub(crate) fn draw(sheet: &mut Sheet, plot: &Stages) {
    let entry = |(series, name): (usize, &String)| Entry { name: name.clone(), series, sample: Sample::Area };
    let entries: Vec<_> = plot.parts.iter().enumerate().map(entry).collect();
    legend::rows(sheet, &entries);
    let rows = Rows::fit(sheet, plot.stacks.iter().map(|stack| stack.label.as_str()));
    // Bold text is a tenth wider.
    let show = |stack| text::fit(&plot.x.unit.show(total(plot, stack)), sheet.width * 0.4 / 1.1, sheet.font);
    let totals: Vec<String> = plot.stacks.iter().map(show).collect();
    let margin = totals.iter().map(|total| sheet.text_width(total) * 1.1).fold(0.0, f64::max) + 10.0;
    let ruler = ruler(sheet, plot).between(rows.left, sheet.width - margin);
    let top = sheet.height + sheet.font * 0.5;
    let slots: Vec<f64> =
        plot.stacks.iter().map(|stack| rows.height(sheet, &stack.label, BAR) + 10.0).collect();
    let bottom = top + slots.iter().sum::<f64>();
    rows::grid(sheet, &ruler, top, bottom);
    let mut next = top + 5.0;
    for (row, ((stack, total), slot)) in plot.stacks.iter().zip(&totals).zip(&slots).enumerate() {
        let begin = next;
        next += slot;
        sheet.row(row, |sheet| {
            let below = rows.label(sheet, begin, slot - 10.0, &stack.label, "ink");
            let top = if rows.above() { below } else { begin + (slot - 10.0 - BAR) / 2.0 };
            let end = parts(sheet, plot, &ruler, stack, top);
            sheet.text(end + 6.0, top + BAR / 2.0 + sheet.font * 0.35, Anchor::Start, "ink strong", total);
        });
    }
    let label = if plot.shares {
        format!("share of {}", plot.x.label)
    } else {
        plot.x.unit.axis_label(&plot.x.label)
    };
    rows::axis_label(sheet, rows.left, &label);
}

/// Returns the total of a bar; parts that cannot be drawn count as 0.
pub(crate) fn total(plot: &Stages, stack: &Stack) -> f64 {
    lengths(plot, stack).sum()
}

fn lengths<'a>(plot: &'a Stages, stack: &'a Stack) -> impl Iterator<Item = f64> + 'a {
    stack.values.iter().take(plot.parts.len()).map(|value| usable(*value).unwrap_or(0.0).max(0.0))
}

fn ruler(sheet: &Sheet, plot: &Stages) -> Ruler {
    let wanted = if sheet.wide() { 6 } else { 3 };
    if plot.shares {
        let axis = Axis { to: Some(1.0), ..Axis::new("", Unit::Fraction) };
        return Ruler::fit(&axis, [0.0, 1.0], Start::Zero, wanted);
    }
    // On a log scale, parts would not add up.
    let axis = Axis { scale: crate::plot::Scale::Linear, from: Some(0.0), ..plot.x.clone() };
    Ruler::fit(&axis, plot.stacks.iter().map(|stack| total(plot, stack)), Start::Zero, wanted)
}

/// Draws the parts of a bar; returns its end.
fn parts(sheet: &mut Sheet, plot: &Stages, ruler: &Ruler, stack: &Stack, top: f64) -> f64 {
    let whole = if plot.shares { total(plot, stack) } else { 1.0 };
    let mut before = 0.0;
    let mut end = ruler.from;
    for (series, length) in lengths(plot, stack).enumerate() {
        let share = if whole > 0.0 { length / whole } else { 0.0 };
        let (Some(from), Some(to)) = (ruler.at(before), ruler.at(before + share)) else { continue };
        before += share;
        if length <= 0.0 {
            continue;
        }
        let area = Area { x: from, y: top, width: (to - from).max(0.8), height: BAR };
        sheet.rect(area, &format!("part {}", fill(series)));
        hatch::draw(sheet, area, series);
        let label = plot.x.unit.show(length);
        if sheet.text_width(&label) * 1.1 + 8.0 <= to - from {
            let y = top + BAR / 2.0 + sheet.font * 0.35;
            sheet.text(f64::midpoint(from, to), y, Anchor::Middle, &format!("on o{}", series % 7), &label);
        }
        end = end.max(to);
    }
    end
}
