//! What several kinds of plots share: axes, limits, marks.

use serde::{Deserialize, Serialize};

use super::number;
use crate::unit::Unit;

/// One axis: what it measures and how it is divided.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Axis {
    /// What it shows: `response time`. The unit is added by itself.
    pub label: String,
    /// The unit of its values.
    pub unit: Unit,
    /// How values are spread.
    pub scale: Scale,
    /// Where it begins; by default at 0 when that is not far off, else near the smallest value.
    pub from: Option<f64>,
    /// Where it ends; by default near the largest value.
    pub to: Option<f64>,
}

impl Axis {
    /// A linear axis that finds its own ends.
    #[must_use]
    pub fn new(label: impl Into<String>, unit: Unit) -> Axis {
        Axis { label: label.into(), unit, ..Axis::default() }
    }

    /// The same on a log scale.
    #[must_use]
    pub fn log(self) -> Axis {
        Axis { scale: Scale::Log, ..self }
    }
}

/// How values are spread over an axis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Equal steps.
    #[default]
    Linear,
    /// Equal factors; values that are not above 0 are left out.
    Log,
}

/// Which direction is the good one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// The larger the better.
    #[default]
    More,
    /// The smaller the better.
    Less,
}

/// A straight line at a value that matters, such as an objective.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Where.
    #[serde(with = "number")]
    pub value: f64,
    /// What it means: `objective 200 ms`.
    pub label: String,
}

/// An upright line at a moment or value: an event, a percentile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// Where on the x axis.
    #[serde(with = "number")]
    pub at: f64,
    /// What it is: `worker 2 restarted`, `p99`.
    pub label: String,
}

/// A stretch of the x axis that is shaded: a warm-up, a stall.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// Its beginning on the x axis.
    #[serde(with = "number")]
    pub from: f64,
    /// Its end.
    #[serde(with = "number")]
    pub to: f64,
    /// What it is: `warm-up`.
    pub label: String,
}
