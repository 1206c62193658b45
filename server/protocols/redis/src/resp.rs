//! Parses replies (RESP2 and the types of RESP3) from bytes in any pieces.
//!
//! Contract: memory is allocated for received bytes, never for an announced length. A reply has at most as many bytes as the parser's limit, as
//! sent and as stored, and at most [`MAX_DEPTH`] levels. Bytes that are not RESP are [`MalformedReply`]; the parser cannot be used after that.

use crate::error::ErrorKind;

/// The most bytes of a bulk string; Redis's own limit.
const MAX_BULK: usize = 512 << 20;
/// The most levels of nested aggregates.
const MAX_DEPTH: usize = 64;
/// The most bytes of a simple string, error or number.
const MAX_LINE: usize = 64 << 10;
/// The free space offered for a read, in bytes.
const READ: usize = 16 << 10;
/// A larger buffer is freed when it is empty, in bytes.
const MAX_KEPT_BUFFER: usize = 1 << 20;

/// Why the bytes are not RESP, as the object of "it sent …".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MalformedReply(pub String);

/// Stores the elements of a reply in the order of their arrival. An aggregate is followed by its elements.
pub trait ReplySink: Default + 'static {
    /// A null of any type.
    fn null(&mut self);
    /// A boolean (RESP3).
    fn boolean(&mut self, value: bool);
    fn integer(&mut self, value: i64);
    /// A double (RESP3).
    fn double(&mut self, value: f64);
    /// A simple or bulk string.
    fn text(&mut self, text: &[u8]);
    /// An array of the next `count` values.
    fn array(&mut self, count: u32);
    /// A map of the next `pairs` keys and values.
    fn map(&mut self, pairs: u32);
    /// An error reply, or a failure of the connection.
    fn error(&mut self, kind: ErrorKind, message: &[u8]);
    /// Discards everything stored so far.
    fn clear(&mut self);
    /// Returns roughly how many bytes the stored elements take.
    fn size(&self) -> usize;
}

#[derive(Debug)]
pub struct Parser {
    /// The most bytes of a reply.
    most: usize,
    buffer: Vec<u8>,
    /// The start of the bytes that are not parsed yet.
    at: usize,
    /// The end of the received bytes; the rest of the buffer is free.
    end: usize,
    /// The missing elements of each incomplete aggregate, outermost first.
    open: Vec<u64>,
    /// The bytes of the current reply so far.
    size: usize,
}

/// One element, without its children.
enum Element<'a> {
    Text(&'a [u8]),
    Error(&'a [u8]),
    Int(i64),
    Float(f64),
    Bool(bool),
    Null,
    Array(u32),
    Map(u32),
}

impl Default for Parser {
    /// Creates a parser of replies as large as Redis itself allows.
    fn default() -> Parser {
        Parser::new(MAX_BULK)
    }
}

impl Parser {
    /// Creates a parser of replies with at most that many bytes.
    pub fn new(most: usize) -> Parser {
        Parser { most, buffer: Vec::new(), at: 0, end: 0, open: Vec::new(), size: 0 }
    }

    /// Returns space for the next bytes; report how many were written with [`Parser::filled`].
    pub fn room(&mut self) -> &mut [u8] {
        if self.at == self.end {
            (self.at, self.end) = (0, 0);
            if self.buffer.len() > MAX_KEPT_BUFFER {
                self.buffer = Vec::new();
            }
        } else if self.at > 0 && self.buffer.len() - self.end < READ {
            self.buffer.copy_within(self.at..self.end, 0);
            (self.at, self.end) = (0, self.end - self.at);
        }
        if self.buffer.len() - self.end < READ {
            // Grows with the bytes received, not with announced lengths.
            self.buffer.resize((self.buffer.len() * 2).max(READ), 0);
        }
        &mut self.buffer[self.end..]
    }

    /// Reports that `count` bytes were written to [`Parser::room`].
    pub fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.buffer.len());
    }

    /// Adds a copy of bytes.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.room();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            self.filled(count);
            bytes = &bytes[count..];
        }
    }

    /// Returns whether the next message is a RESP3 push message instead of a reply; `None` before its first byte.
    pub fn next_is_push(&self) -> Option<bool> {
        (self.at < self.end).then(|| self.open.is_empty() && self.buffer[self.at] == b'>')
    }

    /// Continues to parse a reply. Returns true when it is complete. Until then every call must pass the same sink.
    ///
    /// # Errors
    /// The bytes are not RESP, or too many.
    pub fn next<S: ReplySink>(&mut self, sink: &mut S) -> Result<bool, MalformedReply> {
        loop {
            let Some((element, end)) = element(&self.buffer[..self.end], self.at)? else {
                // A long string is not stored before it is complete.
                return self.within(self.size + self.end - self.at).map(|()| false);
            };
            self.size += end - self.at;
            let children = store(&element, sink);
            self.at = end;
            self.within(self.size.max(sink.size()))?;
            if children > 0 {
                if self.open.len() == MAX_DEPTH {
                    return Err(MalformedReply(format!("a reply that is nested more than {MAX_DEPTH} deep")));
                }
                self.open.push(children);
                continue;
            }
            while let Some(missing) = self.open.last_mut() {
                *missing -= 1;
                if *missing > 0 {
                    break;
                }
                self.open.pop();
            }
            if self.open.is_empty() {
                self.size = 0;
                return Ok(true);
            }
        }
    }
}

