//! The parts of a page, from title to footer. Plain data: callers fill it in, and `Page::to_html` renders it. All texts
//! are plain text, never markup.

use serde::{Deserialize, Serialize};

use crate::plot::Plot;

/// A page.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Page {
    /// The subject in a few words: heading and window title.
    pub title: String,
    /// Where, when, with what; a line under the title.
    pub subtitle: String,
    /// The most important values; three to six.
    pub lead: Vec<KeyFigure>,
    /// The sections of the page.
    pub sections: Vec<Section>,
    /// The last line: which program wrote it, and when.
    pub foot: String,
    /// Reload interval in seconds, for live pages; 0 is never.
    pub refresh_seconds: u32,
}

/// A large number at the top.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyFigure {
    /// What it is: `99th percentile`.
    pub label: String,
    /// The value with its unit: `412 ms`.
    pub value: String,
    /// A remark: `limit: 200 ms`.
    #[serde(default)]
    pub note: String,
    /// Whether it is good or bad; also shown by a symbol, never by colour alone.
    #[serde(default)]
    pub verdict: Verdict,
}

/// Good or bad.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Neither.
    #[default]
    Neutral,
    /// Good.
    Good,
    /// Needs attention.
    Warning,
    /// A limit was missed.
    Bad,
}

/// A section with a heading.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// What the reader should see in it, in a sentence or two. A blank line starts a new paragraph.
    pub text: String,
    /// The contents.
    pub blocks: Vec<Block>,
}

/// A block of a section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "a page has a few dozen; boxes would burden every caller")]
pub enum Block {
    /// A plot, with its data as a collapsed table.
    Plot(Plot),
    /// Several plots, side by side if there is room.
    Plots(Vec<Plot>),
    /// A table.
    Table(Table),
    /// Paragraphs, separated by blank lines.
    Text(String),
    /// A list of remarks.
    Notes(Vec<String>),
    /// Names and values.
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
    /// The columns; units belong into their titles rather than into each cell.
    pub columns: Vec<Column>,
    /// Cells in the order of `columns`; missing ones stay empty, surplus ones are ignored.
    pub rows: Vec<Vec<String>>,
    /// Highlighted rows (from 0), such as the recommended one.
    pub marked: Vec<usize>,
}

/// A column.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// The title.
    pub title: String,
    /// Whether it contains numbers, which are right-aligned.
    #[serde(default)]
    pub numeric: bool,
}

impl Column {
    /// A column of text.
    #[must_use]
    pub fn text(title: impl Into<String>) -> Column {
        Column { title: title.into(), numeric: false }
    }

    /// A column of numbers.
    #[must_use]
    pub fn number(title: impl Into<String>) -> Column {
        Column { title: title.into(), numeric: true }
    }
}
