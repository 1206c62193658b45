//! Lines over time, or over any other quantity.

use serde::{Deserialize, Serialize};

use super::number;
use super::{Axis, Limit, Mark, Span};

/// Lines over time, with bands, limits and events.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lines {
    /// What it shows.
    pub title: String,
    /// How to read it, or what is remarkable; a sentence.
    pub note: String,
    /// Mostly time.
    pub x: Axis,
    /// What is measured.
    pub y: Axis,
    /// The lines; up to seven are told apart.
    pub lines: Vec<Line>,
    /// Areas between two curves, drawn behind the lines.
    pub bands: Vec<Band>,
    /// Level lines, such as objectives.
    pub limits: Vec<Limit>,
    /// Shaded stretches of time.
    pub spans: Vec<Span>,
    /// Events.
    pub marks: Vec<Mark>,
}

/// One line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// What it is called.
    pub name: String,
    /// `(x, y)`, in the order of x; a point that is not finite is a gap.
    #[serde(with = "number::pairs")]
    pub points: Vec<(f64, f64)>,
    /// Whether the area under it is filled; best for a single line of something that adds up.
    #[serde(default)]
    pub filled: bool,
    /// Whether each point gets a marker: for a few measured points rather than a course.
    #[serde(default)]
    pub dots: bool,
    /// Whether its points are markers that no line joins, such as measurements beside the curve fitted to them.
    #[serde(default)]
    pub loose: bool,
}

/// The area between two curves: a spread, a confidence interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Band {
    /// What it is called: `p50 to p95`.
    pub name: String,
    /// `(x, low, high)`, in the order of x.
    #[serde(with = "number::triples")]
    pub points: Vec<(f64, f64, f64)>,
    /// The line (from 0) whose colour it takes.
    #[serde(default)]
    pub line: usize,
}
