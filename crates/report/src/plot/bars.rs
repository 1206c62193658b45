//! Who does how much: bars side by side, with spreads.

use serde::{Deserialize, Serialize};

use super::number;
use super::{Axis, Better, Limit};

/// Groups of horizontal bars.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bars {
    /// What it shows.
    pub title: String,
    /// How to read it, or what is remarkable; a sentence.
    pub note: String,
    /// What is measured.
    pub x: Axis,
    /// Which direction is the good one; said under the plot.
    pub better: Better,
    /// Names of the bars in each group; one or none when groups have one bar.
    pub series: Vec<String>,
    /// The groups, from top to bottom.
    pub groups: Vec<Group>,
    /// Upright lines, such as an objective.
    pub limits: Vec<Limit>,
}

/// Bars that belong together, such as those of one server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Whose they are: `Puma 6.4`.
    pub label: String,
    /// In the order of `series`.
    pub bars: Vec<Bar>,
    /// Whether the label is in bold and the bar is filled more strongly: the one that the reader looks for.
    #[serde(default)]
    pub marked: bool,
}

/// One bar.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bar {
    /// Its length; not finite when there is none, and `note` says why.
    #[serde(with = "number")]
    pub value: f64,
    /// The smallest value seen; `None` without spread.
    #[serde(default)]
    pub low: Option<f64>,
    /// The largest value seen.
    #[serde(default)]
    pub high: Option<f64>,
    /// A few words behind the figure: `crashed`, `12 errors`.
    #[serde(default)]
    pub note: String,
}

impl Bar {
    /// A bar without spread.
    #[must_use]
    pub fn new(value: f64) -> Bar {
        Bar { value, low: None, high: None, note: String::new() }
    }

    /// A bar that is the middle of several measurements.
    #[must_use]
    pub fn spread(value: f64, low: f64, high: f64) -> Bar {
        Bar { low: Some(low), high: Some(high), ..Bar::new(value) }
    }

    /// No bar, and why.
    #[must_use]
    pub fn missing(why: impl Into<String>) -> Bar {
        Bar { note: why.into(), ..Bar::new(f64::NAN) }
    }
}
