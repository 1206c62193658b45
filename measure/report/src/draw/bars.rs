//! Draws grouped bars with spreads.

use super::hatch;
use super::legend::{self, Entry, Sample};
use super::rows::{self, Rows};
use super::ruler::{Ruler, Start};
use super::sheet::{Anchor, Area, Sheet, fill};
use super::text;
use crate::plot::{Axis, Bar, Bars, Better, Group, Scale};

pub(crate) fn draw(sheet: &mut Sheet, plot: &Bars) {
    let series = plot.groups.iter().map(|group| group.bars.len()).max().unwrap_or(0).max(1);
    if series > 1 {
        let entry =
            |(series, name): (usize, &String)| Entry { name: name.clone(), series, sample: Sample::Area };
        let entries: Vec<_> = plot.series.iter().take(series).enumerate().map(entry).collect();
        legend::rows(sheet, &entries);
    }
    let rows = Rows::fit(sheet, plot.groups.iter().map(|group| group.label.as_str()));
    let ruler = ruler(sheet, plot, &rows);
    let height = if series > 1 { 17.0 } else { 21.0 };
    let top = sheet.height + sheet.font * 0.5;
    let gap = if series > 1 { 16.0 } else { 11.0 };
    let bars = height * series as f64;
    let slots: Vec<f64> = plot.groups.iter().map(|group| rows.height(sheet, &group.label, bars)).collect();
    let bottom = top + slots.iter().map(|slot| slot + gap).sum::<f64>() + 4.0;
    rows::grid(sheet, &ruler, top, bottom);
    let mut next = top + 7.0;
    for (row, (group, slot)) in plot.groups.iter().zip(&slots).enumerate() {
        let begin = next;
        next += slot + gap;
        sheet.row(row, |sheet| {
            let class = if group.marked { "ink strong" } else { "ink" };
            let below = rows.label(sheet, begin, *slot, &group.label, class);
            // Next to a label of two lines, the bars are centred.
            let top = if rows.above() { below } else { begin + (slot - bars) / 2.0 };
            for (series, bar) in group.bars.iter().enumerate() {
                let area = (top + height * series as f64, height - 2.0);
                draw_bar(sheet, plot, &ruler, group, series, bar, area);
            }
        });
    }
    for limit in &plot.limits {
        upright(sheet, &ruler, (top, bottom), limit.value, &limit.label);
    }
    let better = if plot.better == Better::More { "longer is better" } else { "shorter is better" };
    let label = plot.x.unit.axis_label(&plot.x.label);
    let label = if label.is_empty() { better.to_owned() } else { format!("{label} · {better}") };
    rows::axis_label(sheet, rows.left, &label);
}

/// Returns the caption after a bar.
fn caption(plot: &Bars, bar: &Bar) -> String {
    match (bar.value.is_finite(), bar.note.is_empty()) {
        (true, true) => plot.x.unit.show(bar.value),
        (true, false) => format!("{}, {}", plot.x.unit.show(bar.value), bar.note),
        (false, true) => "no value".to_owned(),
        (false, false) => bar.note.clone(),
    }
}

/// Returns an axis on which the longest bar leaves room for its caption.
fn ruler(sheet: &Sheet, plot: &Bars, rows: &Rows) -> Ruler {
    let bars = || plot.groups.iter().flat_map(|group| &group.bars);
    let ends = bars().flat_map(|bar| [Some(bar.value), bar.high, bar.low]).flatten();
    let ends = ends.chain(plot.limits.iter().map(|limit| limit.value));
    let axis = Axis { scale: Scale::Linear, ..plot.x.clone() };
    let ruler = Ruler::fit(&axis, ends, Start::Zero, if sheet.wide() { 6 } else { 3 });
    let widest = bars().filter(|bar| bar.value.is_finite()).map(|bar| sheet.text_width(&caption(plot, bar)));
    let most = (sheet.width - rows.left) * 0.5;
    let margin = (widest.fold(0.0, f64::max) + 10.0).min(most);
    ruler.between(rows.left, sheet.width - margin)
}

fn draw_bar(
    sheet: &mut Sheet,
    plot: &Bars,
    ruler: &Ruler,
    group: &Group,
    series: usize,
    bar: &Bar,
    area: (f64, f64),
) {
    let (top, height) = area;
    let base = ruler.base();
    let middle = top + height / 2.0;
    let mut end = base;
    if let Some(at) = ruler.at(bar.value) {
        let area = Area { x: base.min(at), y: top, width: (at - base).abs().max(1.0), height };
        // If a group is marked, the others are drawn fainter.
        let back = if plot.groups.iter().any(|group| group.marked) && !group.marked { " back" } else { "" };
        sheet.rect(area, "paper");
        sheet.rect(area, &format!("{}{back}", fill(series)));
        if group.bars.len() > 1 {
            hatch::draw(sheet, area, series);
        }
        end = at.max(base);
        if let (Some(low), Some(high)) =
            (bar.low.and_then(|low| ruler.at(low)), bar.high.and_then(|high| ruler.at(high)))
        {
            sheet.line((low, middle), (high, middle), "whisker");
            for tip in [low, high] {
                sheet.line((tip, middle - 4.0), (tip, middle + 4.0), "whisker");
            }
            end = end.max(high).max(low);
        }
    }
    let class = if bar.value.is_finite() { "ink halo" } else { "mute halo" };
    let text = text::fit(&caption(plot, bar), sheet.width - end - 6.0, sheet.font);
    sheet.text(end + 6.0, middle + sheet.font * 0.35, Anchor::Start, class, &text);
}

fn upright(sheet: &mut Sheet, ruler: &Ruler, (top, bottom): (f64, f64), value: f64, label: &str) {
    let Some(at) = ruler.at(value) else { return };
    sheet.line((at, top), (at, bottom), "limit");
    let label = text::fit(label, sheet.width, sheet.font);
    let begin = (at + 4.0).min(sheet.width - sheet.text_width(&label)).max(0.0);
    sheet.text(begin, top + sheet.font * 0.2, Anchor::Start, "ink halo", &label);
}
