//! Splits a stream of bytes into responses, wherever the input is cut.
//!
//! Speed: a server usually sends the same head for the same request, except for the date. So the last head is
//! kept with its meaning, and a head of the same bytes is not parsed again. All other heads go through
//! [`head::parse`].

use memchr::memmem;

use super::chunked::Chunked;
use super::head::{self, Framing, Head};

/// The longest accepted head, in bytes.
const LONGEST_HEAD: usize = 256 * 1024;

/// Receives the parts of a response in this order: fields, head, body. Interim heads are skipped.
pub(crate) trait Sink {
    /// Returns whether the next response answers a HEAD request.
    fn to_head(&self) -> bool;
    /// Returns whether fields are wanted. If they are, every head is parsed.
    fn wants_fields(&self) -> bool;
    /// Receives one field of a final head.
    fn field(&mut self, name: &str, value: &[u8]);
    /// Receives a final head.
    fn head(&mut self, head: &Head);
    /// Receives a piece of the decoded body.
    fn body(&mut self, bytes: &[u8]);
}

/// The last head and its meaning; shared by the connections of a thread.
#[derive(Debug, Default)]
pub(crate) struct LastHead {
    bytes: Vec<u8>,
    head: Option<Head>,
}

/// The longest head that is remembered, in bytes.
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
enum State {
    /// Before or in a head.
    Head,
    Length(u64),
    Chunked(Chunked),
    UntilClose,
}

#[derive(Debug)]
pub(crate) struct Reader {
    state: State,
    /// The beginning of an incomplete head.
    partial: Vec<u8>,
    /// The persistence that the final head of the current response announced.
    keep_alive: bool,
}

/// The result of one call of [`Reader::take`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Read {
    /// The number of bytes that belonged to this response.
    pub used: usize,
    /// Set when the response is complete: whether the connection can carry another one.
    pub complete: Option<bool>,
}

impl Reader {
    pub(crate) fn new() -> Reader {
        Reader { state: State::Head, partial: Vec::new(), keep_alive: true }
    }

    /// Returns whether nothing of the next response has been received.
    pub(crate) fn is_fresh(&self) -> bool {
        matches!(self.state, State::Head) && self.partial.is_empty()
    }

    /// Consumes bytes up to the end of the response.
    ///
    /// # Errors
    /// The reason why the bytes are invalid. The connection cannot be used afterwards.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        last: &mut LastHead,
        sink: &mut impl Sink,
    ) -> Result<Read, String> {
        let mut used = 0;
        while matches!(self.state, State::Head) {
            let rest = &bytes[used..];
            if rest.is_empty() {
                return Ok(Read { used, complete: None });
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
        let Some((whole, used)) = self.complete_head(bytes)? else { return Ok(bytes.len()) };
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

    /// Completes a head with these bytes. Returns the head if earlier bytes belong to it, and the number of
    /// these bytes that belong to it.
    #[allow(clippy::type_complexity)]
    fn complete_head(&mut self, bytes: &[u8]) -> Result<Option<(Option<Vec<u8>>, usize)>, String> {
        let before = self.partial.len();
        if before == 0 {
            // Checks whole heads, too: the parser would skip blank lines before them.
            looks_like_http(bytes)?;
            if let Some(at) = memmem::find(bytes, b"\r\n\r\n") {
                return Ok(Some((None, at + 4)));
            }
        }
        self.partial.extend_from_slice(bytes);
        // The end may be split: up to three bytes of it may have been received earlier.
        if let Some(at) = memmem::find(&self.partial[before.saturating_sub(3)..], b"\r\n\r\n") {
            let end = before.saturating_sub(3) + at + 4;
            self.partial.truncate(end);
            return Ok(Some((Some(std::mem::take(&mut self.partial)), end - before)));
        }
        looks_like_http(&self.partial)?;
        match self.partial.len() > LONGEST_HEAD {
            true => Err("the response head is longer than 256 KiB".to_owned()),
            false => Ok(None),
        }
    }

    fn begin(&mut self, head: &Head, sink: &mut impl Sink) {
        self.keep_alive = head.keep_alive;
        self.state = match head.framing {
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Chunked(Chunked::new()),
            Framing::UntilClose => State::UntilClose,
        };
        sink.head(head);
    }

    fn take_body(&mut self, bytes: &[u8], used: usize, sink: &mut impl Sink) -> Result<Read, String> {
        let rest = &bytes[used..];
        let (taken, over) = match &mut self.state {
            State::Head => (0, false),
            State::Length(left) => {
                let here = usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
                if here > 0 {
                    sink.body(&rest[..here]);
                }
                *left -= here as u64;
                (here, *left == 0)
            }
            State::Chunked(chunked) => {
                let here = chunked.take(rest, &mut |data| sink.body(data))?;
                (here, chunked.is_over())
            }
            State::UntilClose => {
                if !rest.is_empty() {
                    sink.body(rest);
                }
                (rest.len(), false)
            }
        };
        if over {
            self.state = State::Head;
        }
        Ok(Read { used: used + taken, complete: over.then_some(self.keep_alive) })
    }

    /// Handles the end of the connection. Returns whether it completes the response.
    pub(crate) fn end(&mut self) -> bool {
        let whole = matches!(self.state, State::UntilClose);
        if whole {
            self.state = State::Head;
        }
        whole
    }
}

/// Rejects other protocols at once. Without this check, a server that uses another protocol, or ends lines
/// without CR, would cost a whole time-out.
fn looks_like_http(bytes: &[u8]) -> Result<(), String> {
    let start = b"HTTP/1.";
    let same = bytes.iter().zip(start).all(|(byte, expected)| byte == expected);
    match same {
        true => Ok(()),
        false => Err("the response is not HTTP: it does not begin with HTTP/1.".to_owned()),
    }
}

/// See [`crate::fuzz`].
pub(crate) fn fuzz(bytes: &[u8], cut: usize) {
    let (front, back) = bytes.split_at(cut.min(bytes.len()));
    let (whole, split) = (fuzz_read(&[bytes]), fuzz_read(&[front, back]));
    assert_eq!(whole.is_ok(), split.is_ok(), "{whole:?} {split:?}");
    assert!(whole.is_err() || whole == split, "{whole:?} {split:?}");
}

/// The statuses, the body and the persistence of each response.
type Collected = (Vec<u16>, Vec<u8>, Vec<bool>);

fn fuzz_read(pieces: &[&[u8]]) -> Result<Collected, String> {
    #[derive(Default)]
    struct Collector(Vec<u16>, Vec<u8>);
    impl Sink for Collector {
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
    let (mut reader, mut last, mut collector) = (Reader::new(), LastHead::default(), Collector::default());
    let mut whole = Vec::new();
    for piece in pieces {
        let mut bytes = *piece;
        while !bytes.is_empty() {
            let read = reader.take(bytes, &mut last, &mut collector)?;
            whole.extend(read.complete);
            bytes = &bytes[read.used..];
        }
    }
    Ok((collector.0, collector.1, whole))
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
