//! Tracks positions in `static.json`, and formats messages that show them: file, line, column, the line
//! itself and a caret.

use std::fmt;

/// The longest excerpt of a line in a message, in characters.
const SHOWN: usize = 100;

/// A text and its name in messages.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub name: String,
    pub text: String,
    /// Byte offsets of the lines' beginnings, except the first.
    breaks: Vec<usize>,
}

/// A range of bytes in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SourceSpan {
    pub start: usize,
    /// Exclusive.
    pub end: usize,
    /// The line of the first byte, from 1.
    pub line: u32,
}

/// An error: the file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleMistake(Message);

/// A warning: valid but probably unintended; the file can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleNote(Message);

/// The text of a message, and the part of the file it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Message {
    name: String,
    text: String,
    excerpt: Option<Excerpt>,
}

/// A line of the file with carets below.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Excerpt {
    line: u32,
    column: usize,
    shown: String,
    indent: usize,
    marks: usize,
}

impl Source {
    pub fn new(name: &str, text: &str) -> Source {
        let breaks =
            text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1).collect();
        Source { name: name.to_owned(), text: text.to_owned(), breaks }
    }

    pub fn span(&self, start: usize, end: usize) -> SourceSpan {
        let start = floor(&self.text, start);
        let line = self.breaks.partition_point(|&begin| begin <= start) as u32 + 1;
        SourceSpan { start, end: floor(&self.text, end).max(start), line }
    }

    pub fn mistake(&self, at: SourceSpan, text: impl Into<String>) -> RuleMistake {
        RuleMistake(self.message(at, text.into()))
    }

    pub fn note(&self, at: SourceSpan, text: impl Into<String>) -> RuleNote {
        RuleNote(self.message(at, text.into()))
    }

    fn message(&self, at: SourceSpan, text: String) -> Message {
        Message { name: self.name.clone(), text: one_line(&text), excerpt: Some(self.excerpt(at)) }
    }

    fn excerpt(&self, at: SourceSpan) -> Excerpt {
        let begin = self.text[..at.start].rfind('\n').map_or(0, |newline| newline + 1);
        let before = self.text[begin..at.start].chars().count();
        let line = self.text[begin..].lines().next().unwrap_or_default();
        let length = line.chars().count();
        let wide = self.text[at.start..at.end].lines().next().unwrap_or_default().chars().count();
        // A minified file is one long line: show the part around the span.
        let skipped = if length <= SHOWN { 0 } else { before.saturating_sub(SHOWN / 2).min(length - SHOWN) };
        let shown = one_line(&line.chars().skip(skipped).take(SHOWN).collect::<String>());
        let indent = before - skipped;
        let marks = wide.clamp(1, SHOWN.saturating_sub(indent).max(1));
        Excerpt { line: at.line, column: before + 1, shown, indent, marks }
    }
}

impl RuleNote {
    /// Creates a warning about the environment rather than a position in the file.
    pub(super) fn general(name: &str, text: impl Into<String>) -> RuleNote {
        RuleNote(Message { name: name.to_owned(), text: one_line(&text.into()), excerpt: None })
    }

    /// The line that the note refers to, from 1.
    pub fn line(&self) -> Option<u32> {
        self.0.excerpt.as_ref().map(|excerpt| excerpt.line)
    }

    /// The message without position and excerpt.
    pub fn text(&self) -> &str {
        &self.0.text
    }
}

impl RuleMistake {
    /// The line that the mistake refers to, from 1.
    pub fn line(&self) -> Option<u32> {
        self.0.excerpt.as_ref().map(|excerpt| excerpt.line)
    }

    /// The message without position and excerpt.
    pub fn text(&self) -> &str {
        &self.0.text
    }
}

/// Returns `offset`, or the character boundary before it.
fn floor(text: &str, offset: usize) -> usize {
    let offset = offset.min(text.len());
    (0..=offset).rev().find(|&offset| text.is_char_boundary(offset)).unwrap_or(0)
}

/// Replaces control characters (which could move a terminal's cursor), one for one.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c == '\t' {
                ' '
            } else if c.is_control() {
                '?'
            } else {
                c
            }
        })
        .collect()
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(excerpt) = &self.excerpt else {
            return if self.name.is_empty() {
                f.write_str(&self.text)
            } else {
                write!(f, "{}: {}", self.name, self.text)
            };
        };
        writeln!(f, "{}:{}:{}: {}", self.name, excerpt.line, excerpt.column, self.text)?;
        writeln!(f, "  {}", excerpt.shown)?;
        write!(f, "  {}{}", " ".repeat(excerpt.indent), "^".repeat(excerpt.marks))
    }
}

impl fmt::Display for RuleMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for RuleNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for RuleMistake {}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new("static.json", text)
    }

    #[test]
    fn messages_show_their_position() {
        let source = source("{\r\n\t\"é\": tru\r\n}");
        let at = source.span(source.text.find("tru").unwrap(), source.text.find("tru").unwrap() + 3);
        assert_eq!(
            source.mistake(at, "odd\nword").to_string(),
            "static.json:2:7: odd?word\n   \"é\": tru\n        ^^^"
        );
    }

    #[test]
    fn long_lines_are_cut_around_the_span() {
        let source = source(&format!("{}here{}", "a".repeat(500), "b".repeat(500)));
        let shown = source.mistake(source.span(500, 504), "x").to_string();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[1].chars().count(), SHOWN + 2);
        assert_eq!(&lines[1][lines[2].find('^').unwrap()..][..4], "here");
    }

    proptest::proptest! {
        #[test]
        fn every_span_can_be_shown(text in "[\\sa-zé\u{1F600}\n\r]{0,200}", start in 0usize..300, len in 0usize..300) {
            let source = source(&text);
            let shown = source.note(source.span(start, start + len), "x").to_string();
            proptest::prop_assert_eq!(shown.lines().count(), 3);
        }
    }
}
