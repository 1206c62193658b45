//! Parses a request stream (RFC 9114 section 4.1): a head, a body, perhaps trailers.
//!
//! Contract:
//! 1. At most one [`Event::Request`], before all other events. DATA is passed on in the pieces in which it arrives.
//! 2. The length of the body is compared with Content-Length.
//! 3. After an error, nothing more is taken from the stream.

use crate::error::{Code, Error};
use crate::frame::{self, HeaderParser, kind};
use crate::qpack;
use bytes::Bytes;
use fieldcode::{DataFrames, HeadLimits, RequestHead, Section, SectionRefusal};

/// An event on the stream.
#[derive(Debug)]
pub enum Event {
    Request(Box<RequestHead>),
    /// A part of the body; not empty.
    Data(Bytes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReceivePhase {
    Head,
    Body,
    /// The trailers have arrived; only unknown frames may follow.
    Trailers,
    Failed,
}

/// The client's side of a request stream.
#[derive(Debug)]
pub struct RequestStream {
    part: ReceivePhase,
    header: HeaderParser,
    /// The current frame: its type and the missing bytes of its payload.
    frame: Option<(u64, u64)>,
    /// The encoded section so far.
    section: Vec<u8>,
    content_length: Option<u64>,
    /// An Extended CONNECT: only DATA may follow its head.
    connect: bool,
    received: u64,
    /// Frames of unknown types: a client that sends many sends nothing else.
    unknown: u32,
    costs: Costs,
}

/// The costs of a stream's frames in the budgets of its connection.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    pub data: DataFrames,
    /// Frames of unknown types.
    pub unknown: u32,
}

/// The most frames of unknown types, or empty DATA frames, on one stream.
const MAX_IDLE_FRAMES: u32 = 1000;

impl Default for RequestStream {
    fn default() -> RequestStream {
        RequestStream {
            part: ReceivePhase::Head,
            header: HeaderParser::default(),
            frame: None,
            section: Vec::new(),
            content_length: None,
            connect: false,
            received: 0,
            unknown: 0,
            costs: Costs::default(),
        }
    }
}

impl RequestStream {
    /// Processes bytes of the stream. `end`: the stream ends after them.
    ///
    /// # Errors
    /// The client's error, and whether it ends the stream, ends the connection or gets a response.
    pub fn receive(
        &mut self,
        bytes: Bytes,
        end: bool,
        limits: &HeadLimits,
        events: &mut impl FnMut(Event),
    ) -> Result<(), Error> {
        if self.part == ReceivePhase::Failed {
            return Ok(());
        }
        let result = self.take(bytes, end, limits, events);
        if result.is_err() {
            self.part = ReceivePhase::Failed;
            self.section = Vec::new();
        }
        result
    }

    /// Returns the costs since the last call.
    pub fn take_costs(&mut self) -> Costs {
        std::mem::take(&mut self.costs)
    }

    /// Returns the bytes of an incomplete section.
    pub fn held(&self) -> usize {
        self.section.len()
    }

    /// Returns whether the head has arrived.
    pub fn has_head(&self) -> bool {
        !matches!(self.part, ReceivePhase::Head)
    }

    fn take(
        &mut self,
        bytes: Bytes,
        end: bool,
        limits: &HeadLimits,
        events: &mut impl FnMut(Event),
    ) -> Result<(), Error> {
        let mut at = 0;
        loop {
            let (kind, left) = match self.frame {
                Some(frame) => frame,
                None => {
                    let mut rest = &bytes[at..];
                    let header = self.header.advance(&mut rest);
                    at = bytes.len() - rest.len();
                    let Some((kind, length)) = header else { break };
                    self.begin(kind, length, limits)?;
                    (kind, length)
                }
            };
            let n = (bytes.len() - at).min(usize::try_from(left).unwrap_or(usize::MAX));
            match kind {
                kind::DATA if n > 0 => events(Event::Data(bytes.slice(at..at + n))),
                kind::HEADERS => self.section.extend_from_slice(&bytes[at..at + n]),
                _ => {}
            }
            at += n;
            if left > n as u64 {
                self.frame = Some((kind, left - n as u64));
                break;
            }
            self.frame = None;
            if kind == kind::HEADERS {
                let last = end && at == bytes.len();
                self.section_ends(last, limits, events)?;
            }
        }
        if end { self.finish() } else { Ok(()) }
    }

