//! Substitutes `${NAME}` and `${NAME:-default}` in the values of `static.json`.
//!
//! Contract: an unset variable without a default is left as written, and listed in [`Filled::unset`]. Values
//! are not searched for further variables. With `compat` there are no defaults and no escape, as in the
//! buildpack.

/// Looks up an environment variable.
pub(super) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A text with its variables substituted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Filled {
    /// The text in pieces. Those from the escape `$${` are marked: they must not be parsed for variables again.
    pub pieces: Vec<TextPiece>,
    /// Names that are not set and have no default, each once.
    pub unset: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TextPiece {
    pub text: String,
    /// Escaped: stands for itself.
    pub literal: bool,
}

impl Filled {
    /// Returns the whole text.
    pub fn text(&self) -> String {
        self.pieces.iter().map(|piece| piece.text.as_str()).collect()
    }

    fn push(&mut self, text: &str, literal: bool) {
        match self.pieces.last_mut() {
            Some(last) if last.literal == literal => last.text.push_str(text),
            _ if text.is_empty() => {}
            _ => self.pieces.push(TextPiece { text: text.to_owned(), literal }),
        }
    }
}

pub(super) fn fill(text: &str, compat: bool, variables: Variables<'_>) -> Filled {
    let mut filled = Filled::default();
    let mut left = text;
    while let Some(at) = left.find("${") {
        let (before, found) = left.split_at(at);
        if !compat && let Some(before) = before.strip_suffix('$') {
            filled.push(before, false);
            filled.push("${", true);
            left = &found[2..];
            continue;
        }
        filled.push(before, false);
        let Some(reference) = Reference::read(&found[2..], compat) else {
            filled.push("${", false);
            left = &found[2..];
            continue;
        };
        let written = &found[..2 + reference.len];
        left = &found[written.len()..];
        let value =
            variables(reference.name).filter(|value| reference.default.is_none() || !value.is_empty());
        match value.as_deref().or(reference.default) {
            Some(value) => filled.push(value, false),
            None => {
                filled.push(written, false);
                if !filled.unset.iter().any(|name| name == reference.name) {
                    filled.unset.push(reference.name.to_owned());
                }
            }
        }
    }
    filled.push(left, false);
    filled
}

/// The text between `${` and `}`.
struct Reference<'a> {
    name: &'a str,
    default: Option<&'a str>,
    /// The length with the closing brace.
    len: usize,
}

impl<'a> Reference<'a> {
    /// Parses the text after `${`; `None` if it is not a reference.
    fn read(text: &'a str, compat: bool) -> Option<Reference<'a>> {
        let end = text.find(|c: char| c != '_' && !c.is_ascii_alphanumeric())?;
        let (name, after) = text.split_at(end);
        if name.is_empty() {
            return None;
        }
        if after.starts_with('}') {
            return Some(Reference { name, default: None, len: end + 1 });
        }
        let default = after.strip_prefix(":-").filter(|_| !compat)?;
        let close = default.find('}')?;
        Some(Reference { name, default: Some(&default[..close]), len: end + 2 + close + 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn environment(name: &str) -> Option<String> {
        match name {
            "HOST" => Some("api.example".to_owned()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${HOST}".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn variables_defaults_and_escapes() {
        let cases = [
            ("http://${HOST}/${HOST}", "http://api.example/api.example", &[][..]),
            ("${NOPE}/${NOPE}/x", "${NOPE}/${NOPE}/x", &["NOPE"]),
            ("${NOPE:-a b}${NOPE:-}", "a b", &[]),
            ("[${EMPTY}${EMPTY:-full}]", "[full]", &[]),
            ("${NESTED}", "${HOST}", &[]),
            ("$${HOST}$$${HOST}", "${HOST}$${HOST}", &[]),
            ("$HOST ${} ${a-b} ${ HOST} ${HOST", "$HOST ${} ${a-b} ${ HOST} ${HOST", &[]),
            ("${HOST:-${NOPE}}", "api.example}", &[]),
            ("", "", &[]),
        ];
        for (text, expected, unset) in cases {
            let filled = fill(text, false, &environment);
            assert_eq!(filled.text(), expected, "{text}");
            assert_eq!(filled.unset, unset, "{text}");
        }
    }

    #[test]
    fn compat_has_neither_default_nor_escape() {
        let filled = |text: &str| fill(text, true, &environment).text();
        assert_eq!(filled("${NOPE:-a}"), "${NOPE:-a}");
        assert_eq!(filled("$${HOST}"), "$api.example");
        assert_eq!(filled("${EMPTY}|${HOST}|${NOPE}"), "|api.example|${NOPE}");
    }

    proptest! {
        #[test]
        fn without_variables_only_escapes_change(text in "[$\\{\\}A:_é-]{0,30}") {
            let filled = fill(&text, true, &|_| None);
            prop_assert_eq!(filled.text(), text);
        }
    }
}
