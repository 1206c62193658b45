//! Request bodies, and response bodies that come in pieces.

use crate::Failure;
use crate::held::OpenFile;
use std::future::poll_fn;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Why a request body did not arrive whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyError {
    /// The client closed or reset the connection.
    Gone,
    /// It arrived slower than `body_min_rate`.
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

    /// Length in bytes, if the client has declared it.
    fn length(&self) -> Option<u64>;
}

/// The body of a request.
pub enum Incoming {
    /// No body.
    Empty,
    /// All of it has arrived.
    Ready(bytes::Bytes),
    /// The rest is still to be read.
    Arriving(Box<dyn IncomingBody>),
}

impl Incoming {
    /// Length in bytes; `None` if the client has not declared it.
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

/// A part of a regular file. If the file shrinks before it is sent, the response is cut off.
#[derive(Debug, Clone)]
pub struct FileRegion {
    /// The file.
    pub file: Rc<OpenFile>,
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
    /// Bytes in another process, which can write them to the client itself.
    Offer(Box<dyn Lender>),
}

impl Chunk {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Chunk::Bytes(bytes) => bytes.len() as u64,
            Chunk::File(region) => region.len,
            Chunk::Offer(lender) => lender.offered(),
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Body bytes that their owner offers to write to the client's socket, so that they are not copied.
///
/// Contract:
/// 1. [`Lender::poll_lend`] is called soon, whatever the client does: the owner waits for the answer. It is polled until it
///    is ready, with the same socket or none.
/// 2. With a socket: all that comes before the offered bytes has been written to it, they may stand in the stream as they
///    are, and the protocol side does not write until the answer is there. The owner writes what fits without waiting.
/// 3. The answer says how many of the offered bytes, from the first one on, are in the socket. The others, without a socket
///    all of them, are in the next chunks of the stream.
/// 4. Dropping it is declining it. While the socket is lent it may be dropped only with the connection.
pub trait Lender: std::fmt::Debug {
    /// How many bytes are offered; at least one.
    fn offered(&self) -> u64;

    /// Lends the client's socket, or declines the offer.
    ///
    /// # Errors
    /// The owner has failed; how many bytes it has written is not known.
    fn poll_lend(
        &mut self,
        cx: &mut Context<'_>,
        socket: Option<BorrowedFd<'_>>,
    ) -> Poll<Result<u64, Failure>>;
}

/// A response body that comes in pieces.
pub trait BodyStream {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// Why the body cannot be completed. The client sees that it broke off; the failure is counted and logged. Nothing follows.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>>;

    /// The client has closed its sending side. Most clients that do so have gone, which only a write would show: a stream that
    /// may be silent for long ends with a failure here. It is polled again afterwards.
    fn half_closed(&mut self) {}
}
