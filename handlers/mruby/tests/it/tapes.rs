//! Tests that tapes are read as they were written, and that malformed ones are rejected.

use mruby::{Reader, Tape, TapeValue};
use proptest::prelude::*;

/// A value that owns its texts.
#[derive(Debug, Clone)]
enum Owned {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(Vec<u8>),
    Array(Vec<Owned>),
    Hash(Vec<(Owned, Owned)>),
}

impl Owned {
    fn lent(&self) -> TapeValue<'_> {
        match self {
            Owned::Nil => TapeValue::Nil,
            Owned::Bool(value) => TapeValue::Bool(*value),
            Owned::Int(number) => TapeValue::Int(*number),
            Owned::Float(number) => TapeValue::Float(*number),
            Owned::Str(text) => TapeValue::Str(text),
            Owned::Array(values) => TapeValue::Array(values.iter().map(Owned::lent).collect()),
            Owned::Hash(pairs) => TapeValue::Hash(pairs.iter().map(|(k, v)| (k.lent(), v.lent())).collect()),
        }
    }
}

fn values() -> impl Strategy<Value = Owned> {
    let leaf = prop_oneof![
        Just(Owned::Nil),
        any::<bool>().prop_map(Owned::Bool),
        any::<i64>().prop_map(Owned::Int),
        (-1e9..1e9f64).prop_map(Owned::Float),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(Owned::Str),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Owned::Array),
            prop::collection::vec((inner.clone(), inner), 0..6).prop_map(Owned::Hash),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(value in values()) {
        let mut tape = Tape::new();
        tape.value(&value.lent());
        prop_assert_eq!(TapeValue::read(tape.as_bytes()), Some(value.lent()));
        for cut in 0..tape.as_bytes().len() {
            prop_assert_eq!(TapeValue::read(&tape.as_bytes()[..cut]), None);
        }
    }

    #[test]
    fn a_reader_sees_what_a_value_holds(values in prop::collection::vec(values(), 0..6)) {
        let mut tape = Tape::new();
        tape.value(&Owned::Array(values.clone()).lent());
        let mut reader = Reader::new(tape.as_bytes());
        prop_assert_eq!((reader.int(), reader.text()), (None, None));
        prop_assert_eq!(reader.array(), Some(values.len()));
        for value in &values {
            match value {
                Owned::Int(number) => prop_assert_eq!((reader.text(), reader.int()), (None, Some(*number))),
                Owned::Str(text) => prop_assert_eq!((reader.array(), reader.text()), (None, Some(&text[..]))),
                other => prop_assert_eq!((reader.int(), reader.any()), (None, Some(other.lent()))),
            }
        }
        prop_assert_eq!(reader.any(), None);
    }

    #[test]
    fn nonsense_is_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = TapeValue::read(&bytes);
    }
}

#[test]
fn depth_is_bounded() {
    let mut tape = Tape::new();
    for _ in 0..10_000 {
        tape.array(1);
    }
    tape.nil();
    assert_eq!(TapeValue::read(tape.as_bytes()), None);
}
