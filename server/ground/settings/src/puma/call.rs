//! A call that a `puma.rb` made, and its encoding as a list of words.
//!
//! Contract: malformed words are an error, never a panic.

use std::fmt;
use std::path::PathBuf;

/// A Ruby value.
#[derive(Clone, Debug, PartialEq)]
pub enum PumaValue {
    /// `nil`
    Nil,
    /// `true`, `false`
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    Symbol(String),
    List(Vec<PumaValue>),
    Map(Vec<(PumaValue, PumaValue)>),
    /// Any other object, by the name of its class.
    Object(String),
}

/// A call of a DSL method.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The path for messages.
    pub file: PathBuf,
    /// Counted from 1.
    pub line: usize,
    pub method: String,
    pub arguments: Vec<PumaValue>,
    /// Whether the call has a block.
    pub block: bool,
    /// Whether a condition decides that the call is made, or with which value.
    pub conditional: bool,
}

/// Writes the value in Ruby's syntax on one line.
impl fmt::Display for PumaValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, open: &str, parts: Vec<String>, close: &str| {
            write!(f, "{open}{}{close}", parts.join(", "))
        };
        match self {
            PumaValue::Nil => write!(f, "nil"),
            PumaValue::Bool(on) => write!(f, "{on}"),
            PumaValue::Integer(number) => write!(f, "{number}"),
            PumaValue::Float(number) => write!(f, "{number}"),
            PumaValue::Text(text) => write!(f, "{text:?}"),
            PumaValue::Symbol(text) => write!(f, ":{}", text.escape_debug()),
            PumaValue::List(parts) => list(f, "[", parts.iter().map(PumaValue::to_string).collect(), "]"),
            PumaValue::Map(pairs) => {
                let pair = |(key, value): &(PumaValue, PumaValue)| match key {
                    PumaValue::Symbol(key) => format!("{}: {}", key.escape_debug(), shown(key, value)),
                    PumaValue::Text(name) => format!("{key} => {}", shown(name, value)),
                    key => format!("{key} => {value}"),
                };
                list(f, "", pairs.iter().map(pair).collect(), "")
            }
            PumaValue::Object(class) => write!(f, "#<{}>", class.escape_debug()),
        }
    }
}

/// Returns the value as text; hides tokens and keys.
fn shown(key: &str, value: &PumaValue) -> String {
    let secret = ["auth_token", "cert_pem", "key_pem"].contains(&key);
    if secret { "(not shown)".to_owned() } else { value.to_string() }
}

/// Writes the call roughly as in the file: `threads 1, 5`.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments: Vec<String> = self.arguments.iter().map(PumaValue::to_string).collect();
        let block = if self.block { " { }" } else { "" };
        let space = if arguments.is_empty() { "" } else { " " };
        write!(f, "{}{space}{}{block}", self.method.escape_debug(), arguments.join(", "))
    }
}

impl Call {
    /// Returns the argument at a position, or `None` if it is missing or `nil`.
    pub(super) fn argument(&self, place: usize) -> Option<&PumaValue> {
        self.arguments.get(place).filter(|value| **value != PumaValue::Nil)
    }

    /// Returns an option of the Hash that is the last argument.
    pub(super) fn option(&self, name: &str) -> Option<&PumaValue> {
        let Some(PumaValue::Map(pairs)) = self.arguments.last() else { return None };
        let is_it =
            |key: &PumaValue| matches!(key, PumaValue::Symbol(key) | PumaValue::Text(key) if key == name);
        pairs
            .iter()
            .find(|(key, _)| is_it(key))
            .map(|(_, value)| value)
            .filter(|value| **value != PumaValue::Nil)
    }

    /// Decodes calls from words.
    ///
    /// # Errors
    /// The words are malformed; the message says where.
    pub fn decode(words: &[&str]) -> Result<Vec<Call>, String> {
        let mut words = Words(words);
        let mut calls = Vec::new();
        while !words.0.is_empty() {
            let (file, line, method) = (words.next()?, words.next()?, words.next()?);
            let (about, count) = (number::<u8>(words.next()?)?, words.next()?);
            let line = number(line)?;
            let count: usize = number(count)?;
            let arguments = (0..count).map(|_| words.value(0)).collect::<Result<_, _>>()?;
            calls.push(Call {
                file: file.into(),
                line,
                method: method.to_owned(),
                arguments,
                block: about & 1 != 0,
                conditional: about & 2 != 0,
            });
        }
        Ok(calls)
    }
}

