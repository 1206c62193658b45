//! Where the time went: bars cut into parts.

use serde::{Deserialize, Serialize};

use super::Axis;
use super::number;

/// Horizontal bars cut into the same parts, each with its total.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stages {
    /// What it shows.
    pub title: String,
    /// How to read it, or what is remarkable; a sentence.
    pub note: String,
    /// What is measured.
    pub x: Axis,
    /// Names of the parts, from left to right.
    pub parts: Vec<String>,
    /// Whether all bars are drawn equally long, so that parts of short ones are seen as well; the totals stand behind.
    pub shares: bool,
    /// The bars, from top to bottom.
    pub stacks: Vec<Stack>,
}

/// One bar.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// What it is: `p99`.
    pub label: String,
    /// Lengths in the order of `parts`; what is not finite or below 0 counts as 0.
    #[serde(with = "number::row")]
    pub values: Vec<f64>,
}
