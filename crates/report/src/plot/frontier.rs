//! Costs and benefits: points, and the efficient frontier.

use serde::{Deserialize, Serialize};

use super::number;
use super::{Axis, Better, Limit, Mark};

/// Points of two quantities. Those that no other beats in both are found and connected: the efficient frontier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Frontier {
    /// The title.
    pub title: String,
    /// How to read it, or what is remarkable; a sentence.
    pub note: String,
    /// Usually the cost: memory.
    pub x: Axis,
    /// Usually the benefit: throughput.
    pub y: Axis,
    /// The better direction of x; `Less` by default.
    pub x_better: Better,
    /// The better direction of y.
    pub y_better: Better,
    /// Names of the kinds of points, such as servers; may be empty.
    pub series: Vec<String>,
    /// The points.
    pub spots: Vec<Spot>,
    /// Horizontal lines, such as an objective.
    pub limits: Vec<Limit>,
    /// Vertical lines, such as a budget.
    pub marks: Vec<Mark>,
}

impl Default for Frontier {
    fn default() -> Frontier {
        Frontier {
            title: String::new(),
            note: String::new(),
            x: Axis::default(),
            y: Axis::default(),
            x_better: Better::Less,
            y_better: Better::More,
            series: Vec::new(),
            spots: Vec::new(),
            limits: Vec::new(),
            marks: Vec::new(),
        }
    }
}

/// A point.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spot {
    /// Its label: `2x10`.
    pub label: String,
    /// Its x.
    #[serde(with = "number")]
    pub x: f64,
    /// Its y.
    #[serde(with = "number")]
    pub y: f64,
    /// Its kind, as an index into `series`.
    #[serde(default)]
    pub series: usize,
    /// Whether it is the chosen one.
    #[serde(default)]
    pub chosen: bool,
}
