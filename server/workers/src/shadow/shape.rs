//! The parts of a response that are compared, each with a name and a value.
//!
//! Contract: a shape has the names and types of a body, not its values; it is bounded in number and length; the same
//! response always has the same shape.

use super::{fields, html, json};
use handler::Fields;
use std::collections::BTreeMap;

/// The longest body that is read, in bytes. Of longer ones only the length is compared.
pub(super) const LONGEST_BODY: usize = 512 << 10;
/// The most parts of a response. Further ones are not compared.
const MOST_PARTS: usize = 1000;
/// The longest name and the longest value of a part, in bytes.
const LONGEST: usize = 200;

/// The name of the part whose difference explains all others.
pub(super) const STATUS: &str = "status";
/// The name of the part that may become less, or a little more.
pub(super) const QUERIES: &str = "queries";

/// The parts of a response: their names and values, such as `JSON $.posts[].title` and `string`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape(BTreeMap<String, String>);

impl Shape {
    /// Adds a part, unless there are too many.
    pub(super) fn put(&mut self, name: &str, value: &str) {
        let name = cut(name);
        if self.0.len() < MOST_PARTS || self.0.contains_key(name) {
            self.0.insert(name.to_owned(), cut(value).to_owned());
        }
    }

    /// Adds a value to those of a part, in alphabetical order.
    pub(super) fn add(&mut self, name: &str, value: &str) {
        let known = self.get(cut(name)).map(str::to_owned).unwrap_or_default();
        let mut values: Vec<&str> = known.split(" or ").filter(|one| !one.is_empty()).collect();
        if let Err(at) = values.binary_search(&value) {
            values.insert(at, value);
            self.put(name, &values.join(" or "));
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns the parts in the order of their names.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns whether it has as many parts as it may.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= MOST_PARTS
    }
}

/// Returns as much of a text as a part may have.
fn cut(text: &str) -> &str {
    let end = (0..=LONGEST.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

/// Returns the shape of a response with this body, which has `length` bytes and may be cut off.
pub fn shape(status: u16, headers: &Fields, body: &[u8], length: u64) -> Shape {
    let mut shape = Shape::default();
    shape.put(STATUS, &status.to_string());
    fields::put(headers, &mut shape);
    let media_type = fields::media_type(headers);
    let whole = body.len() as u64 == length;
    match media_type.as_str() {
        _ if length == 0 => {}
        json if whole && (json.ends_with("/json") || json.ends_with("+json")) => json::put(body, &mut shape),
        "text/html" | "application/xhtml+xml" if whole => html::put(body, &mut shape),
        _ => shape.put("length", &length_class(length)),
    }
    shape
}

/// Returns within which power of two a length is.
fn length_class(length: u64) -> String {
    let least = 1u64 << length.max(1).ilog2();
    format!("{least} to {} bytes", least.saturating_mul(2) - 1)
}

/// Returns a name without what differs between two of its kind: numbers become 0, and ids become `:id`.
pub(super) fn folded(name: &str) -> String {
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
    use proptest::prelude::*;

    fn of(media_type: &str, body: &[u8]) -> Shape {
        let mut fields = Fields::default();
        fields.push(b"Content-Type", media_type.as_bytes());
        shape(200, &fields, body, body.len() as u64)
    }

    #[test]
    fn other_types_and_bodies_that_are_cut_off_have_a_length() {
        let length = |shape: &Shape| shape.get("length").map(str::to_owned);
        assert_eq!(length(&of("text/css", &[b'x'; 700])).as_deref(), Some("512 to 1023 bytes"));
        assert_eq!(length(&of("application/json", b"{}")), None);
        let mut fields = Fields::default();
        fields.push(b"Content-Type", b"application/json");
        assert_eq!(length(&shape(200, &fields, b"{", 4000)).as_deref(), Some("2048 to 4095 bytes"));
    }

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

    proptest! {
        /// Any bytes of any type have a bounded shape, always the same.
        #[test]
        fn a_shape_is_bounded(
            media_type in prop_oneof![Just("application/json"), Just("text/html"), Just("text/plain"), Just("x")],
            body in prop::collection::vec(any::<u8>(), 0..4000),
        ) {
            let one = of(media_type, &body);
            prop_assert!(one.parts().count() <= MOST_PARTS);
            prop_assert!(one.parts().all(|(name, value)| name.len() <= LONGEST && value.len() <= LONGEST));
            prop_assert_eq!(one, of(media_type, &body));
        }

        /// Values of JSON do not matter, keys and types do.
        #[test]
        fn json_of_other_values_has_the_same_shape(one: u32, other: u32, texts in prop::collection::vec("[a-z<>\"]{0,20}", 2)) {
            let json = |number: u32, text: &str| {
                let text = serde_json::to_string(text).unwrap();
                format!("{{\"id\":{number},\"posts\":[{{\"title\":{text}}},{{\"title\":null}}]}}")
            };
            let (one, other) = (json(one, &texts[0]), json(other, &texts[1]));
            prop_assert_eq!(of("application/json", one.as_bytes()), of("application/json", other.as_bytes()));
        }
    }
}
