//! The parts of a page, from title to footer. Plain data: callers fill it in, and `Page::to_html` renders it. All texts
//! are plain text, never markup.

use serde::{Deserialize, Serialize};

use crate::plot::Plot;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Page {
    /// The subject in a few words: heading and window title.
    pub title: String,
    /// Place, time and subject; a line under the title.
    pub subtitle: String,
    /// The most important values; three to six.
    pub lead: Vec<KeyFigure>,
    pub sections: Vec<Section>,
    /// The last line: the program that wrote the page, and the time.
    pub foot: String,
    /// Reload interval in seconds, for live pages; 0 is never.
    pub refresh_seconds: u32,
}

/// A large number at the top.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyFigure {
    /// The name of the value: `99th percentile`.
    pub label: String,
    /// The value with its unit: `412 ms`.
    pub value: String,
    /// A remark: `limit: 200 ms`.
    #[serde(default)]
    pub note: String,
    /// Whether the value is good or bad; also shown by a symbol, never by colour alone.
    #[serde(default)]
    pub verdict: Verdict,
}

/// The rating of a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    #[default]
    Neutral,
    Good,
    Warning,
    /// A limit was missed.
    Bad,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Section {
    pub title: String,
    /// The point of the section in a sentence or two. A blank line starts a new paragraph.
    pub text: String,
    pub blocks: Vec<Block>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "a page has a few dozen; boxes would burden every caller")]
pub enum Block {
    /// A plot, with its data as a collapsed table.
    Plot(Plot),
    /// Several plots, side by side if there is room.
    Plots(Vec<Plot>),
    Table(Table),
    /// Paragraphs, separated by blank lines.
    Text(String),
    /// A list of remarks.
    Notes(Vec<String>),
    KeyValues(Vec<(String, String)>),
    /// Preformatted text to copy, such as a command or lines of a file.
    Code(String),
}

/// A table of formatted texts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Table {
    /// The caption; may be empty.
    pub caption: String,
    /// The columns; units belong in their titles rather than in each cell.
    pub columns: Vec<Column>,
    /// Cells in the order of `columns`; missing ones stay empty, surplus ones are ignored.
    pub rows: Vec<Vec<String>>,
    /// Highlighted rows (from 0), such as the recommended one.
    pub marked: Vec<usize>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    pub title: String,
    /// Whether it contains numbers, which are right-aligned.
    #[serde(default)]
    pub numeric: bool,
}

impl Column {
    #[must_use]
    pub fn text(title: impl Into<String>) -> Column {
        Column { title: title.into(), numeric: false }
    }

    #[must_use]
    pub fn number(title: impl Into<String>) -> Column {
        Column { title: title.into(), numeric: true }
    }
}
