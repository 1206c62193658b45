//! Drawing of plots. Each kind of plot has a file, and so has each shared part (ruler, frame, rows, legend).

mod bars;
mod describe;
mod frame;
mod frontier;
mod hatch;
mod heat;
mod histogram;
mod legend;
mod lines;
mod nines;
mod percentiles;
mod rows;
mod ruler;
mod sheet;
mod stages;
mod text;
mod thin;
mod twin;

use std::fmt::Display;

pub use histogram::buckets_of;
pub use nines::percentile_steps;
pub(crate) use sheet::Size;
pub(crate) use twin::twin;

use crate::markup::Markup;
use crate::plot::Plot;
use sheet::{Anchor, Sheet, px};

/// Colours of all plots, for pages and files.
pub(crate) const STYLE: &str = include_str!("plot.css");

/// Returns the title and the note of a plot.
fn heading(plot: &Plot) -> (&str, &str) {
    match plot {
        Plot::Lines(plot) => (&plot.title, &plot.note),
        Plot::Histogram(plot) => (&plot.title, &plot.note),
        Plot::Percentiles(plot) => (&plot.title, &plot.note),
        Plot::Stages(plot) => (&plot.title, &plot.note),
        Plot::Bars(plot) => (&plot.title, &plot.note),
        Plot::Frontier(plot) => (&plot.title, &plot.note),
        Plot::Heat(plot) => (&plot.title, &plot.note),
    }
}

impl Plot {
    #[must_use]
    pub fn title(&self) -> &str {
        heading(self).0
    }

    #[must_use]
    pub fn note(&self) -> &str {
        heading(self).1
    }

    /// Returns the plot as a standalone SVG file (UTF-8) with title and note, and with colours for light and
    /// dark themes.
    #[must_use]
    pub fn to_svg(&self) -> String {
        const MARGIN: f64 = 20.0;
        let mut sheet = Sheet::new(Size::Wide);
        sheet.height = sheet.font * 1.4;
        sheet.text(
            0.0,
            sheet.height,
            Anchor::Start,
            "title",
            &text::fit(self.title(), sheet.width / 1.25, sheet.font),
        );
        for line in text::wrap(self.note(), sheet.width, sheet.font, 3) {
            sheet.height += sheet.leading();
            sheet.text(0.0, sheet.height, Anchor::Start, "mute", &line);
        }
        sheet.height += sheet.font * 0.8;
        self.draw_on(&mut sheet);
        let (width, height) = (px(sheet.width + 2.0 * MARGIN), px(sheet.height + 2.0 * MARGIN));
        let mut file = Markup::default();
        let view = format!("0 0 {width} {height}");
        let attributes: [(_, &dyn Display); 8] = [
            ("xmlns", &"http://www.w3.org/2000/svg"),
            ("viewBox", &view),
            ("width", &width),
            ("height", &height),
            ("class", &"plot"),
            ("font-size", &sheet.font),
            ("role", &"img"),
            ("aria-labelledby", &"title desc"),
        ];
        file.within("svg", &attributes, |svg| {
            svg.element("title", &[("id", &"title")], self.title());
            svg.element("desc", &[("id", &"desc")], &describe::describe(self));
            svg.within("style", &[], |style| style.verbatim(STYLE));
            svg.empty("rect", &[("width", &width), ("height", &height), ("class", &"paper")]);
            let shift = format!("translate({MARGIN} {MARGIN})");
            svg.within("g", &[("transform", &shift)], |group| group.append(&sheet.markup));
        });
        file.finish() + "\n"
    }

    /// Draws the plot for a page, without title and note.
    pub(crate) fn inline(&self, size: Size, markup: &mut Markup) {
        let mut sheet = Sheet::new(size);
        self.draw_on(&mut sheet);
        let view = format!("0 0 {} {}", px(sheet.width), px(sheet.height.max(1.0)));
        let class = if size == Size::Wide { "plot wide" } else { "plot narrow" };
        let label = format!("{}. {}", self.title(), describe::describe(self));
        let positions: Vec<String> = sheet
            .positions
            .iter()
            .map(|at| if at.is_finite() { px(*at).to_string() } else { "-1".to_owned() })
            .collect();
        let positions = positions.join(" ");
        let mut attributes: Vec<(&'static str, &dyn Display)> = vec![
            ("viewBox", &view),
            ("class", &class),
            ("font-size", &sheet.font),
            ("role", &"img"),
            ("aria-label", &label),
        ];
        if !positions.is_empty() {
            attributes.push(("data-places", &positions));
        }
        markup.within("svg", &attributes, |svg| {
            svg.append(&sheet.markup);
            if !positions.is_empty() {
                let (top, bottom) = (px(sheet.guide.0), px(sheet.guide.1));
                let at: [(_, &dyn Display); 5] =
                    [("class", &"guide"), ("x1", &0), ("x2", &0), ("y1", &top), ("y2", &bottom)];
                svg.empty("line", &at);
            }
        });
    }

    /// Returns whether there is nothing to draw.
    pub(crate) fn is_empty(&self) -> bool {
        let pair = |&(x, y): &(f64, f64)| x.is_finite() && y.is_finite();
        match self {
            Plot::Lines(plot) => {
                let band =
                    |&(x, low, high): &(f64, f64, f64)| x.is_finite() && low.is_finite() && high.is_finite();
                !plot.lines.iter().any(|line| line.points.iter().any(pair))
                    && !plot.bands.iter().any(|it| it.points.iter().any(band))
            }
            Plot::Histogram(plot) => plot.buckets.iter().all(|bucket| bucket.count == 0),
            Plot::Percentiles(plot) => !plot.curves.iter().any(|curve| curve.points.iter().any(pair)),
            Plot::Stages(plot) => plot.stacks.is_empty() || plot.parts.is_empty(),
            Plot::Bars(plot) => plot.groups.is_empty(),
            Plot::Frontier(plot) => !plot.spots.iter().any(|spot| pair(&(spot.x, spot.y))),
            Plot::Heat(plot) => plot.rows.is_empty() || plot.columns.is_empty(),
        }
    }

    fn draw_on(&self, sheet: &mut Sheet) {
        if self.is_empty() {
            let y = sheet.height + sheet.leading() * 2.0;
            sheet.text(sheet.width / 2.0, y, Anchor::Middle, "mute", "no data");
            sheet.height = y + sheet.leading();
            return;
        }
        match self {
            Plot::Lines(plot) => lines::draw(sheet, plot),
            Plot::Histogram(plot) => histogram::draw(sheet, plot),
            Plot::Percentiles(plot) => percentiles::draw(sheet, plot),
            Plot::Stages(plot) => stages::draw(sheet, plot),
            Plot::Bars(plot) => bars::draw(sheet, plot),
            Plot::Frontier(plot) => frontier::draw(sheet, plot),
            Plot::Heat(plot) => heat::draw(sheet, plot),
        }
    }
}

#[cfg(test)]
mod tests;
