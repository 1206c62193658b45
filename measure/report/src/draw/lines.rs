//! Draws lines with bands, limits and events.

use super::frame::{Across, Frame, Ground, with_limits};
use super::legend::{self, Entry, Sample};
use super::ruler::{Ruler, Start};
use super::sheet::{Anchor, Path, Sheet, fill, stroke};
use super::text;
use super::thin;
use crate::plot::{Line, Lines};

/// The most room for names at the right of a wide plot.
const NAMES: f64 = 170.0;

pub(crate) fn draw(sheet: &mut Sheet, plot: &Lines) {
    let direct = sheet.wide() && plot.bands.is_empty() && (1..=6).contains(&plot.lines.len());
    if !direct && plot.lines.len() + plot.bands.len() > 1 {
        legend::rows(sheet, &entries(plot));
    }
    let widest = plot.lines.iter().map(|line| sheet.text_width(&line.name)).fold(0.0, f64::max);
    let named = direct && plot.lines.len() > 1;
    let mut frame =
        Frame::draw(sheet, ground(sheet, plot, if named { widest.min(NAMES) + 14.0 } else { 0.0 }));
    for band in &plot.bands {
        let points: Vec<_> = band.points.iter().map(|&(x, low, high)| (x, low, high)).collect();
        area(sheet, &frame, &points, &format!("band {}", fill(band.line)));
    }
    let base = frame.y.base();
    for (series, line) in plot.lines.iter().enumerate() {
        course(sheet, &mut frame, line, series, base);
    }
    frame.finish(sheet);
    if named {
        names(sheet, &frame, &plot.lines);
    }
    sheet.positions = thin::positions(plot).iter().map(|x| frame.x.at(*x).unwrap_or(f64::NAN)).collect();
}

fn entries(plot: &Lines) -> Vec<Entry> {
    let lines = plot.lines.iter().enumerate().map(|(series, line)| {
        let sample = if line.loose { Sample::Marker } else { Sample::Line };
        Entry { name: line.name.clone(), series, sample }
    });
    let bands = plot.bands.iter().map(|band| Entry {
        name: band.name.clone(),
        series: band.line,
        sample: Sample::Band,
    });
    lines.chain(bands).collect()
}

fn ground<'a>(sheet: &Sheet, plot: &'a Lines, margin: f64) -> Ground<'a> {
    let xs = plot.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0));
    let xs = xs.chain(plot.bands.iter().flat_map(|band| band.points.iter().map(|point| point.0)));
    let mut ys: Vec<f64> =
        plot.lines.iter().flat_map(|line| line.points.iter().map(|point| point.1)).collect();
    ys.extend(plot.bands.iter().flat_map(|band| band.points.iter().flat_map(|&(_, low, high)| [low, high])));
    let (across, up) = if sheet.wide() { (9, 5) } else { (5, 4) };
    Ground {
        x: Across::Values(Ruler::fit(&plot.x, xs, Start::Smallest, across)),
        x_label: plot.x.unit.axis_label(&plot.x.label),
        y: Ruler::fit(&plot.y, with_limits(&ys, &plot.limits), Start::Zero, up),
        y_label: plot.y.unit.axis_label(&plot.y.label),
        margin,
        spans: &plot.spans,
        limits: &plot.limits,
        marks: &plot.marks,
    }
}

fn course(sheet: &mut Sheet, frame: &mut Frame<'_>, line: &Line, series: usize, base: f64) {
    let positions: Vec<_> = line.points.iter().map(|&(x, y)| frame.x.at(x).zip(frame.y.at(y))).collect();
    let positions = thin::extremes(&positions, frame.left, frame.right);
    let mut path = Path::default();
    let mut filled = Path::default();
    let mut last: Option<(f64, f64)> = None;
    for (index, position) in positions.iter().enumerate() {
        if let Some((x, _)) = last.filter(|_| position.is_none()) {
            filled.step(false, (x, base));
            filled.close();
        }
        if let Some(at) = *position {
            path.step(last.is_none(), at);
            frame.inked(last.unwrap_or(at), at);
            if last.is_none() {
                filled.step(true, (at.0, base));
            }
            filled.step(false, at);
            let lone = last.is_none() && positions.get(index + 1).is_none_or(Option::is_none);
            if lone || line.dots || line.loose {
                sheet.marker(series, at, 3.5, &fill(series));
            }
        }
        last = *position;
    }
    if let Some((x, _)) = last {
        filled.step(false, (x, base));
        filled.close();
    }
    if line.filled {
        sheet.path(&filled, &format!("band {}", fill(series)));
    }
    if !line.loose {
        sheet.path(&path, &stroke(series));
    }
}

/// Draws the area between two curves, in pieces if there are gaps.
fn area(sheet: &mut Sheet, frame: &Frame<'_>, points: &[(f64, f64, f64)], class: &str) {
    let positions: Vec<_> = points
        .iter()
        .map(|&(x, low, high)| Some((frame.x.at(x)?, frame.y.at(low)?, frame.y.at(high)?)))
        .collect();
    for piece in positions.split(Option::is_none) {
        let piece: Vec<_> = piece.iter().flatten().collect();
        let mut path = Path::default();
        for (index, (x, _, high)) in piece.iter().enumerate() {
            path.step(index == 0, (*x, *high));
        }
        for (x, low, _) in piece.iter().rev() {
            path.step(false, (*x, *low));
        }
        path.close();
        sheet.path(&path, class);
    }
}

/// Draws names next to the ends of the lines.
fn names(sheet: &mut Sheet, frame: &Frame<'_>, lines: &[Line]) {
    let end = |line: &Line| line.points.iter().rev().find_map(|&(x, y)| frame.x.at(x).zip(frame.y.at(y)));
    let ends: Vec<_> =
        lines.iter().enumerate().filter_map(|(series, line)| Some((series, line, end(line)?))).collect();
    let wanted: Vec<f64> = ends.iter().map(|(.., end)| end.1).collect();
    let placed = legend::spread(&wanted, sheet.leading(), frame.top, frame.bottom);
    for ((series, line, (x, y)), at) in ends.iter().zip(placed) {
        let begin = frame.right + 12.0;
        if (at - y).abs() > 4.0 || frame.right - x > 4.0 {
            sheet.line((x + 2.0, *y), (begin - 2.0, at), "leader");
        }
        let name = text::fit(&line.name, NAMES.min(sheet.width - begin), sheet.font);
        sheet.text(begin, at + sheet.font * 0.35, Anchor::Start, &format!("n{}", series % 7), &name);
    }
}
