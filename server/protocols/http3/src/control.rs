//! Parses the unidirectional streams of a client: its control stream (RFC 9114 section 6.2.1) and those of QPACK.
//!
//! Contract:
//! 1. Each kind exists at most once. The connection checks that ([`UniStream::kind`]).
//! 2. Frames of an unknown type are skipped, whatever their length. Known ones have at most [`MAX_FRAME`] bytes.

use crate::error::{Code, Error};
use crate::frame::{self, HeaderParser, kind};
use crate::varint;
use fieldcode::Priority;

/// The most bytes of a control-stream frame whose payload is read.
pub const MAX_FRAME: u64 = 1024;
/// The most frames of a control stream besides requests. A client that sends more does nothing else.
const MAX_IDLE_FRAMES: u32 = 10_000;
/// RFC 9114 section 7.2.4.1.
const SETTING_MAX_FIELD_SECTION_SIZE: u64 = 0x6;
/// RFC 9220 section 5.
const SETTING_ENABLE_CONNECT_PROTOCOL: u64 = 0x8;
/// How many of these frames a request earns: priorities change while a page is loaded.
const FRAMES_OF_A_REQUEST: u32 = 10;

/// A PRIORITY_UPDATE frame (RFC 9218 section 7.2): the new priority of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityUpdate {
    /// The request's stream, which may not be open yet. The connection checks whether it may ever be opened.
    pub stream: u64,
    pub priority: Priority,
}

/// The kinds of unidirectional streams that a client may open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamKind {
    Control,
    /// The instructions of the client's QPACK encoder.
    QpackEncoder,
    /// The instructions of the client's QPACK decoder.
    QpackDecoder,
    /// An unknown type: the stream's bytes are not wanted.
    Unknown,
}

/// A unidirectional stream, possibly before its type has arrived.
#[derive(Debug)]
pub struct UniStream {
    held: Vec<u8>,
    state: State,
}

#[derive(Debug)]
enum State {
    Type,
    Control(ControlStream),
    Encoder(Instructions),
    Decoder(Instructions),
    Unknown,
}

impl Default for UniStream {
    fn default() -> UniStream {
        UniStream { held: Vec::new(), state: State::Type }
    }
}

impl UniStream {
    /// Returns the stream's kind, once it is known.
    pub fn kind(&self) -> Option<StreamKind> {
        match self.state {
            State::Type => None,
            State::Control(_) => Some(StreamKind::Control),
            State::Encoder(_) => Some(StreamKind::QpackEncoder),
            State::Decoder(_) => Some(StreamKind::QpackDecoder),
            State::Unknown => Some(StreamKind::Unknown),
        }
    }

    /// Processes bytes of the stream. After the type, the caller must check [`UniStream::kind`]: a second
    /// stream of a kind is an error of the connection (`StreamCreationError`), and an unknown one need not be
    /// read.
    ///
    /// # Errors
    /// The connection has to end.
    pub fn receive(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while matches!(self.state, State::Type) {
            let [byte, rest @ ..] = bytes else { return Ok(()) };
            bytes = rest;
            self.held.push(*byte);
            let Some((number, _)) = varint::decode(&self.held) else { continue };
            self.state = match number {
                0x0 => State::Control(ControlStream::default()),
                0x1 => {
                    return Err(Error::Connection(Code::StreamCreationError, "a push stream from a client"));
                }
                0x2 => State::Encoder(Instructions::default()),
                0x3 => State::Decoder(Instructions::default()),
                _ => State::Unknown,
            };
        }
        match &mut self.state {
            State::Control(control) => control.receive(bytes),
            State::Encoder(instructions) => instructions.encoder(bytes),
            State::Decoder(instructions) => instructions.decoder(bytes),
            State::Type | State::Unknown => Ok(()),
        }
    }

    /// Records the number of requests that the client has sent since the last call.
    pub fn earn(&mut self, requests: u64) {
        if let State::Control(control) = &mut self.state {
            let frames = u32::try_from(requests).unwrap_or(u32::MAX).saturating_mul(FRAMES_OF_A_REQUEST);
            control.idle_frames = control.idle_frames.saturating_sub(frames);
        }
    }

