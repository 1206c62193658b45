//! Request bodies, and response bodies that arrive in pieces.

use crate::Failure;
use crate::held::OpenFile;
use std::future::poll_fn;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Why a request body did not arrive completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyError {
    /// The client closed or reset the connection.
    Gone,
    /// It arrived slower than `body_min_rate`.
    TooSlow,
    /// It is larger than `max_body`.
    TooLarge,
    /// Its framing is invalid, as the text explains.
    Malformed(&'static str),
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Failure {
        match error {
            BodyError::Gone => Failure::client(400, "the client closed the connection inside the body"),
            BodyError::TooSlow => Failure::client(408, "the body came slower than body_min_rate"),
            BodyError::TooLarge => Failure::client(413, "the body is larger than max_body"),
            BodyError::Malformed(reason) => Failure::client(400, reason),
        }
    }
}

/// A request body that is still arriving.
pub trait IncomingBody {
    /// Returns the next bytes; `None` at the end. The first call sends 100 (Continue) to a client that
    /// expects it.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<bytes::Bytes, BodyError>>>;

    /// Returns the length in bytes, if the client has declared it.
    fn length(&self) -> Option<u64>;
}

pub enum Incoming {
    Empty,
    Ready(bytes::Bytes),
    Arriving(Box<dyn IncomingBody>),
}

impl Incoming {
    /// Returns the length in bytes; `None` if the client has not declared it.
    pub fn length(&self) -> Option<u64> {
        match self {
            Incoming::Empty => Some(0),
            Incoming::Ready(bytes) => Some(bytes.len() as u64),
            Incoming::Arriving(body) => body.length(),
        }
    }

    /// Returns the next bytes; `None` at the end.
    ///
    /// # Errors
    /// See [`BodyError`]. No bytes follow an error.
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
    pub file: Rc<OpenFile>,
    /// The offset of the first byte.
    pub offset: u64,
    /// The length in bytes.
    pub len: u64,
}

#[derive(Debug)]
pub enum Chunk {
    /// Never empty.
    Bytes(bytes::Bytes),
    File(FileRegion),
    /// Bytes in another process, which can write them to the client itself.
    Offer(Box<dyn Lender>),
}

impl Chunk {
    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Chunk::Bytes(bytes) => bytes.len() as u64,
            Chunk::File(region) => region.len,
            Chunk::Offer(lender) => lender.offered(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Body bytes that their owner offers to write to the client's socket, so that they are not copied.
///
/// Contract:
/// 1. [`Lender::poll_lend`] is called soon, whatever the client does, because the owner waits for the answer.
///    It is polled until it is ready, with the same socket or none.
/// 2. With a socket: everything before the offered bytes has been written to it, the bytes can be sent
///    without framing, and the protocol side does not write until it has the answer. The owner writes what
///    fits without waiting.
/// 3. The answer is the number of offered bytes, counted from the first, that were written to the socket. The
///    others, or all of them without a socket, are in the next chunks of the stream.
/// 4. Dropping the lender declines the offer. While the socket is lent, the lender may be dropped only
///    together with the connection.
pub trait Lender: std::fmt::Debug {
    /// Returns the number of offered bytes, at least one.
    fn offered(&self) -> u64;

    /// Lends the client's socket, or declines the offer.
    ///
    /// # Errors
    /// Fails if the owner has failed. The number of bytes that it has written is then unknown.
    fn poll_lend(
        &mut self,
        cx: &mut Context<'_>,
        socket: Option<BorrowedFd<'_>>,
    ) -> Poll<Result<u64, Failure>>;
}

pub trait BodyStream {
    /// Returns the next piece; `None` at the end.
    ///
    /// # Errors
    /// Returns why the body cannot be completed. The client sees that it broke off, and the failure is
    /// counted and logged. No pieces follow.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>>;

    /// Called when the client has closed its sending side. Most clients that do so have gone, which only a
    /// write would reveal, so a stream that may be silent for long should end with a failure here. It is
    /// polled again afterwards.
    fn half_closed(&mut self) {}
}
