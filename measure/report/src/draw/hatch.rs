//! Hatching, which distinguishes areas on paper without colours. The style sheet shows it in print only. It
//! is drawn line by line, because printer drivers turn patterns into bitmaps of many megabytes.

use super::sheet::{Area, Path, Sheet};

/// The distance between lines.
const STEP: f64 = 6.0;

/// Hatches an area according to its series; the first series stays plain.
pub(crate) fn draw(sheet: &mut Sheet, area: Area, series: usize) {
    let mut path = Path::default();
    match series % 7 {
        1 => diagonals(&mut path, area, false),
        2 => horizontals(&mut path, area, area.width),
        3 => diagonals(&mut path, area, true),
        4 => verticals(&mut path, area),
        5 => {
            horizontals(&mut path, area, area.width);
            verticals(&mut path, area);
        }
        6 => horizontals(&mut path, area, STEP / 3.0),
        _ => return,
    }
    sheet.path(&path, "hatch");
}

fn steps(length: f64) -> impl Iterator<Item = f64> {
    (0..(length / STEP).ceil() as u32)
        .map(|step| (f64::from(step) + 0.5) * STEP)
        .take_while(move |at| *at < length)
}

/// Draws horizontal lines, in dashes of this length.
fn horizontals(path: &mut Path, area: Area, dash: f64) {
    for down in steps(area.height) {
        let y = area.y + down;
        let begins: Vec<f64> = if dash < area.width { steps(area.width).collect() } else { vec![0.0] };
        for begin in begins {
            path.step(true, (area.x + begin, y));
            path.step(false, (area.x + (begin + dash).min(area.width), y));
        }
    }
}

fn verticals(path: &mut Path, area: Area) {
    for right in steps(area.width) {
        path.step(true, (area.x + right, area.y));
        path.step(false, (area.x + right, area.y + area.height));
    }
}

/// Draws rising or falling diagonal lines.
fn diagonals(path: &mut Path, area: Area, falling: bool) {
    let Area { x, y, width, height } = area;
    let across = |right: f64| if falling { x + width - right } else { x + right };
    for reach in steps(width + height) {
        path.step(true, (across(reach.min(width)), y + (reach - width).max(0.0)));
        path.step(false, (across((reach - height).max(0.0)), y + reach.min(height)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Size;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lines_stay_inside(width in 0.5..300f64, height in 0.5..40f64, series in 0usize..14) {
            let mut sheet = Sheet::new(Size::Wide);
            draw(&mut sheet, Area { x: 10.0, y: 20.0, width, height }, series);
            let written = sheet.markup.finish();
            let numbers = written.split(|c: char| !c.is_ascii_digit() && c != '.').filter_map(|n| n.parse::<f64>().ok());
            for pair in numbers.collect::<Vec<_>>().chunks_exact(2) {
                prop_assert!(pair[0] >= 9.9 && pair[0] <= 10.1 + width, "{pair:?} {written}");
                prop_assert!(pair[1] >= 19.9 && pair[1] <= 20.1 + height, "{pair:?} {written}");
            }
        }
    }
}
