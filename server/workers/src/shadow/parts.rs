//! The parts of a response, each with a name and a value.
//!
//! Contract: a shape is bounded in number and length of its parts.

use std::collections::BTreeMap;

/// The most parts of a response. Further ones are not compared.
const MOST_PARTS: usize = 1000;
/// The longest name and the longest value of a part, in bytes.
const LONGEST: usize = 200;

/// The name of the part whose difference explains all others.
pub(crate) const STATUS: &str = "status";
/// The name of the part that may become less, or a little more.
pub(crate) const QUERIES: &str = "queries";

/// The parts of a response: their names and values, such as `JSON $.posts[].title` and `string`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape(BTreeMap<String, String>);

impl Shape {
    /// Adds a part, unless there are too many.
    pub(crate) fn put(&mut self, name: &str, value: &str) {
        let name = cut(name);
        if self.0.len() < MOST_PARTS || self.0.contains_key(name) {
            self.0.insert(name.to_owned(), cut(value).to_owned());
        }
    }

    /// Adds a value to those of a part, in alphabetical order.
    pub(crate) fn add(&mut self, name: &str, value: &str) {
        let known = self.get(cut(name)).map(str::to_owned).unwrap_or_default();
        let mut values: Vec<&str> = known.split(" or ").filter(|one| !one.is_empty()).collect();
        if let Err(at) = values.binary_search(&value) {
            values.insert(at, value);
            self.put(name, &values.join(" or "));
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns the parts in the order of their names.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns whether it has as many parts as it may.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= MOST_PARTS
    }
}

/// Returns as much of a text as a part may have.
fn cut(text: &str) -> &str {
    let end = (0..=LONGEST.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

/// Returns a name without what differs between two of its kind: numbers become 0, and ids become `:id`.
pub(crate) fn folded(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for part in name.split_inclusive(['_', '-', ':', '.']) {
        let (word, end) = match part.char_indices().next_back() {
            Some((at, end)) if "_-:.".contains(end) => (&part[..at], &part[at..]),
            _ => (part, ""),
        };
        if word.len() >= 8 && text::route::is_id(word.as_bytes()) {
            out.push_str(":id");
        } else {
            fold_digits(word, &mut out);
        }
        out.push_str(end);
    }
    out
}

fn fold_digits(word: &str, out: &mut String) {
    let mut before = false;
    for one in word.chars() {
        if !one.is_ascii_digit() {
            out.push(one);
        } else if !before {
            out.push('0');
        }
        before = one.is_ascii_digit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_folded() {
        for (name, expected) in [
            ("post_12", "post_0"),
            ("comment-3f2504e0-reply", "comment-:id-reply"),
            ("h1", "h0"),
            ("naïve7", "naïve0"),
            ("", ""),
        ] {
            assert_eq!(folded(name), expected);
        }
    }
}
