//! Costs and benefits: points, and the efficient frontier.

use serde::{Deserialize, Serialize};

use super::number;
use super::{Axis, Better, Limit, VerticalLine};

/// Points of two quantities. The points that no other beats in both are connected: the efficient frontier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Frontier {
    pub title: String,
    /// How to read the plot, or the point of it; a sentence.
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
    pub spots: Vec<Spot>,
    /// Horizontal lines, such as an objective.
    pub limits: Vec<Limit>,
    /// Vertical lines, such as a budget.
    pub marks: Vec<VerticalLine>,
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

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spot {
    /// The label: `2x10`.
    pub label: String,
    #[serde(with = "number")]
    pub x: f64,
    #[serde(with = "number")]
    pub y: f64,
    /// The kind of the point, as an index into `series`.
    #[serde(default)]
    pub series: usize,
    /// Whether this is the chosen point.
    #[serde(default)]
    pub chosen: bool,
}