/// The maximum depth of nested lists.
const DEPTH: usize = 16;

struct Words<'a>(&'a [&'a str]);

impl<'a> Words<'a> {
    fn next(&mut self) -> Result<&'a str, String> {
        let (first, rest) = self.0.split_first().ok_or("the words end too early")?;
        self.0 = rest;
        Ok(first)
    }

    fn value(&mut self, depth: usize) -> Result<PumaValue, String> {
        let word = self.next()?;
        let kind = word.chars().next().ok_or("a value without its kind")?;
        let rest = &word[kind.len_utf8()..];
        if depth > DEPTH {
            return Err("values are nested too deeply".to_owned());
        }
        Ok(match kind {
            'n' => PumaValue::Nil,
            't' => PumaValue::Bool(true),
            'f' => PumaValue::Bool(false),
            'i' => PumaValue::Integer(number(rest)?),
            'd' => PumaValue::Float(number(rest)?),
            's' => PumaValue::Text(rest.to_owned()),
            'y' => PumaValue::Symbol(rest.to_owned()),
            'o' => PumaValue::Object(rest.to_owned()),
            'l' => {
                let count: usize = number(rest)?;
                PumaValue::List((0..count).map(|_| self.value(depth + 1)).collect::<Result<_, _>>()?)
            }
            'h' => {
                let count: usize = number(rest)?;
                let pair = |_| Ok::<_, String>((self.value(depth + 1)?, self.value(depth + 1)?));
                PumaValue::Map((0..count).map(pair).collect::<Result<_, _>>()?)
            }
            other => return Err(format!("a value of the kind {other:?}")),
        })
    }
}

pub(super) fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} where a number belongs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn calls_are_decoded() {
        let words = [
            "config/puma.rb",
            "3",
            "threads",
            "0",
            "2",
            "i1",
            "s5",
            "config/puma.rb",
            "7",
            "ssl_bind",
            "1",
            "2",
            "s0.0.0.0",
            "h2",
            "ycert",
            "sa.pem",
            "ykeys",
            "l2",
            "n",
            "dInfinity",
        ];
        let calls = Call::decode(&words).unwrap();
        assert_eq!(calls[0].to_string(), "threads 1, \"5\"");
        assert_eq!((calls[1].line, calls[1].block), (7, true));
        assert_eq!(calls[1].to_string(), "ssl_bind \"0.0.0.0\", cert: \"a.pem\", keys: [nil, inf] { }");
        assert_eq!(calls[1].option("cert"), Some(&PumaValue::Text("a.pem".into())));
        assert_eq!(calls[1].option("key"), None);
    }

    #[test]
    fn tokens_are_not_shown() {
        let options =
            PumaValue::Map(vec![(PumaValue::Symbol("auth_token".into()), PumaValue::Text("geheim".into()))]);
        assert!(!options.to_string().contains("geheim"));
    }

    #[test]
    fn what_is_no_call_is_refused() {
        for words in [
            &["f", "x", "m", "0", "0"][..],
            &["f", "1", "m", "0", "1"],
            &["f", "1", "m", "0", "1", ""],
            &["f", "1", "m", "0", "1", "l9"],
            &["f", "1", "m", "0", "1", "z"],
        ] {
            assert!(Call::decode(words).is_err(), "{words:?}");
        }
        let deep = vec!["l1"; 40];
        let words: Vec<&str> = ["f", "1", "m", "0", "1"].into_iter().chain(deep).collect();
        assert!(Call::decode(&words).is_err());
    }

    proptest! {
        #[test]
        fn any_words_are_read_or_refused(words in proptest::collection::vec("[a-z0-9]{0,3}", 0..24)) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let _ = Call::decode(&words).is_ok();
        }
    }
}
