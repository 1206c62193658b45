//! Replies of Redis (RESP2 and the types of RESP3), from bytes in any pieces onto a tape.
//!
//! Contract: what a length claims costs nothing until the bytes are there; a reply is at most [`MAX_REPLY`] bytes on the
//! tape, [`MAX_DEPTH`] deep; whatever is not RESP is [`Malformed`], and the parser is of no use after it.

use mruby::Tape;

/// Redis' own limit for a bulk string, bytes.
const MAX_BULK: usize = 512 << 20;
/// What one reply may take on the tape, bytes.
const MAX_REPLY: usize = 512 << 20;
/// Deeper replies are refused; Ruby takes no deeper ones.
const MAX_DEPTH: usize = 64;
/// Simple strings, errors and numbers, bytes.
const MAX_LINE: usize = 64 << 10;
/// Room for a read, bytes.
const READ: usize = 16 << 10;
/// A buffer that is larger than this is given back when it is empty, bytes.
const KEPT: usize = 1 << 20;

/// Why the bytes are no replies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub String);

/// Takes bytes, gives replies.
#[derive(Debug, Default)]
pub struct Parser {
    buffer: Vec<u8>,
    /// Bytes before are done with.
    at: usize,
    /// Bytes from here on are room.
    end: usize,
    /// Of each aggregate that is under way: how many elements are missing.
    open: Vec<u64>,
    /// Bytes of the reply that is under way.
    size: usize,
}

/// One element, without those below it.
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

impl Parser {
    /// Where the next bytes go; say how many with [`Parser::filled`].
    pub fn room(&mut self) -> &mut [u8] {
        if self.at == self.end {
            (self.at, self.end) = (0, 0);
            if self.buffer.len() > KEPT {
                self.buffer = Vec::new();
            }
        } else if self.at > 0 && self.buffer.len() - self.end < READ {
            self.buffer.copy_within(self.at..self.end, 0);
            (self.at, self.end) = (0, self.end - self.at);
        }
        if self.buffer.len() - self.end < READ {
            // Doubled by what has come, never by what a length claims.
            self.buffer.resize((self.buffer.len() * 2).max(READ), 0);
        }
        &mut self.buffer[self.end..]
    }

    /// So many bytes have been put into the room.
    pub fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.buffer.len());
    }

    /// Takes bytes.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.room();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            self.filled(count);
            bytes = &bytes[count..];
        }
    }

    /// Whether what comes next is a push message of RESP3 and no reply; `None` before its first byte.
    pub fn next_is_push(&self) -> Option<bool> {
        (self.at < self.end).then(|| self.open.is_empty() && self.buffer[self.at] == b'>')
    }

    /// Goes on with a reply; true when it is whole. The same tape must be given until then.
    ///
    /// # Errors
    /// When the bytes are not RESP.
    pub fn next(&mut self, tape: &mut Tape) -> Result<bool, Malformed> {
        loop {
            let Some((element, end)) = element(&self.buffer[..self.end], self.at)? else { return Ok(false) };
            self.size += end - self.at;
            if self.size > MAX_REPLY {
                return Err(Malformed(format!("a reply of more than {MAX_REPLY} bytes")));
            }
            self.at = end;
            let below = write(&element, tape);
            if below > 0 {
                if self.open.len() == MAX_DEPTH {
                    return Err(Malformed(format!("a reply that is nested more than {MAX_DEPTH} deep")));
                }
                self.open.push(below);
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

/// Onto the tape; how many elements belong below it.
fn write(element: &Element<'_>, tape: &mut Tape) -> u64 {
    match *element {
        Element::Text(text) => tape.str(text).done(),
        Element::Error(text) => tape.fault(class(text), text).done(),
        Element::Int(number) => tape.int(number).done(),
        Element::Float(number) => tape.float(number).done(),
        Element::Bool(value) => tape.bool(value).done(),
        Element::Null => tape.nil().done(),
        Element::Array(count) => {
            tape.array(count);
            return u64::from(count);
        }
        Element::Map(count) => {
            tape.hash(count);
            return 2 * u64::from(count);
        }
    }
    0
}

/// The exception for an error reply, by its first word.
fn class(text: &[u8]) -> &'static str {
    match text.split(|byte| *byte == b' ').next().unwrap_or_default() {
        b"WRONGTYPE" => "Redis::WrongTypeError",
        b"NOPERM" => "Redis::PermissionError",
        b"NOSCRIPT" => "Redis::NoScriptError",
        b"OOM" => "Redis::OutOfMemoryError",
        b"READONLY" => "Redis::ReadOnlyError",
        _ => "Redis::CommandError",
    }
}

/// The element at `at` and where it ends; `None` when it is not whole yet.
fn element(bytes: &[u8], at: usize) -> Result<Option<(Element<'_>, usize)>, Malformed> {
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
) -> Result<Option<(Element<'a>, usize)>, Malformed> {
    let length = number(line)?;
    if length == -1 {
        return Ok(Some((Element::Null, start)));
    }
    let length = usize::try_from(length).ok().filter(|length| *length <= MAX_BULK);
    let Some(length) = length else { return Err(unknown(kind, line)) };
    let Some(found) = bytes.get(start..start + length + 2) else { return Ok(None) };
    let (text, stop) = found.split_at(length);
    if stop != b"\r\n" {
        return Err(Malformed("a text that is longer than its length says".to_owned()));
    }
    let element = match kind {
        b'!' => Element::Error(text),
        // Its format, three letters and a colon, says nothing to Ruby.
        b'=' => Element::Text(text.get(4..).unwrap_or_default()),
        _ => Element::Text(text),
    };
    Ok(Some((element, start + length + 2)))
}

/// The line from `from` on without its end, and where the next one begins.
fn line(bytes: &[u8], from: usize) -> Result<Option<(&[u8], usize)>, Malformed> {
    let rest = &bytes[from..];
    let Some(length) = rest.iter().take(MAX_LINE).position(|byte| *byte == b'\r') else {
        let too_long = rest.len() >= MAX_LINE;
        return if too_long { Err(Malformed("a line without an end".to_owned())) } else { Ok(None) };
    };
    match rest.get(length + 1) {
        Some(b'\n') => Ok(Some((&rest[..length], from + length + 2))),
        Some(_) => Err(Malformed("a line that ends in CR without LF".to_owned())),
        None => Ok(None),
    }
}

fn number(line: &[u8]) -> Result<i64, Malformed> {
    let number = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Malformed(format!("\"{}\" where a number belongs", excerpt(line))))
}

fn float(line: &[u8]) -> Result<f64, Malformed> {
    let number = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Malformed(format!("\"{}\" where a number belongs", excerpt(line))))
}

