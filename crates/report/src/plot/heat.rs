//! A table whose cells are tinted by their value.

use serde::{Deserialize, Serialize};

use super::Better;
use super::number;
use crate::unit::Unit;

/// A table of figures: the better, the stronger the tint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Heat {
    /// What it shows.
    pub title: String,
    /// How to read it, or what is remarkable; a sentence.
    pub note: String,
    /// What is measured: `throughput`.
    pub measure: String,
    /// The unit of the values.
    pub unit: Unit,
    /// Which direction is the good one.
    pub better: Better,
    /// What the columns are: `threads per process`.
    pub column_label: String,
    /// Headings of the columns.
    pub columns: Vec<String>,
    /// What the rows are: `processes`.
    pub row_label: String,
    /// Headings of the rows.
    pub rows: Vec<String>,
    /// Cells by row, then column; missing ones stay blank.
    pub cells: Vec<Vec<Cell>>,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Its value; not finite when there is none, and `note` says why.
    #[serde(with = "number")]
    pub value: f64,
    /// A word under the figure: `crashed`, `p95 240 ms`.
    #[serde(default)]
    pub note: String,
    /// Whether it is the one that was chosen.
    #[serde(default)]
    pub chosen: bool,
}

impl Cell {
    /// A cell with a figure.
    #[must_use]
    pub fn new(value: f64) -> Cell {
        Cell { value, note: String::new(), chosen: false }
    }

    /// A cell without one, and why.
    #[must_use]
    pub fn missing(why: impl Into<String>) -> Cell {
        Cell { note: why.into(), ..Cell::new(f64::NAN) }
    }
}
