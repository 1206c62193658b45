//! A client made of bytes: frames in, events and frames out.

use bytes::Bytes;
use handler::Fields;
use http2::{Connection, ConnectionError, ErrorCode, Event, Limits, StreamId};
use std::time::{Duration, Instant};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub const DATE: &[u8] = b"Mon, 21 Oct 2013 20:13:21 GMT";

/// A frame that the server sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// An event, owned. The data of one frame is one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Request { stream: u32, path: String, fields: Vec<String>, end: bool },
    Refused { stream: u32, status: u16 },
    Data { stream: u32, data: Vec<u8>, end: bool },
    Trailers(u32),
    Reset { stream: u32, code: ErrorCode, by_client: bool },
    GoAway(ErrorCode),
}

pub struct Client {
    pub server: Connection,
    pub seen: Vec<Seen>,
    /// Streams in the order of their requests.
    pub streams: Vec<StreamId>,
    pub start: Instant,
    pub now: Instant,
    /// Sent by the server and not parsed yet.
    unparsed: Vec<u8>,
    pub result: Result<(), ConnectionError>,
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut text = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    text.extend([kind, flags]);
    text.extend(stream.to_be_bytes());
    text.extend(payload);
    text
}

/// Encodes literals without indexing.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            fieldcode::encode_integer(&mut block, 0, 7, text.len() as u64);
            block.extend(text.as_bytes());
        }
    }
    block
}

pub const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "x.test"), (":path", "/")];
pub const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "https"), (":authority", "x.test"), (":path", "/")];

impl Client {
    /// A client before the preface.
    pub fn raw(limits: Limits) -> Client {
        let now = Instant::now();
        let server = Connection::new(limits, now);
        Client { server, seen: vec![], streams: vec![], start: now, now, unparsed: vec![], result: Ok(()) }
    }

    /// A client after the preface and both sides' SETTINGS.
    pub fn with(limits: Limits) -> Client {
        let mut client = Client::raw(limits);
        client.send(PREFACE);
        client.send(&frame(4, 0, 0, &[]));
        client.send(&frame(4, 1, 0, &[]));
        assert_eq!(client.result, Ok(()));
        client.frames();
        client
    }

    pub fn new() -> Client {
        Client::with(Limits::default())
    }

    pub fn send(&mut self, bytes: &[u8]) {
        let (seen, streams) = (&mut self.seen, &mut self.streams);
        let result = self.server.receive(bytes, self.now, &mut |event| see(event, seen, streams));
        if self.result.is_ok() {
            self.result = result;
        }
    }

    pub fn check(&mut self, later: Duration) {
        self.now += later;
        let (seen, streams) = (&mut self.seen, &mut self.streams);
        let result = self.server.check(self.now, &mut |event| see(event, seen, streams));
        if self.result.is_ok() {
            self.result = result;
        }
    }

    pub fn headers(&mut self, stream: u32, flags: u8, fields: &[(&str, &str)]) {
        self.send(&frame(1, flags, stream, &block(fields)));
    }

    /// Sends a request without a body.
    pub fn get(&mut self, stream: u32) -> StreamId {
        self.headers(stream, 5, &GET);
        *self.streams.last().unwrap()
    }

    /// Sends a request with an open body.
    pub fn post(&mut self, stream: u32) -> StreamId {
        self.headers(stream, 4, &POST);
        *self.streams.last().unwrap()
    }

    pub fn data(&mut self, stream: u32, end: bool, data: &[u8]) {
        self.send(&frame(0, u8::from(end), stream, data));
    }

    pub fn window(&mut self, stream: u32, by: u32) {
        self.send(&frame(8, 0, stream, &by.to_be_bytes()));
    }

    pub fn setting(&mut self, name: u16, value: u32) {
        self.send(&frame(4, 0, 0, &[&name.to_be_bytes()[..], &value.to_be_bytes()].concat()));
    }

    /// Returns all frames that the server has sent since the last call.
    pub fn frames(&mut self) -> Vec<Frame> {
        let output = self.server.output();
        while !output.is_empty() {
            let piece: Vec<u8> = output.slices().iter().flat_map(|slice| slice.to_vec()).collect();
            output.advance(piece.len());
            self.unparsed.extend(piece);
        }
        let mut frames = Vec::new();
        while let [a, b, c, kind, flags, s @ ..] = &self.unparsed[..] {
            let len = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
            let stream = u32::from_be_bytes(s[..4].try_into().unwrap());
            frames.push(Frame { kind: *kind, flags: *flags, stream, payload: s[4..4 + len].to_vec() });
            self.unparsed.drain(..9 + len);
        }
        assert!(self.unparsed.is_empty());
        frames
    }

    /// Returns the frames of one kind.
    pub fn only(&mut self, kind: u8) -> Vec<Frame> {
        self.frames().into_iter().filter(|frame| frame.kind == kind).collect()
    }

    pub fn take(&mut self) -> Vec<Seen> {
        std::mem::take(&mut self.seen)
    }

    /// Returns the streams that were reset, with their codes.
    pub fn resets(&mut self) -> Vec<(u32, ErrorCode)> {
        self.only(3).into_iter().map(|frame| (frame.stream, code(&frame.payload))).collect()
    }

    /// Checks that the connection has ended with this code and has told the client.
    pub fn assert_failed(&mut self, expected: ErrorCode, what: &str) {
        assert_eq!(self.result.map_err(|error| error.code), Err(expected), "{what}");
        let goaway = self.only(7).pop().expect("GOAWAY");
        assert_eq!(code(&goaway.payload[4..]), expected, "{what}");
        assert!(self.server.receive(b"more", self.now, &mut |_| panic!("an event after the end")).is_err());
    }

    pub fn respond(&mut self, stream: StreamId, body: &[u8]) -> Bytes {
        assert!(self.server.head(
            stream,
            200,
            &Fields::default(),
            DATE,
            Some(body.len() as u64),
            body.is_empty()
        ));
        if body.is_empty() {
            Bytes::new()
        } else {
            self.server.data(stream, Bytes::copy_from_slice(body), true)
        }
    }
}

pub fn code(payload: &[u8]) -> ErrorCode {
    ErrorCode(u32::from_be_bytes(payload[..4].try_into().unwrap()))
}

pub fn see(event: Event<'_>, seen: &mut Vec<Seen>, streams: &mut Vec<StreamId>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let event = match event {
        Event::Request { stream, head, end } => {
            streams.push(stream);
            let fields = head.fields.iter().map(|(name, value)| text(name) + ": " + &text(value)).collect();
            let path = text(head.method.slice(head.fields.text()))
                + " "
                + &text(head.target.slice(head.fields.text()));
            Seen::Request { stream: stream.number(), path, fields, end }
        }
        Event::Refused { stream, failure } => {
            streams.push(stream);
            Seen::Refused { stream: stream.number(), status: failure.status }
        }
        Event::Data { stream, data, end } => {
            let stream = stream.number();
            assert!(end || !data.is_empty());
            if let Some(Seen::Data { stream: last, data: before, end: ended @ false }) = seen.last_mut()
                && *last == stream
            {
                before.extend(data);
                *ended = end;
                return;
            }
            Seen::Data { stream, data: data.to_vec(), end }
        }
        Event::Trailers { stream } => Seen::Trailers(stream.number()),
        Event::Reset { stream, code, reason } => {
            Seen::Reset { stream: stream.number(), code, by_client: reason.is_none() }
        }
        Event::GoAway { code } => Seen::GoAway(code),
    };
    seen.push(event);
}
