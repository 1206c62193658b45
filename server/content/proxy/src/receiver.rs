//! Receives a response from an origin: passes on informational responses and checks the final head.
//!
//! Contract:
//! 1. Bytes after the head are in [`Received`], or make the connection unusable for another request; none is lost.
//! 2. At most [`MAX_INTERIM`] informational responses, each within `max_response_head`.

use crate::via;
use bytes::Bytes;
use h1::chunked::{ChunkBounds, Decoder};
use h1::{Framing, ResponseHead, ResponseParser};
use handler::{BodyError, Client, Failure, Fields};
use net::{Stream, Transport};
use std::borrow::Cow;
use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll, ready};

/// The description of an invalid response.
pub(crate) type Mistake = &'static str;

/// The most informational responses before a final one.
const MAX_INTERIM: usize = 64;
/// Limits for trailers, which are dropped.
const BOUNDS: ChunkBounds = ChunkBounds { max_body: None, max_trailer_bytes: 16 << 10, max_trailers: 256 };
/// Room for fields that are added to a response: `Via`, the request's id.
const ADDED: usize = 96;
/// Bytes per read from a socket.
const SCRATCH: usize = 64 << 10;

thread_local! {
    /// The read buffer; borrowed only inside one call.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Reads once into this thread's buffer and passes the bytes to `take`.
pub(crate) fn land<R>(stream: &Stream, take: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
    BUFFER.with(|buffer| {
        let mut buffer = buffer.borrow_mut();
        if buffer.is_empty() {
            buffer.resize(SCRATCH, 0);
        }
        let n = stream.try_read(&mut buffer)?;
        Ok(take(&buffer[..n]))
    })
}

/// The rest of a body.
#[derive(Debug)]
pub(crate) enum Rest {
    /// No rest.
    Done,
    /// This many bytes.
    Length(u64),
    Chunked(Box<Decoder>),
    /// Everything until the connection ends.
    Close,
    /// The body broke off.
    Broken(Failure),
}

impl Rest {
    /// Returns the rest of a body that the origin broke off, or whose coding is malformed.
    pub(crate) fn broken(why: impl Into<Cow<'static, str>>) -> Rest {
        Rest::Broken(Failure::app(502, why))
    }
}

/// The received part of a final response.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) status: u16,
    pub(crate) fields: Fields,
    /// The received bytes of the body, or the bytes after a 101.
    pub(crate) first: Bytes,
    pub(crate) rest: Rest,
    /// The connection may be reused when the body has ended.
    pub(crate) persistent: bool,
    pub(crate) keep_alive: Option<u64>,
}

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum NoResponse {
    /// The connection has ended; `true` if a part of a response had arrived.
    Closed(bool, Option<io::Error>),
    Malformed(Mistake),
}

/// The facts about the request that its response depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected<'a> {
    pub(crate) is_head: bool,
    pub(crate) upgrade: Option<&'a [u8]>,
    pub(crate) max_head: usize,
    /// The response gets a `Via`.
    pub(crate) via: bool,
}

/// The state between two packets.
pub(crate) struct Receiver<'a> {
    parser: ResponseParser,
    /// An incomplete head.
    held: Vec<u8>,
    interim: usize,
    begun: bool,
    expected: Expected<'a>,
}

