//! Self-contained HTML pages with plots: one file, no network, no fonts; readable without JavaScript, on small screens,
//! in dark mode and on paper.
//!
//! Pure: data in, text out. Nothing here reads a file or a clock. Callers fill in a [`Page`] and write the
//! result of [`Page::to_html`]; [`Plot::to_svg`] returns an SVG file of a plot. Both can be read from JSON,
//! see [`read_page`] and [`read_plot`].
#![forbid(unsafe_code)]

mod draw;
mod figure;
mod html;
mod markup;
mod page;
mod plot;
mod read;
mod unit;

pub use draw::{buckets_of, percentile_steps};
pub use page::{Block, Column, KeyFigure, Page, Section, Table, Verdict};
pub use plot::{
    Axis, Band, Bar, Bars, Better, Bucket, Cell, Curve, Frontier, Group, Heat, Histogram, Limit, Line, Lines,
    Percentiles, Plot, Scale, Span, Spot, Stack, Stages, VerticalLine,
};
pub use read::{ReadError, read_page, read_plot};
pub use unit::Unit;