fn count(line: &[u8]) -> Result<Option<u32>, Malformed> {
    match number(line)? {
        -1 => Ok(None),
        count => match u32::try_from(count) {
            Ok(count) if count <= u32::MAX / 2 => Ok(Some(count)),
            _ => Err(Malformed(format!("an array of {count} elements"))),
        },
    }
}

fn unknown(kind: u8, line: &[u8]) -> Malformed {
    Malformed(format!("\"{}{}\", which is no reply", kind.escape_ascii(), excerpt(line)))
}

fn excerpt(line: &[u8]) -> String {
    line[..line.len().min(40)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(pieces: &[&[u8]]) -> Result<Vec<Tape>, Malformed> {
        let (mut parser, mut replies, mut tape) = (Parser::default(), Vec::new(), Tape::new());
        for piece in pieces {
            parser.feed(piece);
            while parser.next(&mut tape)? {
                replies.push(std::mem::take(&mut tape));
            }
        }
        Ok(replies)
    }

    fn one(bytes: &[u8]) -> Vec<u8> {
        let replies = all(&[bytes]).expect("it is RESP");
        assert_eq!(replies.len(), 1, "{}", bytes.escape_ascii());
        replies[0].as_bytes().to_vec()
    }

    fn tape(write: impl FnOnce(&mut Tape)) -> Vec<u8> {
        let mut tape = Tape::new();
        write(&mut tape);
        tape.as_bytes().to_vec()
    }

    #[test]
    fn each_type() {
        assert_eq!(one(b"+OK\r\n"), tape(|t| t.str("OK").done()));
        assert_eq!(one(b":-7\r\n"), tape(|t| t.int(-7).done()));
        assert_eq!(one(b"$-1\r\n"), tape(|t| t.nil().done()));
        assert_eq!(one(b"*-1\r\n"), tape(|t| t.nil().done()));
        assert_eq!(one(b"$0\r\n\r\n"), tape(|t| t.str("").done()));
        assert_eq!(one(b"$4\r\na\r\nb\r\n"), tape(|t| t.str("a\r\nb").done()));
        assert_eq!(one(b"*0\r\n"), tape(|t| t.array(0).done()));
        assert_eq!(
            one(b"*2\r\n*1\r\n:1\r\n-ERR no\r\n"),
            tape(|t| t.array(2).array(1).int(1).fault("Redis::CommandError", "ERR no").done())
        );
        assert_eq!(
            one(b"-WRONGTYPE x\r\n"),
            tape(|t| t.fault("Redis::WrongTypeError", "WRONGTYPE x").done())
        );
    }

    #[test]
    fn types_of_resp3() {
        assert_eq!(one(b"_\r\n"), tape(|t| t.nil().done()));
        assert_eq!(one(b"#t\r\n"), tape(|t| t.bool(true).done()));
        assert_eq!(one(b",1.5\r\n"), tape(|t| t.float(1.5).done()));
        assert_eq!(one(b",inf\r\n"), tape(|t| t.float(f64::INFINITY).done()));
        assert_eq!(one(b"(12345678901234567890\r\n"), tape(|t| t.str("12345678901234567890").done()));
        assert_eq!(one(b"=6\r\ntxt:hi\r\n"), tape(|t| t.str("hi").done()));
        assert_eq!(one(b"%1\r\n+a\r\n:1\r\n"), tape(|t| t.hash(1).str("a").int(1).done()));
        let mut parser = Parser::default();
        assert_eq!(parser.next_is_push(), None);
        parser.feed(b">1\r\n+a\r\n+OK\r\n");
        assert_eq!(parser.next_is_push(), Some(true));
        assert_eq!(parser.next(&mut Tape::new()), Ok(true));
        assert_eq!(parser.next_is_push(), Some(false));
    }

    #[test]
    fn what_is_no_resp_is_refused() {
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
    fn a_claim_costs_nothing() {
        let mut parser = Parser::default();
        parser.feed(b"*2000000000\r\n$500000000\r\nabc");
        let mut tape = Tape::new();
        assert_eq!(parser.next(&mut tape), Ok(false));
        assert!(parser.buffer.len() <= 2 * READ && tape.as_bytes().len() < 64);
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
            let whole: Vec<Vec<u8>> = replies.iter().map(|reply| one(reply)).collect();
            let split: Vec<Vec<u8>> = all(&pieces).unwrap().iter().map(|tape| tape.as_bytes().to_vec()).collect();
            prop_assert_eq!(whole, split);
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let singly: Vec<&[u8]> = bytes.chunks(1).collect();
            let tapes = |replies: Vec<Tape>| replies.iter().map(|t| t.as_bytes().to_vec()).collect::<Vec<_>>();
            prop_assert_eq!(all(&singly).map(tapes), all(&[&bytes]).map(tapes));
        }
    }
}