impl Parser {
    fn within(&self, bytes: usize) -> Result<(), MalformedReply> {
        let most = self.most;
        if bytes > most { Err(MalformedReply(format!("a reply of more than {most} bytes"))) } else { Ok(()) }
    }
}

/// Stores an element. Returns how many children follow.
fn store<S: ReplySink>(element: &Element<'_>, sink: &mut S) -> u64 {
    match *element {
        Element::Text(text) => sink.text(text),
        Element::Error(text) => sink.error(ErrorKind::of_reply(text), text),
        Element::Int(number) => sink.integer(number),
        Element::Float(number) => sink.double(number),
        Element::Bool(value) => sink.boolean(value),
        Element::Null => sink.null(),
        Element::Array(count) => {
            sink.array(count);
            return u64::from(count);
        }
        Element::Map(count) => {
            sink.map(count);
            return 2 * u64::from(count);
        }
    }
    0
}

/// Parses the element at `at`, and returns its end too; `None` if it is incomplete.
fn element(bytes: &[u8], at: usize) -> Result<Option<(Element<'_>, usize)>, MalformedReply> {
    let Some(&kind) = bytes.get(at) else { return Ok(None) };
    let Some((line, end)) = line(bytes, at + 1)? else { return Ok(None) };
    let element = match kind {
        b'+' => Element::Text(line),
        b'-' => Element::Error(line),
        b':' => Element::Int(number(line)?),
        b'$' | b'=' | b'!' => return bulk(kind, bytes, line, end),
        b'*' | b'~' | b'>' => match count(line)? {
            Some(count) => Element::Array(count),
            None => Element::Null,
        },
        b'%' => match count(line)? {
            Some(count) => Element::Map(count),
            None => Element::Null,
        },
        b'_' if line.is_empty() => Element::Null,
        b'#' if line == b"t" || line == b"f" => Element::Bool(line == b"t"),
        b',' => Element::Float(float(line)?),
        b'(' => number(line).map_or(Element::Text(line), Element::Int),
        _ => return Err(unknown(kind, line)),
    };
    Ok(Some((element, end)))
}

fn bulk<'a>(
    kind: u8,
    bytes: &'a [u8],
    line: &[u8],
    start: usize,
) -> Result<Option<(Element<'a>, usize)>, MalformedReply> {
    let length = number(line)?;
    if length == -1 {
        return Ok(Some((Element::Null, start)));
    }
    let length = usize::try_from(length).ok().filter(|length| *length <= MAX_BULK);
    let Some(length) = length else { return Err(unknown(kind, line)) };
    let Some(found) = bytes.get(start..start + length + 2) else { return Ok(None) };
    let (text, stop) = found.split_at(length);
    if stop != b"\r\n" {
        return Err(MalformedReply("a string that is longer than its announced length".to_owned()));
    }
    let element = match kind {
        b'!' => Element::Error(text),
        // The text starts with its format, three letters and a colon, which no caller uses.
        b'=' => Element::Text(text.get(4..).unwrap_or_default()),
        _ => Element::Text(text),
    };
    Ok(Some((element, start + length + 2)))
}