    /// Returns the priority updates in the bytes so far, in order; each update once.
    pub fn take_updates(&mut self) -> Vec<PriorityUpdate> {
        match &mut self.state {
            State::Control(control) => std::mem::take(&mut control.updates),
            _ => Vec::new(),
        }
    }

    /// Records that the client has ended or reset the stream.
    ///
    /// # Errors
    /// Critical streams stay open as long as the connection (section 6.2.1).
    pub fn ended(&self) -> Result<(), Error> {
        match self.state {
            State::Type | State::Unknown => Ok(()),
            _ => Err(Error::Connection(Code::ClosedCriticalStream, "a control or QPACK stream was closed")),
        }
    }
}

/// A client's control stream.
#[derive(Debug, Default)]
pub struct ControlStream {
    header: HeaderParser,
    /// The current frame: its type and the missing bytes of its payload.
    frame: Option<(u64, u64)>,
    payload: Vec<u8>,
    has_settings: bool,
    /// The last identifier of a GOAWAY and of a MAX_PUSH_ID. The first must not increase, the second must not decrease.
    goaway: Option<u64>,
    max_push: Option<u64>,
    idle_frames: u32,
    updates: Vec<PriorityUpdate>,
}

impl ControlStream {
    fn receive(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        loop {
            let (kind, left) = match &mut self.frame {
                Some(frame) => frame,
                None => {
                    let Some((kind, length)) = self.header.advance(&mut bytes) else { return Ok(()) };
                    self.begin(kind, length)?;
                    self.frame.insert((kind, length))
                }
            };
            let n = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
            if is_read(*kind) {
                self.payload.extend_from_slice(&bytes[..n]);
            }
            bytes = &bytes[n..];
            *left -= n as u64;
            if *left > 0 {
                return Ok(());
            }
            let kind = *kind;
            self.frame = None;
            let payload = std::mem::take(&mut self.payload);
            self.end(kind, &payload)?;
        }
    }

    fn begin(&mut self, frame: u64, length: u64) -> Result<(), Error> {
        let unexpected = |why| Err(Error::Connection(Code::FrameUnexpected, why));
        if !self.has_settings && frame != kind::SETTINGS {
            return Err(Error::Connection(
                Code::MissingSettings,
                "the control stream does not begin with SETTINGS",
            ));
        }
        match frame {
            kind::SETTINGS if self.has_settings => return unexpected("a second SETTINGS frame"),
            kind::DATA | kind::HEADERS | kind::PUSH_PROMISE => {
                return unexpected("a frame of requests on the control stream");
            }
            _ if frame::is_reserved(frame) => return unexpected("a frame type of HTTP/2"),
            _ if is_read(frame) && length > MAX_FRAME => {
                return Err(Error::Connection(
                    Code::ExcessiveLoad,
                    "a control frame of more than 1024 bytes",
                ));
            }
            _ => {}
        }
        self.idle_frames += u32::from(frame != kind::SETTINGS);
        if self.idle_frames > MAX_IDLE_FRAMES {
            return Err(Error::Connection(Code::ExcessiveLoad, "too many control frames"));
        }
        Ok(())
    }

    fn end(&mut self, frame: u64, payload: &[u8]) -> Result<(), Error> {
        match frame {
            kind::SETTINGS => {
                self.has_settings = true;
                settings(payload)
            }
            kind::GOAWAY => {
                let id = only_number(payload)?;
                if self.goaway.replace(id).is_some_and(|before| id > before) {
                    return Err(Error::Connection(
                        Code::IdError,
                        "a GOAWAY with a greater identifier than before",
                    ));
                }
                Ok(())
            }
            kind::MAX_PUSH_ID => {
                let id = only_number(payload)?;
                if self.max_push.replace(id).is_some_and(|before| id < before) {
                    return Err(Error::Connection(Code::IdError, "a MAX_PUSH_ID smaller than before"));
                }
                Ok(())
            }
            // The server pushes nothing.
            kind::CANCEL_PUSH => {
                only_number(payload)?;
                Err(Error::Connection(Code::IdError, "CANCEL_PUSH of a push that was not promised"))
            }
            kind::PRIORITY_UPDATE => {
                let (id, len) = varint::decode(payload).ok_or(TRUNCATED)?;
                // Client-initiated bidirectional streams (RFC 9218 section 7.2).
                if id % 4 != 0 {
                    return Err(Error::Connection(
                        Code::IdError,
                        "PRIORITY_UPDATE for a stream that is not a request stream",
                    ));
                }
                let priority = Priority::parse(&payload[len..]);
                self.updates.push(PriorityUpdate { stream: id, priority });
                Ok(())
            }
            kind::PRIORITY_UPDATE_PUSH => {
                Err(Error::Connection(Code::IdError, "PRIORITY_UPDATE of a push that was not promised"))
            }
            _ => Ok(()),
        }
    }
}

