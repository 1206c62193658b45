//! Reads from a source file what its module names.

use std::collections::BTreeSet;

/// A name with its path, one string for each part.
type Name = Vec<String>;

/// The paths that a source file names outside of tests.
#[derive(Default)]
pub struct Source {
    /// The paths that begin with `crate`, `super` or `self`, each behind the modules inside the file that it stands in.
    pub names: Vec<(Name, Name)>,
    /// The names that `use` brings into the module of the file, and what they stand for.
    pub exports: Vec<(String, Name)>,
    /// The modules in files of their own that are declared under `#[cfg(test)]`.
    pub test_modules: BTreeSet<String>,
}

impl Source {
    pub fn read(text: &str) -> Self {
        let tokens = tokens(text);
        let mut source = Self::default();
        let (mut depth, mut inner, mut at) = (0, Vec::<(usize, String)>::new(), 0);
        while let [first, rest @ ..] = &tokens[at..] {
            at += 1;
            let is = |offset: usize, text: &str| rest.get(offset).is_some_and(|token| token == text);
            match first.as_str() {
                "#" if is(1, "cfg") && (is(3, "test") || is(3, "all") && is(5, "test")) => {
                    let item = &rest[..item(rest)];
                    if let [.., word, name, end] = item
                        && (word.as_str(), end.as_str()) == ("mod", ";")
                    {
                        source.test_modules.insert(name.clone());
                    }
                    at += item.len();
                }
                "mod" if is(1, "{") => inner.push((depth, rest[0].clone())),
                "{" => depth += 1,
                "}" => {
                    depth = depth.saturating_sub(1);
                    inner.pop_if(|module| module.0 == depth);
                }
                "use" | "crate" | "super" | "self" if first == "use" || is(0, "::") => {
                    let start = if first == "use" { at } else { at - 1 };
                    let mut names = Vec::new();
                    at = start + tree(&tokens[start..], &[], &mut names);
                    let place: Name = inner.iter().map(|(_, name)| name.clone()).collect();
                    if first == "use" && place.is_empty() {
                        source
                            .exports
                            .extend(names.iter().map(|(name, export)| (export.clone(), name.clone())));
                    }
                    source.names.extend(names.into_iter().map(|(name, _)| (place.clone(), name)));
                }
                _ => {}
            }
        }
        source
    }
}

/// Reads a path, or the tree of paths of a `use`: each with the name that it has here. Returns the number of
/// its tokens.
fn tree(tokens: &[String], before: &[String], names: &mut Vec<(Name, String)>) -> usize {
    let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token == text);
    let word = |at: usize| {
        tokens.get(at).is_some_and(|token| token.starts_with(|c: char| c.is_alphabetic() || c == '_'))
    };
    let (mut name, mut at) = (before.to_vec(), 0);
    loop {
        if is(at, "{") {
            at += 1;
            while at < tokens.len() && !is(at, "}") {
                at += tree(&tokens[at..], &name, names).max(1);
                at += usize::from(is(at, ","));
            }
            return at + 1;
        }
        if !word(at) {
            break;
        }
        // `use a::{self}` is `a`.
        if tokens[at] != "self" || name.is_empty() {
            name.push(tokens[at].clone());
        }
        at += 1;
        if !is(at, "::") || !(word(at + 1) || is(at + 1, "{")) {
            break;
        }
        at += 1;
    }
    let Some(last) = name.last().cloned() else { return at };
    let renamed = is(at, "as");
    names.push((name, if renamed { tokens[at + 1].clone() } else { last }));
    // The `*` of a glob stays behind its path.
    at + if renamed || is(at + 1, "*") { 2 } else { 0 }
}

/// Returns the number of tokens of an item behind the `#` of its attribute.
fn item(tokens: &[String]) -> usize {
    let (mut depth, mut is_use) = (0, false);
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "use" => is_use = true,
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 0 => return at,
            ")" | "]" | "}" => {
                depth -= 1;
                if depth == 0 && token == "}" && !is_use {
                    return at + 1;
                }
            }
            ";" | "," if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Splits a text into words, `::` and single characters, without comments and literals.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            comment(rest)
        } else if first == '"' {
            literal(rest, '"')
        } else if first == '\'' {
            // A lifetime is no literal.
            let mut chars = rest[1..].chars();
            if chars.next() == Some('\\') || chars.next() == Some('\'') { literal(rest, '\'') } else { 1 }
        } else if word > 0 {
            let hashes = rest[word..].bytes().take_while(|byte| *byte == b'#').count();
            if matches!(&rest[..word], "r" | "br" | "cr") && rest[word + hashes..].starts_with('"') {
                let start = word + hashes + 1;
                let end = format!("\"{}", "#".repeat(hashes));
                rest[start..].find(&end).map_or(rest.len(), |at| start + at + end.len())
            } else {
                tokens.push(rest[..word].to_owned());
                word
            }
        } else if rest.starts_with("::") {
            tokens.push("::".to_owned());
            2
        } else {
            if !first.is_whitespace() {
                tokens.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

/// Returns the length of a comment, with those inside it.
fn comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        match text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// Returns the length of a literal that ends with this character.
fn literal(text: &str, end: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == end => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[test]
fn the_paths_of_a_file_are_read() {
    let names = |text: &str| {
        let names = Source::read(text).names.into_iter();
        names.map(|(inner, name)| [inner, name].concat().join("::")).collect::<Vec<_>>()
    };
    assert_eq!(
        names("use crate::{a::{self, B as C}, d::*, super_::E};"),
        ["crate::a", "crate::a::B", "crate::d", "crate::super_::E"]
    );
    assert_eq!(
        names("fn f<'a>(x: &'a super::X<u8>) { self::y::<u8>('\\'', '\"'); self.z() }"),
        ["super::X", "self::y"]
    );
    assert_eq!(names("mod a { fn f() { super::x() } } fn g() { super::y() }"), ["a::super::x", "super::y"]);
    assert_eq!(names("r#\"crate::a \" \"#; /* /* */ crate::b */ \"\\\"crate::c\"; crate::d"), ["crate::d"]);
    assert_eq!(names("struct S { #[cfg(test)] a: crate::a::A, b: crate::b::B }"), ["crate::b::B"]);
}

#[test]
fn a_name_that_is_brought_in_has_its_new_name() {
    let exports = Source::read("pub use a::{B as C, D}; fn f() { crate::e() }").exports;
    let exports: Vec<_> = exports.into_iter().map(|(export, name)| (export, name.join("::"))).collect();
    assert_eq!(exports, [("C".to_owned(), "a::B".to_owned()), ("D".to_owned(), "a::D".to_owned())]);
}
