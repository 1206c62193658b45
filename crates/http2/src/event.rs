//! What a client did, in the order in which it did it.

use crate::ErrorCode;
use fieldcode::RequestHead;
use handler::Failure;

/// A stream that a client has opened. It stays valid as a name when the stream has closed: calls for it do nothing then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId {
    pub(crate) id: u32,
    pub(crate) slot: u32,
}

impl StreamId {
    /// Its place among the open streams of the connection: small, and used again when the stream has closed.
    pub fn place(self) -> u32 {
        self.slot
    }

    /// The number on the wire: odd, below 2^31.
    pub fn number(self) -> u32 {
        self.id
    }
}

/// Something that [`crate::Connection::receive`] reports. Calls in reply are made after it has returned.
#[derive(Debug)]
pub enum Event<'a> {
    /// A request. `end`: it has no body.
    Request {
        /// Its stream.
        stream: StreamId,
        /// Its head.
        head: RequestHead,
        /// Whether it has no body: nothing follows.
        end: bool,
    },
    /// A request that is malformed or beyond a limit, and may get a response (400, 414, 431, 501). Nothing but
    /// `Reset` comes from its stream after that, whatever the client sends. When the response has been sent the engine closes the stream as the RFC requires; a
    /// caller that sends none calls [`crate::Connection::reset`].
    Refused {
        /// Its stream.
        stream: StreamId,
        /// The response.
        failure: Failure,
    },
    /// A part of a body, not empty unless it is the end. It may be a part of a DATA frame. Bytes that have been consumed are
    /// given back with [`crate::Connection::credit`]; until then they count against the stream's window and the connection's.
    Data {
        /// Its stream.
        stream: StreamId,
        /// The bytes.
        data: &'a [u8],
        /// Whether the body ends with it; it then has the declared length.
        end: bool,
    },
    /// The body ended with a trailer section, which was well-formed and has been dropped. Instead of `end` in `Data`.
    Trailers {
        /// Its stream.
        stream: StreamId,
    },
    /// The stream is gone: reset by the client, or by the engine because of the client's mistake, a stalled window or GOAWAY.
    /// Cancel what works for it; calls for it do nothing any more.
    Reset {
        /// Its stream.
        stream: StreamId,
        /// The code of the RST_STREAM frame.
        code: ErrorCode,
        /// The mistake, if the engine reset it; `None` if the client did.
        reason: Option<&'static str>,
    },
    /// The client will open no more streams. Requests in progress are finished; close when the connection is idle.
    GoAway {
        /// The code; anything but `NO_ERROR` is a complaint.
        code: ErrorCode,
    },
}