const TRUNCATED: Error = Error::Connection(Code::FrameError, "a control frame of a wrong size");

/// Returns whether the payload of such a frame is read.
fn is_read(frame: u64) -> bool {
    matches!(
        frame,
        kind::SETTINGS
            | kind::GOAWAY
            | kind::MAX_PUSH_ID
            | kind::CANCEL_PUSH
            | kind::PRIORITY_UPDATE
            | kind::PRIORITY_UPDATE_PUSH
    )
}

fn only_number(payload: &[u8]) -> Result<u64, Error> {
    match varint::decode(payload) {
        Some((number, len)) if len == payload.len() => Ok(number),
        _ => Err(TRUNCATED),
    }
}

/// Checks SETTINGS (section 7.2.4). None of them changes the server's behaviour, because its encoder uses no
/// dynamic table.
fn settings(mut payload: &[u8]) -> Result<(), Error> {
    let mut seen = Vec::new();
    while !payload.is_empty() {
        let (id, first) = varint::decode(payload).ok_or(TRUNCATED)?;
        let (_, second) = varint::decode(&payload[first..]).ok_or(TRUNCATED)?;
        payload = &payload[first + second..];
        if matches!(id, 0x0 | 0x2..=0x5) {
            return Err(Error::Connection(Code::SettingsError, "a setting of HTTP/2"));
        }
        if seen.contains(&id) {
            return Err(Error::Connection(Code::SettingsError, "a setting twice"));
        }
        seen.push(id);
    }
    Ok(())
}

/// Returns the beginning of the server's control stream: its type and SETTINGS. `max_field_section` is in
/// bytes, counted as in RFC 9114 section 4.2.2.
pub fn opening(max_field_section: u64) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in
        [(SETTING_MAX_FIELD_SECTION_SIZE, max_field_section), (SETTING_ENABLE_CONNECT_PROTOCOL, 1)]
    {
        varint::encode(&mut payload, name);
        varint::encode(&mut payload, value.min(varint::MAX));
    }
    let mut text = vec![0x0];
    frame::encode_frame(&mut text, kind::SETTINGS, &payload);
    text
}

/// Encodes GOAWAY (section 5.2): requests on streams of this and greater identifiers are not processed.
pub fn goaway(stream: u64) -> Vec<u8> {
    let (mut payload, mut text) = (Vec::new(), Vec::new());
    varint::encode(&mut payload, stream.min(varint::MAX));
    frame::encode_frame(&mut text, kind::GOAWAY, &payload);
    text
}

/// QPACK instructions for a table without room: the allowed ones have no effect (RFC 9204 sections 4.3 and 4.4).
#[derive(Debug, Default)]
struct Instructions {
    /// An integer is being read: only its continuation bytes matter.
    in_integer: bool,
    cancelled: u32,
}

/// The most Stream Cancellations: a client may need one per request.
const MAX_CANCELLATIONS: u32 = 1_000_000;

impl Instructions {
    /// Checks encoder instructions: only "Set Dynamic Table Capacity" to 0 is possible.
    fn encoder(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match bytes.iter().all(|&byte| byte == 0x20) {
            true => Ok(()),
            false => Err(Error::Connection(
                Code::QpackEncoderStreamError,
                "an insertion into a table without room",
            )),
        }
    }

