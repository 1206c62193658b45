//! Which share stayed below which value.

use serde::{Deserialize, Serialize};

use super::number;
use super::{Axis, Limit};

/// Percentile curves: across, the percentiles, each nine as wide as the one before; upward, the values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Percentiles {
    /// What it shows.
    pub title: String,
    /// How to read it, or what is remarkable; a sentence.
    pub note: String,
    /// What is measured.
    pub y: Axis,
    /// The curves.
    pub curves: Vec<Curve>,
    /// Level lines, such as objectives.
    pub limits: Vec<Limit>,
}

/// One curve.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// What it is called.
    pub name: String,
    /// `(percentile, value)`, percentiles from 0 to 100, increasing; 100 is the maximum, drawn at the end of the axis.
    /// Fifty points that lie evenly on the axis make a smooth curve: see `percentile_steps`.
    #[serde(with = "number::pairs")]
    pub points: Vec<(f64, f64)>,
}
