//! One connection: its calls.

use crate::{ConnectionError, ErrorCode, Event, Limits, StreamId};
use bytes::Bytes;
use handler::Fields;
use net::Output;
use std::time::Instant;

/// The server's end of an HTTP/2 connection.
///
/// The caller reads from the socket and calls [`Connection::receive`]; after each turn it writes [`Connection::output`]. It does
/// not read while more than a turn's worth of output is unsent (64 KiB, say): heads of responses are not subject to flow
/// control, so a client that sends and never reads is held back by this alone.
///
/// Calls that name a stream which is gone do nothing, and say so where it matters.
#[derive(Debug)]
pub struct Connection {
    output: Output,
}

impl Connection {
    /// A connection whose first bytes (the client's preface) are yet to come. The server's SETTINGS are in the output.
    pub fn new(_limits: Limits, _now: Instant) -> Connection {
        unimplemented!()
    }

    /// Takes bytes that have arrived, all of them, and reports what they mean. Partial frames are kept inside.
    ///
    /// # Errors
    /// The connection is over: write the output, which ends with GOAWAY, and close. Streams get no further events.
    pub fn receive(
        &mut self,
        _input: &[u8],
        _now: Instant,
        _events: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ConnectionError> {
        unimplemented!()
    }

    /// Checks deadlines: call it a few times a second, or when [`Connection::deadline`] has passed. Stalled streams are reset
    /// (`Event::Reset`).
    ///
    /// # Errors
    /// As [`Connection::receive`]: the client was too slow with a frame or an acknowledgement.
    pub fn check(
        &mut self,
        _now: Instant,
        _events: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ConnectionError> {
        unimplemented!()
    }

    /// When [`Connection::check`] has something to do; `None` if nothing is awaited. Never earlier than it was said before,
    /// unless bytes were received or sent.
    pub fn deadline(&self) -> Option<Instant> {
        unimplemented!()
    }

    /// The handler has consumed `n` bytes of the stream's body: the client may send as many again. WINDOW_UPDATE is sent when it
    /// is worth a frame. What a stream has not given back when it closes is given back then.
    pub fn credit(&mut self, _stream: StreamId, _n: usize) {
        unimplemented!()
    }

    /// Sends an informational response (100, 103). Fields as in [`Connection::head`]. Does nothing after the head.
    pub fn interim(&mut self, _stream: StreamId, _status: u16, _fields: &Fields) {
        unimplemented!()
    }

    /// Sends a response's head; `end`: it has no body (HEAD, 204, 304, an empty one). `false`: the stream is gone, or has had its
    /// head.
    ///
    /// Names are written in lower case. `connection`, `keep-alive`, `proxy-connection`, `transfer-encoding`, `upgrade` and
    /// `content-length` are left out; `content_length` is written if it is given, and `date` (IMF-fixdate) unless the fields have
    /// one. Fields that are malformed (`h1::fields_are_clean`) are left out as well. Frozen fields are encoded once.
    pub fn head(
        &mut self,
        _stream: StreamId,
        _status: u16,
        _fields: &Fields,
        _date: &[u8],
        _content_length: Option<u64>,
        _end: bool,
    ) -> bool {
        unimplemented!()
    }

    /// How many body bytes the stream may send now: the smaller one of both windows; 0 without a head or without a stream.
    pub fn room(&self, _stream: StreamId) -> usize {
        unimplemented!()
    }

    /// The stream has body bytes to send, or its end. It will be named by [`Connection::next_sender`] once, when there is room.
    pub fn ready(&mut self, _stream: StreamId) {
        unimplemented!()
    }

    /// The most urgent ready stream that has room in both windows, and how much it should send now, at least 1 byte. It is not
    /// ready any more: call [`Connection::ready`] again if it has more after that. Streams are served by urgency (RFC 9218),
    /// those of the same urgency in order of their numbers, incremental ones in turns.
    pub fn next_sender(&mut self) -> Option<(StreamId, usize)> {
        unimplemented!()
    }

    /// Sends body bytes as far as both windows allow and returns the rest; `end`: the body ends with them, if there is no rest.
    /// May be called right after [`Connection::head`] without [`Connection::ready`]: a small response then needs no turn. An empty
    /// `data` with `end` needs no window. Bytes for a stream that is gone are dropped (the rest is empty).
    #[must_use]
    pub fn data(&mut self, _stream: StreamId, _data: Bytes, _end: bool) -> Bytes {
        unimplemented!()
    }

    /// Sends one DATA frame that `write` appends to the output itself: at most as many bytes as its second argument says (which is
    /// at most `most`, a frame and [`Connection::room`]; it is not called if that is 0). It returns whether the body ends with
    /// them. Returns how many bytes were sent.
    pub fn data_with(
        &mut self,
        _stream: StreamId,
        _most: usize,
        _write: impl FnOnce(&mut Vec<u8>, usize) -> bool,
    ) -> usize {
        unimplemented!()
    }

    /// Sends trailers, which end the body. Fields as in [`Connection::head`], without date.
    pub fn trailers(&mut self, _stream: StreamId, _fields: &Fields) {
        unimplemented!()
    }

    /// Resets the stream. After a complete response to a request whose body is not wanted, the code is `NO_ERROR`
    /// (RFC 9113 section 8.1). No event follows.
    pub fn reset(&mut self, _stream: StreamId, _code: ErrorCode) {
        unimplemented!()
    }

    /// Ends the connection: GOAWAY with the last stream that was taken. Nothing is received any more; responses that are being
    /// sent may go on.
    pub fn goaway(&mut self, _code: ErrorCode) {
        unimplemented!()
    }

    /// Lets the client finish: GOAWAY without a last stream, then, a round trip later, GOAWAY with the last stream. Streams after
    /// that one are refused. Close when [`Connection::is_drained`].
    pub fn drain(&mut self) {
        unimplemented!()
    }

    /// Whether GOAWAY has been sent or received, and no stream is open.
    pub fn is_drained(&self) -> bool {
        unimplemented!()
    }

    /// Bytes to write. Everything of a turn leaves in one write.
    pub fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    /// Whether no stream is open.
    pub fn is_idle(&self) -> bool {
        self.streams() == 0
    }

    /// Streams that are open.
    pub fn streams(&self) -> usize {
        unimplemented!()
    }

    /// Whether the client still sends this stream's body.
    pub fn is_receiving(&self, _stream: StreamId) -> bool {
        unimplemented!()
    }

    /// Whether the stream is open in at least one direction.
    pub fn is_open(&self, _stream: StreamId) -> bool {
        unimplemented!()
    }
}
