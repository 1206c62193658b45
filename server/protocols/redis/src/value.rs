//! Represents replies as a tree: [`Value`].

use crate::error::{Error, ErrorKind};
use crate::resp::ReplySink;

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A null of any type.
    Null,
    /// `#t`, `#f` (RESP3)
    Boolean(bool),
    Integer(i64),
    /// A double (RESP3).
    Double(f64),
    /// A simple or bulk string.
    Text(Vec<u8>),
    /// An array, set or push message.
    Array(Vec<Value>),
    /// A map, in the server's order (RESP3).
    Map(Vec<(Value, Value)>),
    /// An error reply, or the failure of the connection.
    Error(Error),
}

/// Builds a [`Value`] from its elements.
#[derive(Debug, Default)]
pub struct ValueSink {
    /// Incomplete aggregates, outermost first.
    open: Vec<Open>,
    value: Option<Value>,
    size: usize,
}

#[derive(Debug)]
struct Open {
    is_map: bool,
    missing: usize,
    values: Vec<Value>,
}

impl ValueSink {
    /// Returns the value; `None` if it is not complete.
    pub fn into_value(self) -> Option<Value> {
        self.value
    }

    fn add(&mut self, mut value: Value) {
        self.size += size_of::<Value>();
        while let Some(mut open) = self.open.pop() {
            open.values.push(value);
            if open.values.len() < open.missing {
                return self.open.push(open);
            }
            value = open.complete();
        }
        self.value = Some(value);
    }

    fn open(&mut self, is_map: bool, missing: usize) {
        let open = Open { is_map, missing, values: Vec::new() };
        if missing == 0 { self.add(open.complete()) } else { self.open.push(open) }
    }
}

impl Open {
    fn complete(self) -> Value {
        if !self.is_map {
            return Value::Array(self.values);
        }
        let mut values = self.values.into_iter();
        let pairs = std::iter::from_fn(|| Some((values.next()?, values.next()?)));
        Value::Map(pairs.collect())
    }
}

impl ReplySink for ValueSink {
    fn null(&mut self) {
        self.add(Value::Null);
    }

    fn boolean(&mut self, value: bool) {
        self.add(Value::Boolean(value));
    }

    fn integer(&mut self, value: i64) {
        self.add(Value::Integer(value));
    }

    fn double(&mut self, value: f64) {
        self.add(Value::Double(value));
    }

    fn text(&mut self, text: &[u8]) {
        self.size += text.len();
        self.add(Value::Text(text.to_vec()));
    }

    fn array(&mut self, count: u32) {
        self.open(false, count as usize);
    }

    fn map(&mut self, pairs: u32) {
        self.open(true, 2 * pairs as usize);
    }

    fn error(&mut self, kind: ErrorKind, message: &[u8]) {
        self.size += message.len();
        self.add(Value::Error(Error::new(kind, message)));
    }

    fn clear(&mut self) {
        *self = ValueSink::default();
    }

    fn size(&self) -> usize {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_aggregates() {
        let mut sink = ValueSink::default();
        sink.array(3);
        sink.array(0);
        sink.map(1);
        sink.text(b"key");
        sink.array(1);
        sink.null();
        assert!(sink.value.is_none());
        sink.error(ErrorKind::Command, b"ERR");
        let map = Value::Map(vec![(Value::Text(b"key".to_vec()), Value::Array(vec![Value::Null]))]);
        let error = Value::Error(Error::new(ErrorKind::Command, "ERR"));
        assert_eq!(sink.into_value(), Some(Value::Array(vec![Value::Array(vec![]), map, error])));
    }
}
