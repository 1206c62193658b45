//! Names of series: next to the ends of their lines if there is room, else in rows above.

use super::hatch;
use super::sheet::{Anchor, Area, Sheet, fill, stroke};
use super::text;

/// The look of a series in the legend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sample {
    Line,
    Area,
    Marker,
    /// A tinted area behind lines.
    Band,
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub name: String,
    pub series: usize,
    pub sample: Sample,
}

const SAMPLE: f64 = 20.0;
const GAP: f64 = 16.0;

/// Draws names in rows from left to right below the current height, which grows.
pub(crate) fn rows(sheet: &mut Sheet, entries: &[Entry]) {
    let (mut x, left) = (0.0, 0.0);
    let mut y = sheet.height + sheet.leading();
    for entry in entries.iter().filter(|entry| !entry.name.is_empty()) {
        let name = text::fit(&entry.name, sheet.width - SAMPLE - 8.0, sheet.font);
        let width = SAMPLE + 6.0 + sheet.text_width(&name);
        if x > left && x + width > sheet.width {
            x = left;
            y += sheet.leading() + 2.0;
        }
        sample(sheet, entry, (x, y - sheet.font * 0.35));
        sheet.text(x + SAMPLE + 6.0, y, Anchor::Start, "ink", &name);
        x += width + GAP;
        sheet.height = y + sheet.font * 0.5;
    }
}

fn sample(sheet: &mut Sheet, entry: &Entry, (x, y): (f64, f64)) {
    let box_of = |height: f64| Area { x: x + 2.0, y: y - height / 2.0, width: SAMPLE - 4.0, height };
    match entry.sample {
        Sample::Line => sheet.line((x, y), (x + SAMPLE, y), &stroke(entry.series)),
        Sample::Band => sheet.rect(box_of(10.0), &format!("band {}", fill(entry.series))),
        Sample::Marker => sheet.marker(entry.series, (x + SAMPLE / 2.0, y), 4.5, &fill(entry.series)),
        Sample::Area => {
            sheet.rect(box_of(11.0), &fill(entry.series));
            hatch::draw(sheet, box_of(11.0), entry.series);
        }
    }
}

/// Moves positions apart until they are at least `distance` apart, within `from` and `to`, each as close to
/// its original position as possible. Keeps the order.
pub(crate) fn spread(wanted: &[f64], distance: f64, from: f64, to: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let distance = distance.min((to - from) / wanted.len().max(2).saturating_sub(1) as f64);
    let mut placed = vec![0.0; wanted.len()];
    let mut above = from - distance;
    for &index in &order {
        placed[index] = wanted[index].max(above + distance);
        above = placed[index];
    }
    let mut below = to + distance;
    for &index in order.iter().rev() {
        placed[index] = placed[index].min(below - distance);
        below = placed[index];
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn spread_positions_are_apart(wanted in proptest::collection::vec(0f64..200.0, 0..7)) {
            let mut placed = spread(&wanted, 15.0, 0.0, 200.0);
            placed.sort_by(f64::total_cmp);
            prop_assert!(placed.windows(2).all(|pair| pair[1] - pair[0] >= 14.999));
            prop_assert!(placed.iter().all(|at| (-0.001..=200.001).contains(at)));
        }
    }
}
