//! Bodies: what comes in, and what goes out in parts.

use std::fs::File;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Why a request body did not arrive whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyError {
    /// The client closed or reset the connection.
    Gone,
    /// It came slower than `body_min_rate` allows.
    TooSlow,
    /// It is larger than `max_body`.
    TooLarge,
    /// Its framing is broken; the text says how.
    Malformed(&'static str),
}

/// A request body as it arrives.
pub trait IncomingBody {
    /// The next bytes; `None` at the end. The first call tells a client that expects it to continue (100).
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<bytes::Bytes, BodyError>>>;

    /// Length in bytes, if the client said.
    fn length(&self) -> Option<u64>;
}

/// The body of a request: most have none.
pub enum Incoming {
    /// No body.
    Empty,
    /// All of it was there already.
    Ready(bytes::Bytes),
    /// It is to be read.
    Arriving(Box<dyn IncomingBody>),
}

impl Incoming {
    /// Length in bytes; `None` when the client did not say.
    pub fn length(&self) -> Option<u64> {
        match self {
            Incoming::Empty => Some(0),
            Incoming::Ready(bytes) => Some(bytes.len() as u64),
            Incoming::Arriving(body) => body.length(),
        }
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// See [`BodyError`]; nothing more comes after an error.
    pub async fn data(&mut self) -> Option<Result<bytes::Bytes, BodyError>> {
        match self {
            Incoming::Empty => None,
            Incoming::Ready(bytes) if bytes.is_empty() => None,
            Incoming::Ready(bytes) => Some(Ok(std::mem::take(bytes))),
            Incoming::Arriving(body) => poll_fn(|cx| body.poll_data(cx)).await,
        }
    }
}

/// A part of a regular file. The file may shrink meanwhile: what is missing breaks the response off.
#[derive(Debug, Clone)]
pub struct FileRegion {
    /// The file.
    pub file: Rc<File>,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// A piece of a response body.
#[derive(Debug)]
pub enum Chunk {
    /// Bytes; not empty.
    Bytes(bytes::Bytes),
    /// A part of a file.
    File(FileRegion),
}

impl Chunk {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Chunk::Bytes(bytes) => bytes.len() as u64,
            Chunk::File(region) => region.len,
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The source of a body broke off: the response cannot be completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

/// A response body that comes in pieces.
pub trait BodyStream {
    /// The next piece; `None` at the end.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Broken>>>;
}
