//! Parts of several kinds of plots: axes, limits, marks.

use serde::{Deserialize, Serialize};

use super::number;
use crate::unit::Unit;

/// An axis: its quantity and scale.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Axis {
    /// The quantity: `response time`. The unit is added automatically.
    pub label: String,
    pub unit: Unit,
    pub scale: Scale,
    /// The start; by default 0 if that is not far, else near the smallest value.
    pub from: Option<f64>,
    /// The end; by default near the largest value.
    pub to: Option<f64>,
}

impl Axis {
    /// Returns a linear axis with automatic ends.
    #[must_use]
    pub fn new(label: impl Into<String>, unit: Unit) -> Axis {
        Axis { label: label.into(), unit, ..Axis::default() }
    }

    /// Returns the same axis with a log scale.
    #[must_use]
    pub fn log(self) -> Axis {
        Axis { scale: Scale::Log, ..self }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    #[default]
    Linear,
    /// Logarithmic; values that are not above 0 are left out.
    Log,
}

/// The better direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    #[default]
    More,
    Less,
}

/// A line at an important value, such as an objective.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    #[serde(with = "number")]
    pub value: f64,
    /// The meaning of the line: `objective 200 ms`.
    pub label: String,
}

/// A vertical line at a moment or value: an event, a percentile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerticalLine {
    /// The position on the x axis.
    #[serde(with = "number")]
    pub at: f64,
    /// The meaning of the line: `worker 2 restarted`, `p99`.
    pub label: String,
}

/// A shaded span of the x axis: a warm-up, a stall.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// The start on the x axis.
    #[serde(with = "number")]
    pub from: f64,
    /// The end on the x axis.
    #[serde(with = "number")]
    pub to: f64,
    /// The meaning of the span: `warm-up`.
    pub label: String,
}
