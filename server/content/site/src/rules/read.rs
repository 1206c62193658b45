//! Converts values of `static.json` to Rust values, with messages for those of the wrong type.

use std::time::Duration;

use super::json::{Member, Node, Value};
use super::nearest::nearest;
use super::source::{RuleMistake, RuleNote, Source, SourceSpan};
use super::variables::{Filled, Variables, fill};
use text::percent::pair;

/// Reads values, and collects mistakes and notes on the way.
pub(super) struct Reader<'a> {
    pub source: &'a Source,
    pub variables: Variables<'a>,
    pub compat: bool,
    pub mistakes: Vec<RuleMistake>,
    pub notes: Vec<RuleNote>,
}

/// The most mistakes, and the most notes: more are of no use, and each shows a line that may be long.
const MAX_MESSAGES: usize = 100;
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(24 * 3600);

impl Reader<'_> {
    pub fn mistake(&mut self, at: SourceSpan, text: impl Into<String>) {
        if self.mistakes.len() < MAX_MESSAGES {
            self.mistakes.push(self.source.mistake(at, text));
        }
    }

    pub fn note(&mut self, at: SourceSpan, text: impl Into<String>) {
        if self.notes.len() < MAX_MESSAGES {
            self.notes.push(self.source.note(at, text));
        }
    }

    /// Reports `key: expected …, found …`.
    pub fn expected<T>(&mut self, key: &str, node: &Node, expected: &str) -> Option<T> {
        self.mistake(node.at, format!("{key}: expected {expected}, found {}", node.value.found()));
        None
    }

    pub fn boolean(&mut self, key: &str, node: &Node) -> Option<bool> {
        match node.value {
            Value::Bool(value) => Some(value),
            _ => self.expected(key, node, "true or false"),
        }
    }

    pub fn string<'n>(&mut self, key: &str, node: &'n Node, expected: &str) -> Option<&'n str> {
        match &node.value {
            Value::String(value) if value.contains('\0') => {
                self.mistake(node.at, format!("{key}: a NUL character cannot be used here"));
                None
            }
            Value::String(value) => Some(value),
            _ => self.expected(key, node, expected),
        }
    }

    /// Reads a string with its variables substituted; the caller notes unset ones.
    pub fn filled(&mut self, key: &str, node: &Node, expected: &str) -> Option<Filled> {
        let filled = fill(self.string(key, node, expected)?, self.compat, self.variables);
        Some(filled)
    }

    /// Adds a note for each variable that is not set.
    pub fn note_unset<'n>(&mut self, key: &str, at: SourceSpan, unset: impl IntoIterator<Item = &'n String>) {
        for name in unset {
            let way = if self.compat {
                String::new()
            } else {
                format!("; to give a default, write ${{{name}:-…}}")
            };
            self.note(
                at,
                format!("{key}: the variable {name} is not set, so ${{{name}}} is left unchanged{way}"),
            );
        }
    }

    pub fn filled_text(&mut self, key: &str, node: &Node, expected: &str) -> Option<String> {
        let filled = self.filled(key, node, expected)?;
        self.note_unset(key, node.at, &filled.unset);
        let text = filled.text();
        if text.contains(|c: char| c.is_control()) {
            self.mistake(
                node.at,
                format!("{key}: a control character cannot be used here (is it in a variable?)"),
            );
            return None;
        }
        Some(text)
    }

    /// Reads one of several words.
    pub fn word<'w>(&mut self, key: &str, node: &Node, words: &[&'w str]) -> Option<&'w str> {
        let expected = || {
            let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
            quoted.join(" or ")
        };
        let Value::String(value) = &node.value else { return self.expected(key, node, &expected()) };
        let found = words.iter().find(|word| *word == value).copied();
        if found.is_none() {
            let near = nearest(value, words.iter().copied());
            let hint = near.map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
            self.mistake(node.at, format!("{key}: expected {}, found {value:?}{hint}", expected()));
        }
        found
    }

    /// Reads a whole number; with `compat` also from a string, as Ruby would write it into nginx's configuration.
    pub fn integer(&mut self, key: &str, node: &Node, least: u32, most: u32) -> Option<u32> {
        let expected = format!("a whole number from {least} to {most}");
        let text = match &node.value {
            Value::Number(text) => text,
            Value::String(text) if self.compat => text,
            _ => return self.expected(key, node, &expected),
        };
        match text.parse::<u32>() {
            Ok(number) if (least..=most).contains(&number) => Some(number),
            _ => self.expected(key, node, &expected),
        }
    }

    /// Reads seconds as a number, or a string such as "500ms", "5s", "1m", "1h".
    pub fn duration(&mut self, key: &str, node: &Node) -> Option<Duration> {
        const EXPECTED: &str = "a duration above 0 and up to a day, such as 5, \"5s\", \"500ms\" or \"1m\"";
        let duration = match &node.value {
            Value::Number(text) => {
                text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            }
            Value::String(text) => match text::span::parse(text) {
                Ok(duration) => Some(duration),
                Err(why) => {
                    let near =
                        why.nearest.map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
                    let expected = why.expected.as_deref().unwrap_or(EXPECTED);
                    self.mistake(
                        node.at,
                        format!("{key}: expected {expected}, found {}{near}", node.value.found()),
                    );
                    return None;
                }
            },
            _ => None,
        };
        match duration.filter(|duration| (SHORTEST..=LONGEST).contains(duration)) {
            Some(duration) => Some(Duration::from_millis((duration.as_secs_f64() * 1000.0).round() as u64)),
            None => self.expected(key, node, EXPECTED),
        }
    }

    /// Returns an object's members. Of duplicate keys the last counts, at the position of the first (as in
    /// Ruby); the others are noted.
    pub fn members<'n>(&mut self, key: &str, node: &'n Node, expected: &str) -> Option<Vec<&'n Member>> {
        match &node.value {
            Value::Object(members) => Some(self.unique(members)),
            _ => self.expected(key, node, expected),
        }
    }

    pub fn unique<'n>(&mut self, members: &'n [Member]) -> Vec<&'n Member> {
        let mut positions = std::collections::HashMap::new();
        let mut unique: Vec<&Member> = Vec::new();
        for member in members {
            match positions.entry(member.key.as_str()) {
                std::collections::hash_map::Entry::Occupied(position) => {
                    let earlier: &mut &Member = &mut unique[*position.get()];
                    let text =
                        format!("duplicate key {:?}: the one in line {} is used", member.key, member.at.line);
                    let at = earlier.at;
                    *earlier = member;
                    self.note(at, text);
                }
                std::collections::hash_map::Entry::Vacant(position) => {
                    position.insert(unique.len());
                    unique.push(member);
                }
            }
        }
        unique
    }

    /// Notes an unknown key.
    pub fn unknown_key(&mut self, inside: &str, member: &Member, known: &[&str]) {
        let hint = match nearest(&member.key, known.iter().copied()) {
            Some(near) => format!("; did you mean {near:?}?"),
            None => String::new(),
        };
        let inside = if inside.is_empty() { String::new() } else { format!("{inside}: ") };
        self.note(member.at, format!("{inside}unknown key {:?}{hint}", member.key));
    }

    /// Reads a path below the root, as `/a/b`; with a trailing `/` if written so.
    pub fn site_path(&mut self, key: &str, node: &Node) -> Option<String> {
        let text = self.string(key, node, "a path below the root, such as \"index.html\"")?;
        let mut path = String::new();
        for segment in text.split('/').filter(|segment| !segment.is_empty() && *segment != ".") {
            if segment == ".." {
                self.mistake(
                    node.at,
                    format!("{key}: \"..\" leads out of the root: expected a path below it"),
                );
                return None;
            }
            path.push('/');
            path.push_str(segment);
        }
        if path.is_empty() || text.ends_with('/') {
            path.push('/');
        }
        Some(path)
    }

    /// Notes a key that cannot match any path.
    pub fn check_path_key(&mut self, kind: &str, member: &Member) {
        let key = member.key.as_str();
        let why = if !key.starts_with('/') && !key.starts_with('*') {
            "a path begins with /"
        } else if key.contains("//") {
            "a path has no empty segments: // is read as /"
        } else if key.contains('?') {
            "the query is not part of the path"
        } else if percent_encoded(key) {
            "paths are compared decoded: write the character itself instead of %xx"
        } else {
            return;
        };
        self.note(member.at, format!("{kind} {key:?} never matches: {why}"));
    }
}

fn percent_encoded(key: &str) -> bool {
    key.split('%').skip(1).any(|behind| pair(behind.as_bytes()).is_some())
}
