//! What costs how much and brings how much: points, and those that nothing beats.

use serde::{Deserialize, Serialize};

use super::number;
use super::{Axis, Better, Limit, Mark};

/// Points of two quantities. Those that no other beats in both are found and joined: the efficient frontier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Frontier {
    /// What it shows.
    pub title: String,
    /// How to read it, or what is remarkable; a sentence.
    pub note: String,
    /// Mostly what it costs: memory.
    pub x: Axis,
    /// Mostly what it brings: throughput.
    pub y: Axis,
    /// The good direction of x; `Less` unless said otherwise.
    pub x_better: Better,
    /// The good direction of y.
    pub y_better: Better,
    /// Names of the kinds of points, such as servers; may be empty.
    pub series: Vec<String>,
    /// The points.
    pub spots: Vec<Spot>,
    /// Level lines, such as an objective.
    pub limits: Vec<Limit>,
    /// Upright lines, such as a budget.
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

/// One point.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spot {
    /// What it is: `2x10`.
    pub label: String,
    /// Where it lies.
    #[serde(with = "number")]
    pub x: f64,
    /// Where it lies.
    #[serde(with = "number")]
    pub y: f64,
    /// Its kind, from 0, in the order of `series`.
    #[serde(default)]
    pub series: usize,
    /// Whether it is the one that was chosen.
    #[serde(default)]
    pub chosen: bool,
}
