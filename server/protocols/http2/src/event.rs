//! Reports the actions of a client, in their order.

use crate::ErrorCode;
use fieldcode::RequestHead;
use handler::Failure;

/// A stream that a client has opened. It stays valid as a name after the stream has closed; calls for it then
/// do nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId {
    pub(crate) id: u32,
    pub(crate) slot: u32,
}

impl StreamId {
    /// Returns the stream's place among the open streams of the connection: a small number, reused after the
    /// stream has closed.
    pub fn place(self) -> u32 {
        self.slot
    }

    /// Returns the number on the wire: odd, below 2^31.
    pub fn number(self) -> u32 {
        self.id
    }
}

/// An event that [`crate::Connection::receive`] reports. Reply only after `receive` has returned.
#[derive(Debug)]
pub enum Event<'a> {
    Request {
        stream: StreamId,
        head: RequestHead,
        /// The request has no body.
        end: bool,
    },
    /// A request that is malformed or beyond a limit, and may get a response (400, 414, 431, 501). Only
    /// `Reset` follows on its stream, whatever the client sends. After the response the engine closes the
    /// stream as the RFC requires; a caller that sends no response must call [`crate::Connection::reset`].
    Refused {
        stream: StreamId,
        /// The response.
        failure: Failure,
    },
    /// A part of a body, not empty unless it is the end. It may be a part of a DATA frame. Consumed bytes are
    /// credited with [`crate::Connection::credit`]; until then they count against the stream's window and the
    /// connection's.
    Data {
        stream: StreamId,
        data: &'a [u8],
        /// The body ends here; it then has the declared length.
        end: bool,
    },
    /// The body ended with a well-formed trailer section, which has been dropped. Instead of `end` in `Data`.
    Trailers { stream: StreamId },
    /// The stream is gone: reset by the client, or by the engine because of the client's error, a stalled
    /// window or GOAWAY. Cancel the work for it; calls for it do nothing any more.
    Reset {
        stream: StreamId,
        /// The code of the RST_STREAM frame.
        code: ErrorCode,
        /// The error, if the engine reset the stream; `None` if the client did.
        reason: Option<&'static str>,
    },
    /// The client will open no more streams. Finish requests in progress; close when the connection is idle.
    GoAway {
        /// Any code but `NO_ERROR` is a complaint.
        code: ErrorCode,
    },
}
