//! Parses JSON with source positions: a small tree over `jsonc-parser`, which gives ranges. Anything that is
//! not JSON is refused.
//!
//! Contract: strict RFC 8259, except that the text must be an object. Nesting is limited, so no text can
//! exhaust the stack.

use jsonc_parser::{ParseOptions, ast, common::Ranged};

use super::nearest::nearest;
use super::source::{RuleMistake, Source, SourceSpan};

/// The deepest nesting; rules need five levels.
const MAX_DEPTH: usize = 32;
/// The largest file, in bytes.
const MAX_LENGTH: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub value: Value,
    pub at: SourceSpan,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// As written.
    Number(String),
    String(String),
    Array(Vec<Node>),
    Object(Vec<Member>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Member {
    pub key: String,
    /// The position of the key.
    pub at: SourceSpan,
    pub node: Node,
}

impl Value {
    /// Returns the value as error messages show it.
    pub fn found(&self) -> String {
        match self {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Number(value) => format!("the number {value}"),
            Value::String(value) if value.chars().count() <= 40 => format!("the string {value:?}"),
            Value::String(_) => "a string".to_owned(),
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
        }
    }
}

/// Parses `source`, which must be an object.
pub(super) fn parse(source: &Source) -> Result<Vec<Member>, RuleMistake> {
    let text = source.text.as_str();
    let refused = |start: usize, end: usize, why: &str| Err(source.mistake(source.span(start, end), why));
    if text.len() > MAX_LENGTH {
        return refused(0, 0, "the file is larger than 1 MiB: expected a few rules");
    }
    if text.starts_with('\u{feff}') {
        return refused(0, 0, "the file begins with a byte order mark: save it as UTF-8 without BOM");
    }
    if text.trim_matches([' ', '\t', '\r', '\n']).is_empty() {
        return refused(0, 0, "the file is empty: expected an object, at least {}");
    }
    precheck(source)?;
    let parsed = jsonc_parser::parse_to_ast(text, &Default::default(), &strict());
    let value = match parsed {
        Ok(parsed) => parsed.value,
        Err(error) => {
            let range = error.range();
            let message = error.kind().to_string();
            let why = misspelt(text, range.start, &message).unwrap_or_else(|| sentence(&message));
            return refused(range.start, range.end, &why);
        }
    };
    match value.map(|value| node(source, value)) {
        Some(Node { value: Value::Object(members), .. }) => Ok(members),
        Some(Node { value, at }) => Err(source.mistake(
            SourceSpan { end: at.start + 1, ..at },
            format!("expected an object {{…}} at the top, found {}", value.found()),
        )),
        None => refused(0, 0, "the file is empty: expected an object, at least {}"),
    }
}

fn strict() -> ParseOptions {
    ParseOptions {
        allow_comments: false,
        allow_loose_object_property_names: false,
        allow_trailing_commas: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

/// Refuses control characters, non-JSON whitespace and deep nesting before any recursion.
fn precheck(source: &Source) -> Result<(), RuleMistake> {
    let mut depth = 0usize;
    let (mut inside, mut escaped) = (false, false);
    for (at, c) in source.text.char_indices() {
        let refused = |why: String| Err(source.mistake(source.span(at, at + c.len_utf8()), why));
        match c {
            '\0' => return refused("a NUL character: is this a text file?".to_owned()),
            c if inside && c < ' ' => {
                let name = c.escape_default();
                return refused(format!(
                    "a string may not contain {name} unescaped: close it with \", or write {name}"
                ));
            }
            c if !inside
                && c != ' '
                && !matches!(c, '\t' | '\r' | '\n')
                && (c.is_whitespace() || c.is_control()) =>
            {
                return refused(format!("unexpected character U+{:04X} between values", c as u32));
            }
            _ if escaped => escaped = false,
            '\\' if inside => escaped = true,
            '"' => inside = !inside,
            '{' | '[' if !inside => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return refused(format!("nested more than {MAX_DEPTH} levels deep"));
                }
            }
            '}' | ']' if !inside => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the message for a bare word that resembles `true`, `false` or `null` in the place of a value.
fn misspelt(text: &str, start: usize, message: &str) -> Option<String> {
    if !matches!(message, "Unexpected word" | "Unexpected token") {
        return None;
    }
    let (before, rest) = text.split_at_checked(start)?;
    if !before.trim_end().ends_with([':', '[']) {
        return None;
    }
    let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
    let meant = nearest(&rest[..end], ["true", "false", "null"])?;
    Some(format!("expected a value; did you mean {meant}? (text needs double quotes)"))
}

/// Rewrites the parser's message in this file's style, with a hint for common mistakes.
fn sentence(text: &str) -> String {
    match text {
        "Trailing commas are not allowed" => "a comma with nothing after it: remove it".to_owned(),
        "Comments are not allowed" => "comments are not part of JSON: remove it".to_owned(),
        "Single-quoted strings are not allowed" => "strings are written in double quotes".to_owned(),
        "Expected comma" => "expected a comma between entries".to_owned(),
        "Expected colon after the string or word in object property" => {
            "expected a colon after the key".to_owned()
        }
        "Unexpected close brace" => "expected a value, found }".to_owned(),
        "Unexpected close bracket" => "expected a value, found ]".to_owned(),
        "Unexpected comma" => "expected a value, found a comma".to_owned(),
        "Expected string for object property" => "expected a key in double quotes".to_owned(),
        "Unexpected token in object" => "expected a key in double quotes, or }".to_owned(),
        "Unexpected word" | "Unexpected token" => "expected a value; text needs double quotes".to_owned(),
        "Unterminated object" => "this { is never closed".to_owned(),
        "Unterminated array" => "this [ is never closed".to_owned(),
        "Unterminated string literal" => "this string is never closed".to_owned(),
        "Text cannot contain more than one JSON value" => {
            "something follows the end of the object".to_owned()
        }
        other => {
            let mut chars = other.chars();
            chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
        }
    }
}

fn node(source: &Source, value: ast::Value<'_>) -> Node {
    let range = value.range();
    let at = source.span(range.start, range.end);
    let value = match value {
        ast::Value::NullKeyword(_) => Value::Null,
        ast::Value::BooleanLit(value) => Value::Bool(value.value),
        ast::Value::NumberLit(value) => Value::Number(value.value.to_owned()),
        ast::Value::StringLit(value) => Value::String(value.value.into_owned()),
        ast::Value::Array(list) => {
            Value::Array(list.elements.into_iter().map(|value| node(source, value)).collect())
        }
        ast::Value::Object(object) => {
            let member = |property: ast::ObjectProp<'_>| {
                let range = property.name.range();
                let at = source.span(range.start, range.end);
                Member { key: property.name.into_string(), at, node: node(source, property.value) }
            };
            Value::Object(object.properties.into_iter().map(member).collect())
        }
    };
    Node { value, at }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn source(text: &str) -> Source {
        Source::new("static.json", text)
    }

    fn refusal(text: &str) -> String {
        parse(&source(text)).unwrap_err().to_string()
    }

    #[test]
    fn invalid_texts_are_refused_with_a_position() {
        let deep = "[".repeat(100_000);
        let cases = [
            ("", "static.json:1:1: the file is empty"),
            (" \r\n", "static.json:1:1: the file is empty"),
            ("\u{feff}{}", "static.json:1:1: the file begins with a byte order mark"),
            ("[]", "static.json:1:1: expected an object {…} at the top, found a list"),
            ("\r\n\r\ntrue", "static.json:3:1: expected an object {…} at the top, found true"),
            ("{\"a\": \"\0\"}", "static.json:1:8: a NUL character"),
            ("{\"a\": \"x\n\"}", "static.json:1:9: a string may not contain \\n unescaped"),
            ("{\n  \"a\": 1,\n}", "a comma with nothing after it"),
            ("{ // x\n}", "comments are not part of JSON"),
            ("{\"a\": 1 \"b\": 2}", "expected a comma"),
            ("{'a': 1}", "strings are written in double quotes"),
            ("{\u{a0}}", "static.json:1:2: unexpected character U+00A0"),
            (&deep, "static.json:1:33: nested more than 32 levels deep"),
            ("{", "static.json:1:1: this { is never closed"),
            ("{\"a\": \n}", "static.json:2:1: expected a value, found }"),
            ("{\"a\": [1", "static.json:1:7: this [ is never closed"),
            ("{\"a\": \"x", "static.json:1:7: this string is never closed"),
            ("{\"a\": 1,, \"b\": 2}", "expected a key in double quotes, or }"),
            ("{\"a\": yes}", "static.json:1:7: expected a value; text needs double quotes"),
            ("{\"a\": flase}", "static.json:1:7: expected a value; did you mean false? (text needs"),
            ("{\"a\": True }", "static.json:1:7: expected a value; did you mean true?"),
            ("{\"a\": [nul]}", "static.json:1:8: expected a value; did you mean null?"),
            ("{\"a\" 1}", "expected a colon after the key"),
            ("{bad", "static.json:1:2: expected a key in double quotes"),
            ("{}{}", "static.json:1:3: something follows the end of the object"),
        ];
        for (text, expected) in cases {
            let refusal = refusal(text);
            assert!(refusal.contains(expected), "{expected}: {refusal}");
            assert_eq!(refusal.lines().count(), 3, "{refusal}");
        }
    }

    fn plain(node: &Node) -> serde_json::Value {
        match &node.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Number(value) => serde_json::from_str(value).unwrap(),
            Value::String(value) => value.as_str().into(),
            Value::Array(list) => list.iter().map(plain).collect(),
            Value::Object(members) => object(members),
        }
    }

    fn object(members: &[Member]) -> serde_json::Value {
        serde_json::Value::Object(members.iter().map(|m| (m.key.clone(), plain(&m.node))).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        // serde_json is the reference: the parser accepts the same texts with the same meaning, and nothing else.
        #[test]
        fn agrees_with_serde_json(text in r#"\{("[a-z\\u0é"]{0,4}":?|[\[\]{}:, ]|true|null|-?[0-9.e+]{1,3}|'|//|\t|\\){0,12}\}"#) {
            let judge: Option<serde_json::Value> = serde_json::from_str(&text).ok();
            match (parse(&source(&text)), judge) {
                (Ok(members), Some(judged)) => prop_assert_eq!(object(&members), judged),
                (Err(_), None) => {}
                // The two may limit the size of numbers differently.
                (ours, judged) => prop_assert!(ours.is_err() == judged.is_none(), "{text}: {ours:?} {judged:?}"),
            }
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,200}") {
            let _ = parse(&source(&text));
        }
    }
}