impl<'a> Receiver<'a> {
    pub(crate) fn new(expected: Expected<'a>) -> Receiver<'a> {
        Receiver { parser: ResponseParser::new(), held: Vec::new(), interim: 0, begun: false, expected }
    }

    /// Ready with the final response, or when there will be none. Sets `informed` when an informational
    /// response has arrived.
    pub(crate) fn poll(
        &mut self,
        stream: &Stream,
        client: &dyn Client,
        informed: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Received, NoResponse>> {
        loop {
            ready!(stream.poll_readable(cx));
            let before = self.interim;
            let parsed = match land(stream, |bytes| self.take(bytes, client)) {
                Ok(parsed) => parsed,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => Err(NoResponse::Closed(self.begun, Some(error))),
            };
            *informed |= self.interim != before;
            if let Some(result) = parsed.transpose() {
                return Poll::Ready(result);
            }
        }
    }

    fn take(&mut self, bytes: &[u8], client: &dyn Client) -> Result<Option<Received>, NoResponse> {
        if bytes.is_empty() {
            return Err(NoResponse::Closed(self.begun, None));
        }
        self.begun = true;
        if self.held.is_empty() {
            let used = match self.parse(bytes, client)? {
                Ok(received) => return Ok(Some(received)),
                Err(used) => used,
            };
            self.held.extend_from_slice(&bytes[used..]);
        } else {
            let mut held = std::mem::take(&mut self.held);
            held.extend_from_slice(bytes);
            let used = match self.parse(&held, client)? {
                Ok(received) => return Ok(Some(received)),
                Err(used) => used,
            };
            held.drain(..used);
            self.held = held;
        }
        Ok(None)
    }

    /// Returns the final response at the front of `text`, or the length of the informational ones.
    fn parse(&mut self, text: &[u8], client: &dyn Client) -> Result<Result<Received, usize>, NoResponse> {
        let mut at = 0;
        loop {
            let end =
                self.parser.advance(&text[at..], self.expected.max_head).map_err(NoResponse::Malformed)?;
            let Some(end) = end else { return Ok(Err(at)) };
            let whole = &text[at..at + end];
            let head = std::mem::replace(&mut self.parser, ResponseParser::new()).finish(whole);
            at += end;
            if head.status >= 200 || head.status == 101 {
                return self.settle(head, whole, &text[at..]).map(Ok).map_err(NoResponse::Malformed);
            }
            self.interim += 1;
            if self.interim > MAX_INTERIM {
                return Err(NoResponse::Malformed("more than 64 informational responses"));
            }
            if head.status != 100 {
                client.interim(head.status, &Fields::from_parts(whole.to_vec(), head.slots));
            }
        }
    }

    fn settle(&self, head: ResponseHead, text: &[u8], behind: &[u8]) -> Result<Received, Mistake> {
        // Leaves room for the fields that the server adds.
        let mut copy = Vec::with_capacity(text.len() + ADDED);
        copy.extend_from_slice(text);
        let mut fields = Fields::from_parts(copy, head.slots);
        if self.expected.via {
            via::mark(&mut fields, text.starts_with(b"HTTP/1.0"));
        }
        let mut received = Received {
            status: head.status,
            fields,
            first: Bytes::new(),
            rest: Rest::Done,
            persistent: head.persistent,
            keep_alive: head.keep_alive,
        };
        if head.status == 101 {
            let switched = head.upgrade.map(|span| span.slice(text)).unwrap_or_default();
            return match self.expected.upgrade {
                None => Err("101 (Switching Protocols) that was not requested"),
                Some(asked) if !asked.eq_ignore_ascii_case(switched) => {
                    Err("101 (Switching Protocols) to another protocol than requested")
                }
                Some(_) => {
                    received.first = Bytes::copy_from_slice(behind);
                    received.rest = Rest::Close;
                    Ok(received)
                }
            };
        }
        if self.expected.is_head || matches!(head.status, 204 | 304) {
            // Such a response's declaration of a body does not concern this connection, but some servers send a body.
            let announced =
                head.status == 204 && !matches!(head.framing, Framing::Close | Framing::Length(0));
            received.persistent &= behind.is_empty() && !announced;
            return Ok(received);
        }
        match head.framing {
            Framing::Length(length) => {
                let n = usize::try_from(length).unwrap_or(usize::MAX).min(behind.len());
                received.first = Bytes::copy_from_slice(&behind[..n]);
                received.persistent &= n == behind.len();
                let left = length - n as u64;
                received.rest = if left == 0 { Rest::Done } else { Rest::Length(left) };
            }
            Framing::Chunked => {
                received.rest = Rest::Chunked(Box::new(Decoder::new(BOUNDS)));
                let mut data = Vec::with_capacity(behind.len());
                received.append(behind, &mut data)?;
                received.first = data.into();
            }
            Framing::Close => {
                received.first = Bytes::copy_from_slice(behind);
                received.rest = Rest::Close;
                received.persistent = false;
            }
        }
        Ok(received)
    }
}

impl Received {
    /// Records that the connection has ended.
    pub(crate) fn end(&mut self) {
        self.persistent = false;
        self.rest = match self.rest {
            Rest::Close | Rest::Done => Rest::Done,
            _ => Rest::broken("closed inside a body"),
        };
    }

    /// Adds more bytes of the body.
    pub(crate) fn append(&mut self, bytes: &[u8], data: &mut Vec<u8>) -> Result<(), Mistake> {
        match &mut self.rest {
            Rest::Done | Rest::Broken(_) => self.persistent &= bytes.is_empty(),
            Rest::Close => data.extend_from_slice(bytes),
            Rest::Length(left) => {
                let n = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                data.extend_from_slice(&bytes[..n]);
                *left -= n as u64;
                self.persistent &= n == bytes.len();
                if *left == 0 {
                    self.rest = Rest::Done;
                }
            }
            Rest::Chunked(decoder) => {
                let used = decode(decoder, bytes, data)?;
                if decoder.is_done() {
                    self.persistent &= used == bytes.len();
                    self.rest = Rest::Done;
                }
            }
        }
        Ok(())
    }
}

/// Decodes a part of a chunked body.
fn decode(decoder: &mut Decoder, bytes: &[u8], data: &mut Vec<u8>) -> Result<usize, Mistake> {
    decoder.decode(bytes, data).map_err(mistake)
}

/// Describes the mistake in a chunked body.
pub(crate) fn mistake(error: BodyError) -> Mistake {
    match error {
        BodyError::Malformed(what) => what,
        _ => "a chunked body without bounds",
    }
}