/// Returns the line at `from` without its line break, and the start of the next one.
fn line(bytes: &[u8], from: usize) -> Result<Option<(&[u8], usize)>, MalformedReply> {
    let rest = &bytes[from..];
    let Some(length) = rest.iter().take(MAX_LINE).position(|byte| *byte == b'\r') else {
        let too_long = rest.len() >= MAX_LINE;
        return if too_long { Err(MalformedReply("a line without an end".to_owned())) } else { Ok(None) };
    };
    match rest.get(length + 1) {
        Some(b'\n') => Ok(Some((&rest[..length], from + length + 2))),
        Some(_) => Err(MalformedReply("a line that ends in CR without LF".to_owned())),
        None => Ok(None),
    }
}

fn number(line: &[u8]) -> Result<i64, MalformedReply> {
    let number = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| MalformedReply(format!("\"{}\" where a number belongs", excerpt(line))))
}

fn float(line: &[u8]) -> Result<f64, MalformedReply> {
    let number = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| MalformedReply(format!("\"{}\" where a number belongs", excerpt(line))))
}

fn count(line: &[u8]) -> Result<Option<u32>, MalformedReply> {
    match number(line)? {
        -1 => Ok(None),
        count => match u32::try_from(count) {
            Ok(count) if count <= u32::MAX / 2 => Ok(Some(count)),
            _ => Err(MalformedReply(format!("an array of {count} elements"))),
        },
    }
}

fn unknown(kind: u8, line: &[u8]) -> MalformedReply {
    MalformedReply(format!("\"{}{}\", which is not a reply", kind.escape_ascii(), excerpt(line)))
}

