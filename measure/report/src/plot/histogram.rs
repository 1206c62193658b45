//! Distribution of values.

use serde::{Deserialize, Serialize};

use super::number;
use super::{Axis, VerticalLine};

/// A histogram; on a log scale unless `x` says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Histogram {
    pub title: String,
    /// How to read the plot, or the point of it; a sentence.
    pub note: String,
    /// The measured quantity: `Axis::new("response time", Unit::Milliseconds).log()`.
    pub x: Axis,
    /// The name of the counted things: `requests`.
    pub counted: String,
    /// Buckets in the order of `from`, best with equal widths on the scale: see `buckets_of`.
    pub buckets: Vec<Bucket>,
    /// Important values, such as percentiles.
    pub marks: Vec<VerticalLine>,
}

/// The number of values in a range.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// The smallest value in the range.
    #[serde(with = "number")]
    pub from: f64,
    /// The exclusive upper end of the range.
    #[serde(with = "number")]
    pub to: f64,
    pub count: u64,
}
