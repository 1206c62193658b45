//! Stacked bars: the parts of a time.

use serde::{Deserialize, Serialize};

use super::Axis;
use super::number;

/// Stacked horizontal bars with the same parts, each with its total.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stages {
    pub title: String,
    /// How to read the plot, or the point of it; a sentence.
    pub note: String,
    /// The measured quantity.
    pub x: Axis,
    /// Names of the parts, from left to right.
    pub parts: Vec<String>,
    /// Whether all bars have the same length, so that parts of short ones are visible; the totals are shown after them.
    pub shares: bool,
    /// The bars, from top to bottom.
    pub stacks: Vec<Stack>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// The label: `p99`.
    pub label: String,
    /// Lengths in the order of `parts`; values that are not finite or below 0 count as 0.
    #[serde(with = "number::row")]
    pub values: Vec<f64>,
}