    /// Checks decoder instructions: only Stream Cancellation is possible, because no section refers to the table.
    fn decoder(&mut self, bytes: &[u8]) -> Result<(), Error> {
        for &byte in bytes {
            if self.in_integer {
                self.in_integer = byte & 0x80 != 0;
                continue;
            }
            if byte & 0xc0 != 0x40 {
                return Err(Error::Connection(
                    Code::QpackDecoderStreamError,
                    "an acknowledgement of nothing",
                ));
            }
            self.in_integer = byte & 0x3f == 0x3f;
            self.cancelled += 1;
            if self.cancelled > MAX_CANCELLATIONS {
                return Err(Error::Connection(Code::ExcessiveLoad, "too many stream cancellations"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn control(frames: &[(u64, &[u8])]) -> Vec<u8> {
        let mut text = vec![0];
        frames.iter().for_each(|(kind, payload)| frame::encode_frame(&mut text, *kind, payload));
        text
    }

    fn code(bytes: &[u8]) -> Option<Code> {
        match UniStream::default().receive(bytes) {
            Err(Error::Connection(code, _)) => Some(code),
            Err(other) => panic!("{other:?}"),
            Ok(()) => None,
        }
    }

    #[test]
    fn control_streams() {
        let settings: (u64, &[u8]) = (4, &[]);
        assert_eq!(code(&opening(65_536)), None, "what this server sends is valid");
        for (frames, expected) in [
            (&[settings][..], None),
            (&[(4, &[0x6, 0x40, 0x64, 0x33, 1][..])], None),
            (&[settings, settings], Some(Code::FrameUnexpected)),
            (&[(7, &[0])], Some(Code::MissingSettings)),
            (&[settings, (0, b"data")], Some(Code::FrameUnexpected)),
            (&[settings, (1, b"head")], Some(Code::FrameUnexpected)),
            (&[settings, (5, b"push")], Some(Code::FrameUnexpected)),
            (&[settings, (2, b"")], Some(Code::FrameUnexpected)),
            (&[settings, (9, b"")], Some(Code::FrameUnexpected)),
            (&[settings, (7, &[8]), (7, &[4])], None),
            (&[settings, (7, &[4]), (7, &[8])], Some(Code::IdError)),
            (&[settings, (0xd, &[4]), (0xd, &[3])], Some(Code::IdError)),
            (&[settings, (0xd, &[4, 4])], Some(Code::FrameError)),
            (&[settings, (0xd, &[])], Some(Code::FrameError)),
            (&[settings, (3, &[0])], Some(Code::IdError)),
            (&[settings, (0x21, &[0; 40])], None),
            (&[settings, (0xf_0700, b"\x04u=1")], None),
            (&[settings, (0xf_0700, b"\x04")], None),
            (&[settings, (0xf_0700, b"\x03u=1")], Some(Code::IdError)),
            (&[settings, (0xf_0700, b"")], Some(Code::FrameError)),
            (&[settings, (0xf_0700, b"\x40")], Some(Code::FrameError)),
            (&[settings, (0xf_0701, b"\x00u=1")], Some(Code::IdError)),
            (&[settings, (0x6, b"")], Some(Code::FrameUnexpected)),
            (&[settings, (0x8, b"")], Some(Code::FrameUnexpected)),
            (&[settings, (7, &[])], Some(Code::FrameError)),
            (&[settings, (7, &[0, 0])], Some(Code::FrameError)),
            (&[settings, (3, &[])], Some(Code::FrameError)),
            (&[(0x21, b"")], Some(Code::MissingSettings)),
            (&[(0xf_0700, b"\x04u=1")], Some(Code::MissingSettings)),
            (&[(4, &[0x0, 0])], Some(Code::SettingsError)),
            (&[(4, &[0x3, 0])], Some(Code::SettingsError)),
            (&[(4, &[0x4, 0])], Some(Code::SettingsError)),
            (&[(4, &[0x5, 0])], Some(Code::SettingsError)),
            (&[(4, &[0x6, 0x40])], Some(Code::FrameError)),
            (&[(4, &[0x2, 0])], Some(Code::SettingsError)),
            (&[(4, &[0x6, 0, 0x6, 0])], Some(Code::SettingsError)),
            (&[(4, &[0x6])], Some(Code::FrameError)),
        ] {
            assert_eq!(code(&control(frames)), expected, "{frames:?}");
        }
    }

    #[test]
    fn long_and_many_frames_are_an_excessive_load() {
        let settings: (u64, &[u8]) = (4, &[]);
        assert_eq!(code(&control(&[settings, (7, &[0; 2000])])), Some(Code::ExcessiveLoad));
        assert_eq!(code(&control(&[settings, (0x21, &[0; 200_000])])), None, "an unknown frame is skipped");
        let many: Vec<(u64, &[u8])> =
            std::iter::once(settings).chain((0..20_000).map(|_| (0x21, &[][..]))).collect();
        assert_eq!(code(&control(&many)), Some(Code::ExcessiveLoad));
    }

    #[test]
    fn other_streams() {
        assert_eq!(code(&[1]), Some(Code::StreamCreationError));
        assert_eq!(code(&[2, 0x20]), None);
        assert_eq!(code(&[2, 0x3f, 0xe1, 0x1f]), Some(Code::QpackEncoderStreamError));
        assert_eq!(code(&[3, 0x41, 0x7f, 0x80, 0x01, 0x42]), None);
        assert_eq!(code(&[3, 0x81]), Some(Code::QpackDecoderStreamError));
        assert_eq!(code(&[3, 0x01]), Some(Code::QpackDecoderStreamError));
        assert_eq!(code(b"\x40\x41 anything"), None);
        let mut known = UniStream::default();
        assert_eq!((known.kind(), known.ended()), (None, Ok(())));
        known.receive(&[2]).unwrap();
        assert_eq!(known.kind(), Some(StreamKind::QpackEncoder));
        assert!(known.ended().is_err());
    }

    #[test]
    fn requests_make_up_for_control_frames() {
        let mut stream = UniStream::default();
        stream.receive(&control(&[(4, &[])])).unwrap();
        let mut frames = Vec::new();
        (0..9_000).for_each(|_| frame::encode_frame(&mut frames, 0xf_0700, b"\x00u=1"));
        stream.receive(&frames).unwrap();
        assert_eq!(stream.take_updates().len(), 9_000);
        stream.earn(900);
        stream.receive(&frames).unwrap();
        assert!(matches!(stream.receive(&frames), Err(Error::Connection(Code::ExcessiveLoad, _))));
    }

    proptest! {
        #[test]
        fn updates_are_given_once_in_order(updates in prop::collection::vec((0u64..1 << 60, 0u8..8, any::<bool>()), 0..20), cut in 0usize..200) {
            let mut text = control(&[(4, &[])]);
            for (index, urgency, incremental) in &updates {
                let mut payload = Vec::new();
                varint::encode(&mut payload, index * 4);
                payload.extend_from_slice(format!("u={urgency}{}", if *incremental { ", i" } else { "" }).as_bytes());
                frame::encode_frame(&mut text, 0xf_0700, &payload);
            }
            let (mut stream, cut) = (UniStream::default(), cut.min(text.len()));
            stream.receive(&text[..cut]).unwrap();
            let mut taken = stream.take_updates();
            stream.receive(&text[cut..]).unwrap();
            taken.extend(stream.take_updates());
            let expected: Vec<_> = updates
                .iter()
                .map(|&(index, urgency, incremental)| PriorityUpdate {
                    stream: index * 4,
                    priority: Priority { urgency, incremental },
                })
                .collect();
            prop_assert_eq!(taken, expected);
            prop_assert!(stream.take_updates().is_empty());
        }

        #[test]
        fn any_bytes_in_any_pieces(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..300) {
            let (mut whole, mut split) = (UniStream::default(), UniStream::default());
            let cut = cut.min(bytes.len());
            let expected = whole.receive(&bytes);
            let result = split.receive(&bytes[..cut]).and_then(|()| split.receive(&bytes[cut..]));
            prop_assert_eq!(result, expected);
        }
    }
}
