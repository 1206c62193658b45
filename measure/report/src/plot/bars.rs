//! Comparison of several subjects: grouped bars with spreads.

use serde::{Deserialize, Serialize};

use super::number;
use super::{Axis, Better, Limit};

/// Groups of horizontal bars.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bars {
    pub title: String,
    /// How to read the plot, or the point of it; a sentence.
    pub note: String,
    /// The measured quantity.
    pub x: Axis,
    /// The better direction; shown under the plot.
    pub better: Better,
    /// The names of the bars in each group; one or none if groups have one bar.
    pub series: Vec<String>,
    /// The groups, from top to bottom.
    pub groups: Vec<Group>,
    /// Vertical lines, such as an objective.
    pub limits: Vec<Limit>,
}

/// A group of bars, such as those of one server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The subject: `Puma 6.4`.
    pub label: String,
    /// In the order of `series`.
    pub bars: Vec<Bar>,
    /// Whether the group is highlighted.
    #[serde(default)]
    pub marked: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bar {
    /// The length; not finite if there is no value, in which case `note` gives the reason.
    #[serde(with = "number")]
    pub value: f64,
    /// The smallest value measured; `None` without spread.
    #[serde(default)]
    pub low: Option<f64>,
    /// The largest value measured.
    #[serde(default)]
    pub high: Option<f64>,
    /// A few words after the value: `crashed`, `12 errors`.
    #[serde(default)]
    pub note: String,
}

impl Bar {
    /// Returns a bar without spread.
    #[must_use]
    pub fn new(value: f64) -> Bar {
        Bar { value, low: None, high: None, note: String::new() }
    }

    /// Returns a bar for the middle of several measurements.
    #[must_use]
    pub fn spread(value: f64, low: f64, high: f64) -> Bar {
        Bar { low: Some(low), high: Some(high), ..Bar::new(value) }
    }

    /// Returns a missing bar with the reason.
    #[must_use]
    pub fn missing(why: impl Into<String>) -> Bar {
        Bar { note: why.into(), ..Bar::new(f64::NAN) }
    }
}
