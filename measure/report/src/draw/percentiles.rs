//! Draws percentile curves.

use super::frame::{Across, Frame, Ground, with_limits};
use super::legend::{self, Entry, Sample};
use super::nines::Nines;
use super::ruler::{Ruler, Start};
use super::sheet::{Anchor, Path, Sheet, fill, stroke};
use super::text;
use crate::plot::{Curve, Percentiles};

const NAMES: f64 = 170.0;

pub(crate) fn draw(sheet: &mut Sheet, plot: &Percentiles) {
    let many = plot.curves.len() > 1;
    let direct = many && sheet.wide() && plot.curves.len() <= 6;
    if many && !direct {
        let entry = |(series, curve): (usize, &Curve)| Entry {
            name: curve.name.clone(),
            series,
            sample: Sample::Line,
        };
        let entries: Vec<_> = plot.curves.iter().enumerate().map(entry).collect();
        legend::rows(sheet, &entries);
    }
    let widest = plot.curves.iter().map(|curve| sheet.text_width(&curve.name)).fold(0.0, f64::max);
    let mut frame =
        Frame::draw(sheet, ground(sheet, plot, if direct { widest.min(NAMES) + 14.0 } else { 0.0 }));
    let mut ends = Vec::new();
    for (series, curve) in plot.curves.iter().enumerate() {
        if let Some(end) = draw_curve(sheet, &mut frame, curve, series) {
            ends.push((series, end, &curve.name));
        }
    }
    frame.finish(sheet);
    if direct {
        let wanted: Vec<f64> = ends.iter().map(|(_, end, _)| end.1).collect();
        let placed = legend::spread(&wanted, sheet.leading(), frame.top, frame.bottom);
        for ((series, (x, y), name), at) in ends.iter().zip(placed) {
            let begin = frame.right + 12.0;
            if (at - y).abs() > 4.0 || frame.right - x > 4.0 {
                sheet.line((x + 2.0, *y), (begin - 2.0, at), "leader");
            }
            let name = text::fit(name, sheet.width - begin, sheet.font);
            sheet.text(begin, at + sheet.font * 0.35, Anchor::Start, &format!("n{}", series % 7), &name);
        }
    }
    sheet.positions =
        steps(plot).iter().map(|percentile| frame.x.at(*percentile).unwrap_or(f64::NAN)).collect();
}

/// Returns the percentiles of all curves, in order, which are the rows of the table.
pub(crate) fn steps(plot: &Percentiles) -> Vec<f64> {
    let all = plot.curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.0));
    let mut all: Vec<f64> = all.filter(|percentile| (0.0..=100.0).contains(percentile)).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    let stride = super::thin::stride(all.len());
    let last = all.last().copied();
    let mut kept: Vec<f64> = all.into_iter().step_by(stride).collect();
    if kept.last().copied() != last {
        kept.extend(last);
    }
    kept
}

fn ground<'a>(sheet: &Sheet, plot: &'a Percentiles, margin: f64) -> Ground<'a> {
    let points = || plot.curves.iter().flat_map(|curve| curve.points.iter());
    let heights: Vec<f64> =
        points().filter(|point| (0.0..=100.0).contains(&point.0)).map(|point| point.1).collect();
    Ground {
        x: Across::Percentiles(Nines::fit(points().map(|point| point.0))),
        x_label: "percentile".to_owned(),
        y: Ruler::fit(
            &plot.y,
            with_limits(&heights, &plot.limits),
            Start::Zero,
            if sheet.wide() { 5 } else { 4 },
        ),
        y_label: plot.y.unit.axis_label(&plot.y.label),
        margin,
        spans: &[],
        limits: &plot.limits,
        marks: &[],
    }
}

/// Draws a curve; returns its end.
fn draw_curve(sheet: &mut Sheet, frame: &mut Frame<'_>, curve: &Curve, series: usize) -> Option<(f64, f64)> {
    let mut path = Path::default();
    let mut to_maximum = Path::default();
    let mut last: Option<(f64, f64)> = None;
    for &(percentile, value) in &curve.points {
        let Some(at) = frame.x.at(percentile).zip(frame.y.at(value)) else { continue };
        frame.inked(last.unwrap_or(at), at);
        if percentile == 100.0 {
            if let Some(last) = last {
                to_maximum.step(true, last);
                to_maximum.step(false, at);
            }
            sheet.marker(series, at, 4.0, &fill(series));
        } else {
            path.step(last.is_none(), at);
        }
        last = Some(at);
    }
    sheet.path(&path, &stroke(series));
    sheet.path(&to_maximum, &format!("{} thin", stroke(series)));
    last
}
