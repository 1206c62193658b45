//! The kinds of plots and what they are made of. Plain data with public fields; `Plot::to_svg` draws a file of its own,
//! a page draws them in place.
//!
//! Numbers may be NaN or infinite (in JSON: `null`): such a point is a gap, never an error. Lists may be empty: the plot
//! then says that there is nothing to show.

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

pub use axis::{Axis, Better, Limit, Mark, Scale, Span};
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
    /// How often each value came; values on a log scale.
    Histogram(Histogram),
    /// Which share stayed below which value; the tail is stretched as HdrHistogram's plots do.
    Percentiles(Percentiles),
    /// Horizontal bars cut into parts: where the time went.
    Stages(Stages),
    /// Horizontal bars side by side, with spreads: who does how much.
    Bars(Bars),
    /// Points of two quantities; those that nothing beats in both are joined.
    Frontier(Frontier),
    /// A table whose cells are tinted by their value.
    Heat(Heat),
}
