//! Replies as tapes: the parser writes them in the form that mruby reads, without a copy in between.

use super::fault;
use ::redis::{ErrorKind, ReplySink};
use mruby::Tape;

#[derive(Default)]
pub(super) struct ReplyTape(pub(super) Tape);

impl ReplySink for ReplyTape {
    fn null(&mut self) {
        self.0.nil();
    }

    fn boolean(&mut self, value: bool) {
        self.0.bool(value);
    }

    fn integer(&mut self, value: i64) {
        self.0.int(value);
    }

    fn double(&mut self, value: f64) {
        self.0.float(value);
    }

    fn text(&mut self, text: &[u8]) {
        self.0.str(text);
    }

    fn array(&mut self, count: u32) {
        self.0.array(count);
    }

    fn map(&mut self, pairs: u32) {
        self.0.hash(pairs);
    }

    fn error(&mut self, kind: ErrorKind, message: &[u8]) {
        self.0.fault(fault::class(kind), message);
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn size(&self) -> usize {
        self.0.as_bytes().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::redis::{Parser, Value, ValueSink};

    fn parse<S: ReplySink>(bytes: &[u8]) -> S {
        let (mut parser, mut sink) = (Parser::default(), S::default());
        parser.feed(bytes);
        assert_eq!(parser.next(&mut sink), Ok(true));
        sink
    }

    /// Writes the same value through the general sink.
    fn write(tape: &mut Tape, value: &Value) {
        match value {
            Value::Null => tape.nil().done(),
            Value::Boolean(value) => tape.bool(*value).done(),
            Value::Integer(number) => tape.int(*number).done(),
            Value::Double(number) => tape.float(*number).done(),
            Value::Text(text) => tape.str(text).done(),
            Value::Array(values) => {
                tape.array(values.len() as u32);
                values.iter().for_each(|value| write(tape, value));
            }
            Value::Map(pairs) => {
                tape.hash(pairs.len() as u32);
                pairs.iter().flat_map(|(key, value)| [key, value]).for_each(|value| write(tape, value));
            }
            Value::Error(error) => tape.fault(fault::class(error.kind), &error.message).done(),
        }
    }

    #[test]
    fn same_values_as_in_the_general_sink() {
        let reply = b"*8\r\n$-1\r\n#t\r\n:7\r\n,1.5\r\n$2\r\nab\r\n*0\r\n%1\r\n+a\r\n:1\r\n-READONLY no\r\n";
        let direct: ReplyTape = parse(reply);
        let general: ValueSink = parse(reply);
        let mut expected = Tape::new();
        write(&mut expected, &general.into_value().expect("it is complete"));
        assert_eq!(direct.0.as_bytes(), expected.as_bytes());
        assert_eq!(direct.size(), expected.as_bytes().len());
    }
}
