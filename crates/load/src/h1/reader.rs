//! Reads answers from a stream of bytes, in whatever pieces it comes.
//!
//! Speed: servers answer the same question with the same head, but for the date. So the last head is remembered with what
//! it meant, and one that begins with the very same bytes is not parsed again. Everything else goes through [`head::parse`].

use memchr::memmem;

use super::chunked::Chunked;
use super::head::{self, Framing, Head};

/// A longer head is nonsense.
const LONGEST_HEAD: usize = 256 * 1024;

/// What happened in the bytes, in this order: fields, head, body, end. Interim heads are skipped.
pub(crate) trait Sink {
    /// Whether the request that is answered next was HEAD.
    fn to_head(&self) -> bool;
    /// Fields are wanted. Then every head is parsed.
    fn wants_fields(&self) -> bool;
    /// One field of a final head.
    fn field(&mut self, name: &str, value: &[u8]);
    /// A final head.
    fn head(&mut self, head: &Head);
    /// A piece of the body, without its coding.
    fn body(&mut self, bytes: &[u8]);
}

/// The last head and what it meant; shared by the connections of a thread.
#[derive(Debug, Default)]
pub(crate) struct LastHead {
    bytes: Vec<u8>,
    head: Option<Head>,
}

/// Heads above this length are not remembered.
const LONGEST_KEPT: usize = 2048;

impl LastHead {
    fn find(&self, bytes: &[u8]) -> Option<(Head, usize)> {
        let head = self.head?;
        bytes.starts_with(&self.bytes).then_some((head, self.bytes.len()))
    }

    fn keep(&mut self, bytes: &[u8], head: Head) {
        if bytes.len() <= LONGEST_KEPT {
            self.bytes.clear();
            self.bytes.extend_from_slice(bytes);
            self.head = Some(head);
        }
    }
}

#[derive(Debug)]
enum At {
    /// Before or in a head.
    Head,
    Length(u64),
    Chunked(Chunked),
    UntilClose,
}

/// Where in an answer a connection is.
#[derive(Debug)]
pub(crate) struct Reader {
    at: At,
    /// The beginning of a head whose end has not come.
    partial: Vec<u8>,
    /// Of the final head of the answer that is being read.
    keep_alive: bool,
}

/// What the bytes amounted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Read {
    /// So many of them belonged to this answer.
    pub used: usize,
    /// The answer is whole: whether another may follow on this connection.
    pub whole: Option<bool>,
}

impl Reader {
    pub(crate) fn new() -> Reader {
        Reader { at: At::Head, partial: Vec::new(), keep_alive: true }
    }

    /// Nothing of the next answer has come.
    pub(crate) fn is_fresh(&self) -> bool {
        matches!(self.at, At::Head) && self.partial.is_empty()
    }

