//! A heat map: a table with cells tinted by value.

use serde::{Deserialize, Serialize};

use super::Better;
use super::number;
use crate::unit::Unit;

/// A heat map: the better, the stronger the tint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Heat {
    pub title: String,
    /// How to read the plot, or the point of it; a sentence.
    pub note: String,
    /// The measured quantity: `throughput`.
    pub measure: String,
    pub unit: Unit,
    pub better: Better,
    /// The meaning of the columns: `threads per process`.
    pub column_label: String,
    /// Headings of the columns.
    pub columns: Vec<String>,
    /// The meaning of the rows: `processes`.
    pub row_label: String,
    /// Headings of the rows.
    pub rows: Vec<String>,
    /// Cells by row, then column; missing ones stay blank.
    pub cells: Vec<Vec<Cell>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// The value; not finite if there is none, in which case `note` gives the reason.
    #[serde(with = "number")]
    pub value: f64,
    /// A word under the value: `crashed`, `p95 240 ms`.
    #[serde(default)]
    pub note: String,
    /// Whether this is the chosen cell.
    #[serde(default)]
    pub chosen: bool,
}

impl Cell {
    #[must_use]
    pub fn new(value: f64) -> Cell {
        Cell { value, note: String::new(), chosen: false }
    }

    /// Returns a cell without value, with the reason.
    #[must_use]
    pub fn missing(why: impl Into<String>) -> Cell {
        Cell { note: why.into(), ..Cell::new(f64::NAN) }
    }
}
