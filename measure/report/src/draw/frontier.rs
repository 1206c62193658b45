//! Draws points of two quantities and connects those on the efficient frontier.

use super::frame::{Across, Frame, Ground, with_limits};
use super::legend::{self, Entry, Sample};
use super::ruler::{Ruler, Start};
use super::sheet::{Anchor, Area, Path, Sheet, fill};
use super::text;
use crate::plot::{Better, Frontier, Scale, Spot};

const RADIUS: f64 = 5.0;

pub(crate) fn draw(sheet: &mut Sheet, plot: &Frontier) {
    let entry =
        |(series, name): (usize, &String)| Entry { name: name.clone(), series, sample: Sample::Marker };
    let entries: Vec<_> = plot.series.iter().enumerate().map(entry).collect();
    if entries.len() > 1 {
        legend::rows(sheet, &entries);
    }
    let mut frame = Frame::draw(sheet, ground(sheet, plot));
    let best = efficient(plot);
    let mut path = Path::default();
    let mut last = None;
    for index in &best {
        let Some(at) = position(&frame, &plot.spots[*index]) else { continue };
        path.step(last.is_none(), at);
        frame.inked(last.unwrap_or(at), at);
        last = Some(at);
    }
    sheet.path(&path, "frontier");
    for (row, spot) in plot.spots.iter().enumerate() {
        let Some(at) = position(&frame, spot) else { continue };
        let back = if best.contains(&row) || spot.chosen { "" } else { " back" };
        sheet.row(row, |sheet| {
            if spot.chosen {
                sheet.marker(0, at, RADIUS + 5.0, "ring");
            }
            sheet.marker(spot.series, at, RADIUS, &format!("{}{back}", fill(spot.series)));
        });
    }
    let limits = frame.finish(sheet);
    let mut labels = Labels::new(plot.spots.iter().filter_map(|spot| position(&frame, spot)), &limits);
    // The chosen point and those on the frontier are labelled first.
    let mut order: Vec<usize> = (0..plot.spots.len()).collect();
    order.sort_by_key(|index| (!plot.spots[*index].chosen, !best.contains(index)));
    for index in order {
        labels.write(sheet, &frame, &plot.spots[index], best.contains(&index));
    }
}

fn ground<'a>(sheet: &Sheet, plot: &'a Frontier) -> Ground<'a> {
    let xs = plot.spots.iter().map(|spot| spot.x).chain(plot.marks.iter().map(|mark| mark.at));
    let ys: Vec<f64> = plot.spots.iter().map(|spot| spot.y).collect();
    let (across, up) = if sheet.wide() { (8, 5) } else { (4, 4) };
    let better = |better, more, less| if better == Better::More { more } else { less };
    let start = if plot.x.scale == Scale::Log { Start::Smallest } else { Start::Zero };
    Ground {
        x: Across::Values(Ruler::fit(&plot.x, xs, start, across)),
        x_label: worded(
            &plot.x.unit.axis_label(&plot.x.label),
            better(plot.x_better, "more is better →", "← less is better"),
        ),
        y: Ruler::fit(&plot.y, with_limits(&ys, &plot.limits), Start::Zero, up),
        y_label: worded(
            &plot.y.unit.axis_label(&plot.y.label),
            better(plot.y_better, "↑ more is better", "↓ less is better"),
        ),
        margin: 20.0,
        spans: &[],
        limits: &plot.limits,
        marks: &plot.marks,
    }
}

fn worded(label: &str, direction: &str) -> String {
    if label.is_empty() { direction.to_owned() } else { format!("{label} · {direction}") }
}

fn position(frame: &Frame<'_>, spot: &Spot) -> Option<(f64, f64)> {
    frame.x.at(spot.x).zip(frame.y.at(spot.y))
}

