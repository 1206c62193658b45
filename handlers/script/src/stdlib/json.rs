//! `JSON.generate` and `JSON.parse`.
//!
//! Contract: the output is JSON (UTF-8, no NaN), with numbers in Ruby's form. The input is the JSON that
//! serde_json accepts; integers beyond 64 bits become Floats. The maximum nesting is [`MAX_NESTING`], which
//! is also the tape's.

use mruby::{Tape, TapeValue};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt::Write as _;

/// The maximum nesting of arrays and objects: Ruby's own limit.
const MAX_NESTING: i64 = 100;

/// `value, pretty, raw`: returns text. With `raw`, a Hash whose only key is a Symbol holds JSON text; the
/// caller has converted all other Symbols to Strings.
pub(super) fn generate(args: &[TapeValue<'_>], tape: &mut Tape) {
    let Some(value) = args.first() else { return };
    let flag = |index: usize| args.get(index) == Some(&TapeValue::Bool(true));
    let mut writer = Writer { out: Vec::with_capacity(128), pretty: flag(1), raw: flag(2), depth: 0 };
    match writer.value(value) {
        Ok(()) => tape.str(&writer.out),
        Err(why) => tape.fault("JSON::GeneratorError", why),
    };
}

struct Writer {
    out: Vec<u8>,
    pretty: bool,
    raw: bool,
    depth: usize,
}

impl Writer {
    fn value(&mut self, value: &TapeValue<'_>) -> Result<(), String> {
        match value {
            TapeValue::Nil => self.out.extend_from_slice(b"null"),
            TapeValue::Bool(true) => self.out.extend_from_slice(b"true"),
            TapeValue::Bool(false) => self.out.extend_from_slice(b"false"),
            TapeValue::Int(number) => push_int(&mut self.out, *number),
            TapeValue::Float(number) if number.is_finite() => {
                self.out.extend_from_slice(float(*number).as_bytes());
            }
            TapeValue::Float(number) => return Err(format!("{} not allowed in JSON", not_finite(*number))),
            TapeValue::Str(text) | TapeValue::Sym(text) => self.text(text)?,
            TapeValue::Array(values) => self.nested(b'[', values.iter(), b']', Writer::value)?,
            TapeValue::Hash(pairs) => match pairs.as_slice() {
                [(TapeValue::Sym(_), TapeValue::Str(json))] if self.raw => self.out.extend_from_slice(json),
                pairs => self.nested(b'{', pairs.iter(), b'}', Writer::pair)?,
            },
        }
        Ok(())
    }

    fn pair(&mut self, (key, value): &(TapeValue<'_>, TapeValue<'_>)) -> Result<(), String> {
        match key {
            TapeValue::Str(text) | TapeValue::Sym(text) => self.text(text)?,
            TapeValue::Nil => self.text(b"")?,
            TapeValue::Bool(key) => self.text(key.to_string().as_bytes())?,
            TapeValue::Int(number) => self.text(number.to_string().as_bytes())?,
            TapeValue::Float(number) if number.is_finite() => self.text(float(*number).as_bytes())?,
            TapeValue::Float(number) => self.text(not_finite(*number).as_bytes())?,
            TapeValue::Array(_) | TapeValue::Hash(_) => {
                return Err(String::from("a key must be a String, Symbol, number, true, false or nil"));
            }
        }
        self.out.extend_from_slice(if self.pretty { b": " } else { b":" });
        self.value(value)
    }

    fn nested<T>(
        &mut self,
        open: u8,
        parts: impl ExactSizeIterator<Item = T>,
        close: u8,
        write: fn(&mut Writer, T) -> Result<(), String>,
    ) -> Result<(), String> {
        let empty = parts.len() == 0;
        self.out.push(open);
        self.depth += 1;
        for (index, part) in parts.enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            self.line();
            write(self, part)?;
        }
        self.depth -= 1;
        if !empty {
            self.line();
        }
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self) {
        if self.pretty {
            self.out.push(b'\n');
            self.out.extend(std::iter::repeat_n(b' ', 2 * self.depth));
        }
    }

    fn text(&mut self, text: &[u8]) -> Result<(), String> {
        let Ok(text) = std::str::from_utf8(text) else {
            return Err(format!("source sequence is illegal/malformed utf-8: {}", shortened(text)));
        };
        // Writing to memory cannot fail.
        serde_json::to_writer(&mut self.out, text).map_err(|error| error.to_string())
    }
}

