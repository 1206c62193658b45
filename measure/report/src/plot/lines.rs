//! Lines over time, or over any other quantity.

use serde::{Deserialize, Serialize};

use super::number;
use super::{Axis, Limit, Span, VerticalLine};

/// Lines over time, with bands, limits and events.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lines {
    pub title: String,
    /// How to read the plot, or the point of it; a sentence.
    pub note: String,
    /// Usually time.
    pub x: Axis,
    /// The measured quantity.
    pub y: Axis,
    /// The lines; up to seven can be told apart.
    pub lines: Vec<Line>,
    /// Areas between two curves, drawn behind the lines.
    pub bands: Vec<Band>,
    /// Horizontal lines, such as objectives.
    pub limits: Vec<Limit>,
    /// Shaded spans of time.
    pub spans: Vec<Span>,
    pub marks: Vec<VerticalLine>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    pub name: String,
    /// `(x, y)`, ordered by x; a point that is not finite is a gap.
    #[serde(with = "number::pairs")]
    pub points: Vec<(f64, f64)>,
    /// Whether the area under the line is filled; for a single line of an additive quantity.
    #[serde(default)]
    pub filled: bool,
    /// Whether each point has a marker; for a few measured points.
    #[serde(default)]
    pub dots: bool,
    /// Whether the points are not connected, such as measurements next to a fitted curve.
    #[serde(default)]
    pub loose: bool,
}

/// The area between two curves: a spread, a confidence interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Band {
    /// The name: `p50 to p95`.
    pub name: String,
    /// `(x, low, high)`, ordered by x.
    #[serde(with = "number::triples")]
    pub points: Vec<(f64, f64, f64)>,
    /// The line (from 0) whose colour it uses.
    #[serde(default)]
    pub line: usize,
}