/// Returns the points that no other beats in one quantity without being worse in the other, ordered by x.
pub(crate) fn efficient(plot: &Frontier) -> Vec<usize> {
    let cost = |spot: &Spot| if plot.x_better == Better::Less { spot.x } else { -spot.x };
    let gain = |spot: &Spot| if plot.y_better == Better::More { spot.y } else { -spot.y };
    let finite = |index: &usize| plot.spots[*index].x.is_finite() && plot.spots[*index].y.is_finite();
    let mut order: Vec<usize> = (0..plot.spots.len()).filter(finite).collect();
    order.sort_by(|a, b| {
        let (a, b) = (&plot.spots[*a], &plot.spots[*b]);
        cost(a).total_cmp(&cost(b)).then(gain(b).total_cmp(&gain(a)))
    });
    let mut most = f64::NEG_INFINITY;
    order.retain(|index| {
        let better = gain(&plot.spots[*index]) > most;
        most = most.max(gain(&plot.spots[*index]));
        better
    });
    order
}

/// Labels of points, placed so that they cover neither points nor each other.
struct Labels {
    /// Left, top, right, bottom.
    taken: Vec<(f64, f64, f64, f64)>,
}

impl Labels {
    fn new(points: impl Iterator<Item = (f64, f64)>, others: &[Area]) -> Labels {
        let around = |(x, y): (f64, f64)| (x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS);
        let others = others.iter().map(|area| (area.x, area.y, area.x + area.width, area.y + area.height));
        Labels { taken: points.map(around).chain(others).collect() }
    }

    fn write(&mut self, sheet: &mut Sheet, frame: &Frame<'_>, spot: &Spot, best: bool) {
        let Some((x, y)) = position(frame, spot) else { return };
        let label = text::fit(&spot.label, sheet.width / 3.0, sheet.font);
        let width = sheet.text_width(&label) * if spot.chosen { 1.1 } else { 1.0 };
        let (away, font) = (if spot.chosen { RADIUS + 8.0 } else { RADIUS + 4.0 }, sheet.font);
        // Baselines; above left is usually free of the frontier.
        let choices = [
            (x - width / 2.0, y - away),
            (x + away, y + font * 0.35),
            (x - away - width, y - font * 0.2),
            (x - width / 2.0, y + away + font * 0.8),
            (x + away * 0.7, y + away + font * 0.5),
        ];
        let bounds = |(begin, base): (f64, f64)| (begin, base - font * 0.8, begin + width, base + font * 0.2);
        let ceiling = frame.ceiling(sheet);
        let free = |choice: &(f64, f64)| {
            let (left, top, right, bottom) = bounds(*choice);
            let inside =
                left >= frame.left && right <= sheet.width && top >= ceiling && bottom <= frame.bottom;
            inside
                && self
                    .taken
                    .iter()
                    .all(|(l, t, r, b)| left > r + 1.0 || right + 1.0 < *l || top > *b || bottom < *t)
        };
        let clear = |choice: &(f64, f64)| {
            let (left, top, right, bottom) = bounds(*choice);
            free(choice) && !frame.is_inked(left, top, right, bottom)
        };
        let Some((begin, base)) = choices.into_iter().find(clear).or_else(|| choices.into_iter().find(free))
        else {
            return;
        };
        self.taken.push((begin, base - font * 0.8, begin + width, base + font * 0.2));
        let class = if spot.chosen {
            "ink strong halo"
        } else if best {
            "ink halo"
        } else {
            "mute halo"
        };
        sheet.text(begin, base, Anchor::Start, class, &label);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plot(spots: &[(f64, f64)]) -> Frontier {
        let spots = spots.iter().map(|&(x, y)| Spot { x, y, ..Spot::default() }).collect();
        Frontier { spots, ..Frontier::default() }
    }

    #[test]
    fn the_frontier_is_connected() {
        assert_eq!(
            efficient(&plot(&[(3.0, 5.0), (1.0, 1.0), (2.0, 6.0), (4.0, 9.0), (5.0, 9.0)])),
            [1, 2, 3]
        );
    }

    proptest! {
        #[test]
        fn no_point_beats_the_frontier(spots in proptest::collection::vec((0f64..9.0, 0f64..9.0), 0..30)) {
            let best = efficient(&plot(&spots));
            for index in &best {
                let beaten = spots.iter().any(|(x, y)| *x < spots[*index].0 && *y >= spots[*index].1);
                prop_assert!(!beaten);
            }
            prop_assert_eq!(best.is_empty(), spots.is_empty());
        }
    }
}
