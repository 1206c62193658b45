//! The kinds of plots and their parts. Plain data with public fields; `Plot::to_svg` renders a standalone file, a page
//! renders plots in place.
//!
//! Numbers may be NaN or infinite (in JSON: `null`): such a point is a gap, never an error. Lists may be empty: the
//! plot then shows "no data".

mod axis;
mod bars;
mod frontier;
mod heat;
mod histogram;
mod lines;
mod number;
mod percentiles;
mod stages;

use serde::{Deserialize, Serialize};

pub use axis::{Axis, Better, Limit, Scale, Span, VerticalLine};
pub use bars::{Bar, Bars, Group};
pub use frontier::{Frontier, Spot};
pub use heat::{Cell, Heat};
pub use histogram::{Bucket, Histogram};
pub use lines::{Band, Line, Lines};
pub use percentiles::{Curve, Percentiles};
pub use stages::{Stack, Stages};

/// A plot of any kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Plot {
    /// Lines over time or over any other quantity.
    Lines(Lines),
    /// Distribution of values, on a log scale.
    Histogram(Histogram),
    /// Percentile curves, with a stretched tail as in HdrHistogram's plots.
    Percentiles(Percentiles),
    /// Stacked horizontal bars: the parts of a time.
    Stages(Stages),
    /// Grouped horizontal bars with spreads: a comparison.
    Bars(Bars),
    /// Points of two quantities with the efficient frontier.
    Frontier(Frontier),
    Heat(Heat),
}
