//! Percentile curves.

use serde::{Deserialize, Serialize};

use super::number;
use super::{Axis, Limit};

/// Percentile curves: horizontally the percentiles, with equal width per nine; vertically the values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Percentiles {
    pub title: String,
    /// How to read the plot, or the point of it; a sentence.
    pub note: String,
    /// The measured quantity.
    pub y: Axis,
    pub curves: Vec<Curve>,
    /// Horizontal lines, such as objectives.
    pub limits: Vec<Limit>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    pub name: String,
    /// `(percentile, value)`, percentiles from 0 to 100, increasing; 100 is the maximum, drawn at the end of the axis.
    /// Fifty points evenly spaced on the axis make a smooth curve: see `percentile_steps`.
    #[serde(with = "number::pairs")]
    pub points: Vec<(f64, f64)>,
}