    /// Takes bytes up to the end of the answer.
    ///
    /// # Errors
    /// Why they make no sense. The connection is of no use after that.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        last: &mut LastHead,
        sink: &mut impl Sink,
    ) -> Result<Read, String> {
        let mut used = 0;
        while matches!(self.at, At::Head) {
            let rest = &bytes[used..];
            if rest.is_empty() {
                return Ok(Read { used, whole: None });
            }
            used += self.take_head(rest, last, sink)?;
        }
        self.take_body(bytes, used, sink)
    }

    fn take_head(
        &mut self,
        bytes: &[u8],
        last: &mut LastHead,
        sink: &mut impl Sink,
    ) -> Result<usize, String> {
        let plain = !sink.wants_fields() && !sink.to_head();
        if plain
            && self.partial.is_empty()
            && let Some((head, length)) = last.find(bytes)
        {
            self.begin(&head, sink);
            return Ok(length);
        }
        let Some((whole, used)) = self.complete(bytes)? else { return Ok(bytes.len()) };
        let head = {
            let bytes = whole.as_deref().unwrap_or(&bytes[..used]);
            let to_head = sink.to_head();
            let head = head::parse(bytes, to_head, &mut |_, _| {})?;
            if !head.is_interim() && sink.wants_fields() {
                head::parse(bytes, to_head, &mut |name, value| sink.field(name, value))?;
            }
            if plain && !head.is_interim() {
                last.keep(bytes, head);
            }
            head
        };
        if !head.is_interim() {
            self.begin(&head, sink);
        }
        Ok(used)
    }

    /// A head that is whole with these bytes: itself when it had begun before them, and how many of them belong to it.
    #[allow(clippy::type_complexity)]
    fn complete(&mut self, bytes: &[u8]) -> Result<Option<(Option<Vec<u8>>, usize)>, String> {
        if self.partial.is_empty()
            && let Some(at) = memmem::find(bytes, b"\r\n\r\n")
        {
            return Ok(Some((None, at + 4)));
        }
        let before = self.partial.len();
        self.partial.extend_from_slice(bytes);
        if before == 0 {
            looks_like_http(&self.partial)?;
        }
        // The end may lie across: three bytes of it may have come before.
        if let Some(at) = memmem::find(&self.partial[before.saturating_sub(3)..], b"\r\n\r\n") {
            let end = before.saturating_sub(3) + at + 4;
            self.partial.truncate(end);
            return Ok(Some((Some(std::mem::take(&mut self.partial)), end - before)));
        }
        looks_like_http(&self.partial)?;
        match self.partial.len() > LONGEST_HEAD {
            true => Err("the head of the answer is longer than 256 KiB".to_owned()),
            false => Ok(None),
        }
    }

    fn begin(&mut self, head: &Head, sink: &mut impl Sink) {
        self.keep_alive = head.keep_alive;
        self.at = match head.framing {
            Framing::Length(length) => At::Length(length),
            Framing::Chunked => At::Chunked(Chunked::new()),
            Framing::UntilClose => At::UntilClose,
        };
        sink.head(head);
    }

    fn take_body(&mut self, bytes: &[u8], used: usize, sink: &mut impl Sink) -> Result<Read, String> {
        let rest = &bytes[used..];
        let (taken, over) = match &mut self.at {
            At::Head => (0, false),
            At::Length(left) => {
                let here = usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
                if here > 0 {
                    sink.body(&rest[..here]);
                }
                *left -= here as u64;
                (here, *left == 0)
            }
            At::Chunked(chunked) => {
                let here = chunked.take(rest, &mut |data| sink.body(data))?;
                (here, chunked.is_over())
            }
            At::UntilClose => {
                if !rest.is_empty() {
                    sink.body(rest);
                }
                (rest.len(), false)
            }
        };
        if over {
            self.at = At::Head;
        }
        Ok(Read { used: used + taken, whole: over.then_some(self.keep_alive) })
    }

    /// The connection has ended: whether that makes the answer whole.
    pub(crate) fn end(&mut self) -> bool {
        let whole = matches!(self.at, At::UntilClose);
        if whole {
            self.at = At::Head;
        }
        whole
    }
}

/// A server that speaks another protocol, or whose lines have no CR, would otherwise be waited for in vain.
fn looks_like_http(bytes: &[u8]) -> Result<(), String> {
    let start = b"HTTP/1.";
    let same = bytes.iter().zip(start).all(|(byte, expected)| byte == expected);
    match same {
        true => Ok(()),
        false => Err("the answer is not HTTP: it does not begin with HTTP/1.".to_owned()),
    }
}

/// See [`crate::fuzz`].
pub(crate) fn fuzz(bytes: &[u8], cut: usize) {
    let (front, back) = bytes.split_at(cut.min(bytes.len()));
    let (whole, split) = (fuzz_read(&[bytes]), fuzz_read(&[front, back]));
    assert_eq!(whole.is_ok(), split.is_ok(), "{whole:?} {split:?}");
    assert!(whole.is_err() || whole == split, "{whole:?} {split:?}");
}

/// Statuses, body and ends of answers.
type Heard = (Vec<u16>, Vec<u8>, Vec<bool>);

fn fuzz_read(pieces: &[&[u8]]) -> Result<Heard, String> {
    #[derive(Default)]
    struct Sunk(Vec<u16>, Vec<u8>);
    impl Sink for Sunk {
        fn to_head(&self) -> bool {
            false
        }
        fn wants_fields(&self) -> bool {
            false
        }
        fn field(&mut self, _: &str, _: &[u8]) {}
        fn head(&mut self, head: &Head) {
            self.0.push(head.status);
        }
        fn body(&mut self, bytes: &[u8]) {
            self.1.extend_from_slice(bytes);
        }
    }
    let (mut reader, mut last, mut sunk) = (Reader::new(), LastHead::default(), Sunk::default());
    let mut whole = Vec::new();
    for piece in pieces {
        let mut bytes = *piece;
        while !bytes.is_empty() {
            let read = reader.take(bytes, &mut last, &mut sunk)?;
            whole.extend(read.whole);
            bytes = &bytes[read.used..];
        }
    }
    Ok((sunk.0, sunk.1, whole))
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
