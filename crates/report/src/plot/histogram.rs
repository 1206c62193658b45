//! How often each value came.

use serde::{Deserialize, Serialize};

use super::number;
use super::{Axis, Mark};

/// A histogram; its values on a log scale unless `x` says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Histogram {
    /// What it shows.
    pub title: String,
    /// How to read it, or what is remarkable; a sentence.
    pub note: String,
    /// What is measured: `Axis::new("response time", Unit::Milliseconds).log()`.
    pub x: Axis,
    /// What is counted: `requests`.
    pub counted: String,
    /// In the order of `from`, best all of the same width on the scale: see `buckets_of`.
    pub buckets: Vec<Bucket>,
    /// Values that matter, such as percentiles.
    pub marks: Vec<Mark>,
}

/// How many values lay in a range.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// The smallest value in it.
    #[serde(with = "number")]
    pub from: f64,
    /// The values in it are below this.
    #[serde(with = "number")]
    pub to: f64,
    /// How many.
    pub count: u64,
}