    /// Checks whether a frame is allowed at its beginning.
    fn begin(&mut self, frame: u64, length: u64, limits: &HeadLimits) -> Result<(), Error> {
        let unexpected = |why| Err(Error::Connection(Code::FrameUnexpected, why));
        match (frame, self.part) {
            (kind::DATA, ReceivePhase::Body) => {
                self.received = self.received.saturating_add(length);
                if self.content_length.is_some_and(|declared| self.received > declared) {
                    return Err(Error::Stream(Code::MessageError, "a body longer than its Content-Length"));
                }
                self.costs.data.count(length);
                self.count_idle(length == 0)
            }
            (kind::DATA, _) => unexpected("DATA before a head or behind trailers"),
            // RFC 9114 section 4.4.
            (kind::HEADERS, ReceivePhase::Body) if self.connect => unexpected("HEADERS in a tunnel"),
            (kind::HEADERS, ReceivePhase::Trailers) => unexpected("a third HEADERS frame"),
            (kind::HEADERS, _) => {
                // An encoded section is hardly longer than its text; Huffman coding may make it shorter.
                if length > limits.max_header_bytes as u64 * 2 {
                    return Err(match self.part {
                        ReceivePhase::Head => refused(431, "the head is larger than max_header_bytes"),
                        _ => Error::Stream(Code::ExcessiveLoad, "trailers larger than max_header_bytes"),
                    });
                }
                Ok(())
            }
            (
                kind::CANCEL_PUSH
                | kind::SETTINGS
                | kind::GOAWAY
                | kind::MAX_PUSH_ID
                | kind::PRIORITY_UPDATE
                | kind::PRIORITY_UPDATE_PUSH,
                _,
            ) => unexpected("a frame of the control stream in a request"),
            (kind::PUSH_PROMISE, _) => unexpected("PUSH_PROMISE from a client"),
            _ if frame::is_reserved(frame) => unexpected("a frame type of HTTP/2"),
            _ => {
                self.costs.unknown += 1;
                self.count_idle(true)
            }
        }
    }

    fn count_idle(&mut self, idle: bool) -> Result<(), Error> {
        self.unknown += u32::from(idle);
        if self.unknown > MAX_IDLE_FRAMES {
            return Err(Error::Connection(Code::ExcessiveLoad, "too many frames without content"));
        }
        Ok(())
    }

    fn section_ends(
        &mut self,
        last: bool,
        limits: &HeadLimits,
        events: &mut impl FnMut(Event),
    ) -> Result<(), Error> {
        let encoded = std::mem::take(&mut self.section);
        if self.part == ReceivePhase::Head {
            let mut section = Section::request(encoded.len() * 3 / 2 + 64, 16);
            qpack::decode(&encoded, &mut section, limits)?;
            let head = section.finish_request(last).map_err(refusal)?;
            self.content_length = head.content_length;
            self.connect = head.websocket;
            self.part = ReceivePhase::Body;
            events(Event::Request(Box::new(head)));
        } else {
            let mut section = Section::trailers();
            qpack::decode(&encoded, &mut section, limits)?;
            section.finish_trailers().map_err(|_| Error::Stream(Code::MessageError, "malformed trailers"))?;
            self.part = ReceivePhase::Trailers;
        }
        Ok(())
    }

