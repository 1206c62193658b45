//! What a page consists of, from its title to its foot. Plain data: whoever has something to report fills it in, and
//! `Page::to_html` does the rest. Every text is plain text; nothing in it is taken for markup.

use serde::{Deserialize, Serialize};

use crate::plot::Plot;

/// A whole page.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Page {
    /// What it is about, in a few words: the heading, and the title of the window.
    pub title: String,
    /// Where, when, with what; a line under the title.
    pub subtitle: String,
    /// The figures that matter most; three to six.
    pub lead: Vec<KeyFigure>,
    /// The parts of the page, in order.
    pub sections: Vec<Section>,
    /// The last line: which program wrote it, when.
    pub foot: String,
    /// Loads itself anew after so many seconds; 0 is never. For live pages.
    pub refresh_seconds: u32,
}

/// A large figure at the top.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyFigure {
    /// What it is: `99 % answered within`.
    pub label: String,
    /// The figure with its unit: `412 ms`.
    pub value: String,
    /// What to make of it: `limit: 200 ms`.
    #[serde(default)]
    pub note: String,
    /// Whether it is good news or bad; also said by a sign, never by colour alone.
    #[serde(default)]
    pub verdict: Verdict,
}

/// Good news or bad.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Just a figure.
    #[default]
    Neutral,
    /// As it should be.
    Good,
    /// To be looked at.
    Warning,
    /// A limit was missed.
    Bad,
}

/// A part with a heading.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// What the reader should see in it, in a sentence or two. A blank line begins a new paragraph.
    pub text: String,
    /// What it shows.
    pub blocks: Vec<Block>,
}

/// Something shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "a page has a few dozen; boxes would burden every caller")]
pub enum Block {
    /// A plot, with its data as a table behind a fold.
    Plot(Plot),
    /// Two or more plots, side by side where there is room.
    Plots(Vec<Plot>),
    /// Rows and columns.
    Table(Table),
    /// Paragraphs, divided by blank lines.
    Text(String),
    /// A list of remarks.
    Notes(Vec<String>),
    /// Names and values.
    KeyValues(Vec<(String, String)>),
    /// Text to be copied, such as a command or lines of a file; breaks and spaces are kept.
    Code(String),
}

/// Rows and columns of finished texts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Table {
    /// What it shows; may be empty.
    pub caption: String,
    /// Headings; a unit belongs here rather than into each cell.
    pub columns: Vec<Column>,
    /// Cells in the order of `columns`; missing ones stay empty, surplus ones are left out.
    pub rows: Vec<Vec<String>>,
    /// Rows (from 0) that stand out, such as the one recommended.
    pub marked: Vec<usize>,
}

/// The head of a column.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// The heading.
    pub title: String,
    /// Whether it holds figures, which stand at the right.
    #[serde(default)]
    pub numeric: bool,
}

impl Column {
    /// A column of words.
    #[must_use]
    pub fn text(title: impl Into<String>) -> Column {
        Column { title: title.into(), numeric: false }
    }

    /// A column of figures.
    #[must_use]
    pub fn number(title: impl Into<String>) -> Column {
        Column { title: title.into(), numeric: true }
    }
}
