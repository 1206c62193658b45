//! Shared by several kinds of plots: axes, limits, marks.

use serde::{Deserialize, Serialize};

use super::number;
use crate::unit::Unit;

/// An axis: its quantity and scale.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Axis {
    /// The quantity: `response time`. The unit is added automatically.
    pub label: String,
    /// The unit of its values.
    pub unit: Unit,
    /// The scale.
    pub scale: Scale,
    /// Where it begins; by default at 0 if that is not far, otherwise near the smallest value.
    pub from: Option<f64>,
    /// Where it ends; by default near the largest value.
    pub to: Option<f64>,
}

impl Axis {
    /// A linear axis with automatic ends.
    #[must_use]
    pub fn new(label: impl Into<String>, unit: Unit) -> Axis {
        Axis { label: label.into(), unit, ..Axis::default() }
    }

    /// The same with a log scale.
    #[must_use]
    pub fn log(self) -> Axis {
        Axis { scale: Scale::Log, ..self }
    }
}

/// The scale of an axis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Linear.
    #[default]
    Linear,
    /// Logarithmic; values that are not above 0 are left out.
    Log,
}

/// Which direction is better.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Larger is better.
    #[default]
    More,
    /// Smaller is better.
    Less,
}

/// A line at an important value, such as an objective.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// The value.
    #[serde(with = "number")]
    pub value: f64,
    /// Its meaning: `objective 200 ms`.
    pub label: String,
}

/// A vertical line at a moment or value: an event, a percentile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// Position on the x axis.
    #[serde(with = "number")]
    pub at: f64,
    /// Its meaning: `worker 2 restarted`, `p99`.
    pub label: String,
}

/// A shaded span of the x axis: a warm-up, a stall.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// Start on the x axis.
    #[serde(with = "number")]
    pub from: f64,
    /// End on the x axis.
    #[serde(with = "number")]
    pub to: f64,
    /// Its meaning: `warm-up`.
    pub label: String,
}