    /// Checks the end of the stream.
    fn finish(&self) -> Result<(), Error> {
        if self.frame.is_some() || self.header.has_begun() {
            return Err(Error::Connection(Code::FrameError, "a stream that ends inside a frame"));
        }
        match self.part {
            ReceivePhase::Head => {
                Err(Error::Stream(Code::RequestIncomplete, "a stream that ends before its head"))
            }
            _ if self.content_length.is_some_and(|declared| self.received < declared) => {
                Err(Error::Stream(Code::MessageError, "a body shorter than its Content-Length"))
            }
            _ => Ok(()),
        }
    }
}

fn refused(status: u16, reason: &'static str) -> Error {
    Error::Refused(Box::new(handler::Failure::client(status, reason)))
}

/// Converts a refusal: a malformed message resets its stream (section 4.1.2), one beyond a limit gets a response.
fn refusal(refusal: SectionRefusal) -> Error {
    if refusal.malformed {
        Error::Stream(Code::MessageError, "a malformed request")
    } else {
        Error::Refused(Box::new(refusal.failure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// GET https://x/
    const GET: &[u8] = &[0, 0, 0xd1, 0xd7, 0xc1, 0x50, 1, b'x'];
    /// POST https://x/ with Content-Length: 5
    const POST: &[u8] = &[0, 0, 0xd4, 0xd7, 0xc1, 0x50, 1, b'x', 0x54, 1, b'5'];
    const TRAILERS: &[u8] = &[0, 0, 0x23, b'x', b'-', b'a', 1, b'b'];

    fn stream(frames: &[(u64, &[u8])]) -> Vec<u8> {
        let mut text = Vec::new();
        frames.iter().for_each(|(kind, payload)| frame::encode_frame(&mut text, *kind, payload));
        text
    }

    /// Returns whether there was a head, the body, and the result.
    fn received(bytes: &[u8], cut: usize) -> (bool, Vec<u8>, Result<(), Error>) {
        let (mut stream, mut head, mut body) = (RequestStream::default(), false, Vec::new());
        let mut events = |event| match event {
            Event::Request(_) => head = true,
            Event::Data(data) => body.extend_from_slice(&data),
        };
        let limits = HeadLimits::default();
        let (first, second) = bytes.split_at(cut.min(bytes.len()));
        let result = stream
            .receive(Bytes::copy_from_slice(first), false, &limits, &mut events)
            .and_then(|()| stream.receive(Bytes::copy_from_slice(second), true, &limits, &mut events));
        (head, body, result)
    }

    fn code(frames: &[(u64, &[u8])]) -> Option<Code> {
        match received(&stream(frames), 3).2 {
            Err(Error::Refused(failure)) => panic!("{failure:?}"),
            result => known(&result).err().map(|(code, _)| code),
        }
    }

    /// Reduces a result to the code or the status that the client gets. The text for the log may depend on
    /// how the bytes are split.
    fn known(result: &Result<(), Error>) -> Result<(), (Code, u16)> {
        result.as_ref().copied().map_err(|error| match error {
            Error::Connection(code, _) | Error::Stream(code, _) => (*code, 0),
            Error::Refused(failure) => (Code::NoError, failure.status),
        })
    }

    #[test]
    fn sequences_of_frames() {
        for (frames, expected) in [
            (&[(1, GET)][..], None),
            (&[(0x21, b"grease"), (1, GET), (0x40, b"")], None),
            (&[(1, POST), (0, b"he"), (0, b"llo")], None),
            (&[(1, POST), (0, b"hello"), (1, TRAILERS)], None),
            (&[(1, POST), (0, b"hell")], Some(Code::MessageError)),
            (&[(1, POST), (0, b"hello!")], Some(Code::MessageError)),
            (&[(1, POST)], Some(Code::MessageError)),
            (&[], Some(Code::RequestIncomplete)),
            (&[(0, b"x"), (1, GET)], Some(Code::FrameUnexpected)),
            (&[(1, GET), (1, TRAILERS), (0, b"x")], Some(Code::FrameUnexpected)),
            (&[(1, GET), (1, TRAILERS), (1, TRAILERS)], Some(Code::FrameUnexpected)),
            (&[(1, GET), (1, GET)], Some(Code::MessageError)),
            (&[(4, b"")], Some(Code::FrameUnexpected)),
            (&[(1, GET), (7, b"\0")], Some(Code::FrameUnexpected)),
            (&[(1, GET), (5, b"\0")], Some(Code::FrameUnexpected)),
            (&[(2, b"")], Some(Code::FrameUnexpected)),
            (&[(0xd, b"\0")], Some(Code::FrameUnexpected)),
            (&[(1, &[0, 0, 0xd1])], Some(Code::MessageError)),
            (&[(1, &[2, 0, 0xd1])], Some(Code::QpackDecompressionFailed)),
        ] {
            assert_eq!(code(frames), expected, "{frames:?}");
        }
        assert!(matches!(received(&[1, 4, 0, 0], 1).2, Err(Error::Connection(Code::FrameError, _))));
        let many: Vec<(u64, &[u8])> =
            std::iter::once((1, GET)).chain((0..2000).map(|_| (0, &[][..]))).collect();
        assert_eq!(code(&many), Some(Code::ExcessiveLoad));
    }

    /// CONNECT https://x/ with :protocol websocket
    fn connect(protocol: &[u8]) -> Vec<u8> {
        // The literal name, the 9 bytes of which need a second byte of length.
        [
            &[0, 0, 0xcf][..],
            b"\x27\x02:protocol",
            &[protocol.len() as u8],
            protocol,
            &[0xd7, 0xc1, 0x50, 1, b'x'],
        ]
        .concat()
    }

    #[test]
    fn extended_connect() {
        let websocket = connect(b"websocket");
        for (frames, expected) in [
            (&[(1, &websocket[..])][..], None),
            (&[(1, &websocket), (0, b"up"), (0x21, b"grease"), (0, b"more")], None),
            // RFC 9114 section 4.4: nothing but DATA.
            (&[(1, &websocket), (0, b"up"), (1, TRAILERS)], Some(Code::FrameUnexpected)),
            // CONNECT is no method for a scheme and a path without a protocol.
            (&[(1, &[0, 0, 0xcf, 0xd7, 0xc1, 0x50, 1, b'x'])], Some(Code::MessageError)),
        ] {
            assert_eq!(code(frames), expected, "{frames:x?}");
        }
        let (_, _, result) = received(&stream(&[(1, &connect(b"connect-udp"))]), 9);
        assert!(matches!(result, Err(Error::Refused(failure)) if failure.status == 501));
    }

    #[test]
    fn large_heads_get_a_response() {
        let value = vec![b'v'; 70_000];
        let mut section = GET.to_vec();
        section.extend_from_slice(&[0x23, b'x', b'-', b'a']);
        fieldcode::encode_integer(&mut section, 0, 7, value.len() as u64);
        section.extend_from_slice(&value);
        let (_, _, result) = received(&stream(&[(1, &section)]), 100);
        assert!(matches!(result, Err(Error::Refused(failure)) if failure.status == 431));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same(
            frames in prop::collection::vec((prop::sample::select(vec![0u64, 1, 0x21, 4]), prop::sample::select(vec![GET, POST, TRAILERS, b"hello", b""])), 0..6),
            noise in prop::collection::vec(any::<u8>(), 0..20), cut in 0usize..200,
        ) {
            let mut bytes = stream(&frames);
            bytes.extend_from_slice(&noise);
            let (head, body, result) = received(&bytes, 0);
            let split = received(&bytes, cut);
            prop_assert_eq!(known(&split.2), known(&result));
            if result.is_ok() {
                prop_assert_eq!((split.0, split.1), (head, body));
            }
        }
    }
}