fn excerpt(line: &[u8]) -> String {
    line[..line.len().min(40)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::value::{Value, ValueSink};
    use proptest::prelude::*;

    fn all(pieces: &[&[u8]]) -> Result<Vec<Value>, MalformedReply> {
        let (mut parser, mut replies, mut sink) = (Parser::default(), Vec::new(), ValueSink::default());
        for piece in pieces {
            parser.feed(piece);
            while parser.next(&mut sink)? {
                replies.push(std::mem::take(&mut sink).into_value().expect("it is complete"));
            }
        }
        Ok(replies)
    }

    fn one(bytes: &[u8]) -> Value {
        let mut replies = all(&[bytes]).expect("it is RESP");
        assert_eq!(replies.len(), 1, "{}", bytes.escape_ascii());
        replies.remove(0)
    }

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    fn error(kind: ErrorKind, message: &str) -> Value {
        Value::Error(Error::new(kind, message))
    }

    #[test]
    fn each_type() {
        assert_eq!(one(b"+OK\r\n"), text("OK"));
        assert_eq!(one(b":-7\r\n"), Value::Integer(-7));
        assert_eq!(one(b"$-1\r\n"), Value::Null);
        assert_eq!(one(b"*-1\r\n"), Value::Null);
        assert_eq!(one(b"$0\r\n\r\n"), text(""));
        assert_eq!(one(b"$4\r\na\r\nb\r\n"), text("a\r\nb"));
        assert_eq!(one(b"*0\r\n"), Value::Array(vec![]));
        assert_eq!(
            one(b"*2\r\n*1\r\n:1\r\n-ERR no\r\n"),
            Value::Array(vec![Value::Array(vec![Value::Integer(1)]), error(ErrorKind::Command, "ERR no")])
        );
        assert_eq!(one(b"-WRONGTYPE x\r\n"), error(ErrorKind::WrongType, "WRONGTYPE x"));
    }

    #[test]
    fn types_of_resp3() {
        assert_eq!(one(b"_\r\n"), Value::Null);
        assert_eq!(one(b"#t\r\n"), Value::Boolean(true));
        assert_eq!(one(b",1.5\r\n"), Value::Double(1.5));
        assert_eq!(one(b",inf\r\n"), Value::Double(f64::INFINITY));
        assert_eq!(one(b"(12345678901234567890\r\n"), text("12345678901234567890"));
        assert_eq!(one(b"=6\r\ntxt:hi\r\n"), text("hi"));
        assert_eq!(one(b"%1\r\n+a\r\n:1\r\n"), Value::Map(vec![(text("a"), Value::Integer(1))]));
        let mut parser = Parser::default();
        assert_eq!(parser.next_is_push(), None);
        parser.feed(b">1\r\n+a\r\n+OK\r\n");
        assert_eq!(parser.next_is_push(), Some(true));
        assert_eq!(parser.next(&mut ValueSink::default()), Ok(true));
        assert_eq!(parser.next_is_push(), Some(false));
    }

    #[test]
    fn malformed_bytes_are_rejected() {
        let bad: [&[u8]; 10] = [
            b"HTTP/1.1 400\r\n",
            b":1x\r\n",
            b"$-2\r\n",
            b"$536870913\r\n",
            b"$3\r\nabcde\r\n",
            b"*4294967295\r\n",
            b"*?\r\n",
            b"+a\rb\n",
            b"#x\r\n",
            b"|1\r\n+a\r\n+b\r\n+c\r\n",
        ];
        for bytes in bad {
            assert!(all(&[bytes]).is_err(), "{}", bytes.escape_ascii());
        }
        assert!(all(&[&b"*1\r\n".repeat(MAX_DEPTH + 1)]).is_err());
        assert!(all(&[&b"+".repeat(MAX_LINE + 2)]).is_err());
    }

    #[test]
    fn an_announced_length_allocates_nothing() {
        let mut parser = Parser::default();
        parser.feed(b"*2000000000\r\n$500000000\r\nabc");
        let mut sink = ValueSink::default();
        assert_eq!(parser.next(&mut sink), Ok(false));
        assert!(parser.buffer.len() <= 2 * READ && sink.size() < 64);
    }

    #[test]
    fn a_reply_has_a_limit_whatever_its_elements_are() {
        let endless = [
            b"*1000000000\r\n:1\r\n".to_vec(),
            b"*-1\r\n".to_vec(),
            b"$900000\r\nabc".to_vec(),
            b"*2\r\n".to_vec(),
        ];
        for one in endless {
            let (mut parser, mut sink) = (Parser::new(100_000), ValueSink::default());
            let mut fed = 0;
            let refused = (0..1_000_000).any(|_| {
                let more: &[u8] = match one[0] {
                    b'$' if fed > 0 => b"0123456789",
                    b'*' if fed > 0 && one.ends_with(b":1\r\n") => b":1\r\n",
                    _ => &one,
                };
                parser.feed(more);
                fed += more.len();
                match parser.next(&mut sink) {
                    Ok(true) => sink = ValueSink::default(),
                    Ok(false) => {}
                    Err(_) => return true,
                }
                assert!(sink.size() <= 100_000 + 64 && parser.buffer.len() <= 400_000);
                false
            });
            assert_eq!(refused, one != b"*-1\r\n", "{}", one.escape_ascii());
        }
    }

    fn reply() -> impl Strategy<Value = Vec<u8>> {
        let leaf = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(|text| [
                format!("${}\r\n", text.len()).as_bytes(),
                &text,
                b"\r\n"
            ]
            .concat()),
            any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            "[ -~]{0,20}".prop_map(|text| format!("+{text}\r\n").into_bytes()),
            "[A-Z]{1,9} [ -~]{0,20}".prop_map(|text| format!("-{text}\r\n").into_bytes()),
            Just(b"$-1\r\n".to_vec()),
        ];
        leaf.prop_recursive(4, 64, 8, |inner| {
            proptest::collection::vec(inner, 0..8)
                .prop_map(|items| [format!("*{}\r\n", items.len()).into_bytes(), items.concat()].concat())
        })
    }

    proptest! {
        #[test]
        fn splits_do_not_matter(replies in proptest::collection::vec(reply(), 1..6), cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..8)) {
            let bytes = replies.concat();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).chain([0, bytes.len()]).collect();
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let whole: Vec<Value> = replies.iter().map(|reply| one(reply)).collect();
            prop_assert_eq!(Ok(whole), all(&pieces));
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let singly: Vec<&[u8]> = bytes.chunks(1).collect();
            // Compared as text: a double may be NaN.
            prop_assert_eq!(format!("{:?}", all(&singly)), format!("{:?}", all(&[&bytes])));
        }
    }
}