fn push_int(out: &mut Vec<u8>, number: i64) {
    use std::io::Write as _;
    // Writing to memory cannot fail.
    let _ = write!(out, "{number}");
}

fn shortened(text: &[u8]) -> String {
    text[..text.len().min(40)].escape_ascii().to_string()
}

fn not_finite(number: f64) -> &'static str {
    match number {
        number if number.is_nan() => "NaN",
        number if number > 0.0 => "Infinity",
        _ => "-Infinity",
    }
}

/// Formats a number as Ruby's `Float#to_s` does: the fewest digits that represent it, with an exponent below
/// 1e-4 and from 1e15 on.
pub(super) fn float(number: f64) -> String {
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if number == 0.0 || (-4..15).contains(&exponent) {
        return format!("{number:?}");
    }
    let mut scientific = String::from(digits);
    if !digits.contains('.') {
        scientific.push_str(".0");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    let _ = write!(scientific, "e{sign}{:02}", exponent.abs());
    scientific
}

/// `text, symbolize_names, max_nesting`: returns the value.
pub(super) fn parse(args: &[TapeValue<'_>], tape: &mut Tape) {
    let text = args.first().and_then(TapeValue::text).unwrap_or_default();
    let names = if args.get(1) == Some(&TapeValue::Bool(true)) { Names::Symbols } else { Names::Strings };
    let nesting = args.get(2).and_then(TapeValue::int).unwrap_or(MAX_NESTING).clamp(0, MAX_NESTING);
    match serde_json::from_slice::<Node<'_>>(text) {
        Ok(node) => {
            if let Err(depth) = node.put(tape, names, 0, nesting) {
                tape.clear().fault("JSON::NestingError", format!("nesting of {depth} is too deep"));
            }
        }
        Err(error) if error.to_string().starts_with("recursion limit") => {
            tape.fault("JSON::NestingError", format!("nesting is too deep: {error}"));
        }
        Err(error) => {
            let text = String::from_utf8_lossy(text);
            let line = text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default();
            let line: String = line.chars().take(60).collect();
            let colon = if line.is_empty() { "" } else { ": " };
            tape.fault("JSON::ParserError", format!("{error}{colon}{line}"));
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Names {
    Strings,
    Symbols,
}

/// A parsed document. Strings without escapes borrow from it.
enum Node<'a> {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Cow<'a, str>),
    Array(Vec<Node<'a>>),
    Object(Vec<(Name<'a>, Node<'a>)>),
}

struct Name<'a>(Cow<'a, str>);

impl Node<'_> {
    fn put(&self, tape: &mut Tape, names: Names, depth: i64, most: i64) -> Result<(), i64> {
        match self {
            Node::Array(_) | Node::Object(_) if depth >= most => return Err(depth + 1),
            Node::Nil => tape.nil().done(),
            Node::Bool(value) => tape.bool(*value).done(),
            Node::Int(number) => tape.int(*number).done(),
            Node::Float(number) => tape.float(*number).done(),
            Node::Text(text) => tape.str(text.as_bytes()).done(),
            Node::Array(nodes) => {
                tape.array(nodes.len() as u32);
                for node in nodes {
                    node.put(tape, names, depth + 1, most)?;
                }
            }
            Node::Object(pairs) => {
                tape.hash(pairs.len() as u32);
                for (Name(name), node) in pairs {
                    match names {
                        Names::Strings => tape.str(name.as_bytes()),
                        Names::Symbols => tape.sym(name),
                    };
                    node.put(tape, names, depth + 1, most)?;
                }
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Key;
        impl<'de> Visitor<'de> for Key {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }
        from.deserialize_str(Key)
    }
}

impl<'de> Deserialize<'de> for Node<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Node<'de>, E> {
        Ok(Node::Nil)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node<'de>, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node<'de>, E> {
        Ok(Node::Int(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node<'de>, E> {
        Ok(i64::try_from(number).map_or(Node::Float(number as f64), Node::Int))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Node<'de>, E> {
        Ok(Node::Float(number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Node<'de>, E> {
        Ok(Node::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node<'de>, E> {
        Ok(Node::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Node<'de>, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = from.next_element()? {
            nodes.push(node);
        }
        Ok(Node::Array(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Node<'de>, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = from.next_entry()? {
            pairs.push(pair);
        }
        Ok(Node::Object(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn floats_are_written_as_ruby_does() {
        let numbers = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.5, "1.5"),
            (100.0, "100.0"),
            (0.0001, "0.0001"),
            (0.00001, "1.0e-05"),
            (1e14, "100000000000000.0"),
            (1e15, "1.0e+15"),
            (1e16, "1.0e+16"),
            (12345678901234567.0, "1.2345678901234568e+16"),
            (1e100, "1.0e+100"),
            (-2.5e-7, "-2.5e-07"),
        ];
        for (number, text) in numbers {
            assert_eq!(float(number), text);
        }
    }

    fn written(value: &serde_json::Value, tape: &mut Tape) {
        match value {
            serde_json::Value::Null => tape.nil().done(),
            serde_json::Value::Bool(value) => tape.bool(*value).done(),
            serde_json::Value::Number(number) => match number.as_i64() {
                Some(number) => tape.int(number).done(),
                None => tape.float(number.as_f64().unwrap()).done(),
            },
            serde_json::Value::String(text) => tape.str(text).done(),
            serde_json::Value::Array(values) => {
                tape.array(values.len() as u32);
                values.iter().for_each(|value| written(value, tape));
            }
            serde_json::Value::Object(pairs) => {
                tape.hash(pairs.len() as u32);
                for (key, value) in pairs {
                    tape.str(key);
                    written(value, tape);
                }
            }
        }
    }

    fn anything() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(serde_json::Value::from),
            any::<i64>().prop_map(serde_json::Value::from),
            any::<f64>()
                .prop_filter("JSON has no other", |n| n.is_finite())
                .prop_map(serde_json::Value::from),
            any::<String>().prop_map(serde_json::Value::from),
        ];
        leaf.prop_recursive(5, 64, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
                proptest::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|pairs| serde_json::Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_serde_reads(value in anything(), pretty: bool) {
            let mut tape = Tape::new();
            written(&value, &mut tape);
            let ruby = TapeValue::read(tape.as_bytes()).unwrap();
            let mut answer = Tape::new();
            generate(&[ruby, TapeValue::Bool(pretty)], &mut answer);
            let Some(TapeValue::Str(text)) = TapeValue::read(answer.as_bytes()) else { panic!("no text") };
            prop_assert_eq!(serde_json::from_slice::<serde_json::Value>(text).unwrap(), value);
        }

        #[test]
        fn what_is_read_is_what_serde_wrote(value in anything()) {
            let text = serde_json::to_vec(&value).unwrap();
            let (mut read, mut expected) = (Tape::new(), Tape::new());
            parse(&[TapeValue::Str(&text)], &mut read);
            written(&value, &mut expected);
            prop_assert_eq!(read.as_bytes(), expected.as_bytes());
        }

        #[test]
        fn any_bytes_are_a_value_or_an_error(text: Vec<u8>) {
            let mut answer = Tape::new();
            parse(&[TapeValue::Str(&text)], &mut answer);
            let failed = answer.as_bytes().first() == Some(&b'!');
            prop_assert_eq!(failed, serde_json::from_slice::<serde_json::Value>(&text).is_err());
        }
    }
}
