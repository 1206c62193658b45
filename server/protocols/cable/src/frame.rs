//! WebSocket frames (RFC 6455 section 5), as a server reads and writes them.
//!
//! Contract:
//! 1. A client's frames must be masked, without extensions; a message must fit into the limit, and a text must be
//!    UTF-8. A violation has the code of the Close frame that answers it (section 7.4.1).
//! 2. An idle decoder holds no buffer.
//! 3. Frames of the server are not masked, so one encoding serves all clients.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The longest payload of a control frame (section 5.5).
const LONGEST_CONTROL: usize = 125;
/// Two bytes, eight of length, four of mask.
const LONGEST_HEADER: usize = 14;

const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;
const FINAL: u8 = 0x80;

/// Status codes of Close frames (section 7.4.1, and IANA's registry).
pub mod code {
    /// The purpose is fulfilled.
    pub const NORMAL: u16 = 1000;
    /// The bytes are no frames of a client.
    pub const PROTOCOL: u16 = 1002;
    /// Data of a type that cannot be accepted: binary messages.
    pub const UNSUPPORTED: u16 = 1003;
    /// A text that is not UTF-8.
    pub const NOT_UTF8: u16 = 1007;
    /// A policy of the server: a client that does not read, or has too many subscriptions.
    pub const POLICY: u16 = 1008;
    /// A message that is too big.
    pub const TOO_BIG: u16 = 1009;
    /// An error of the server or the app.
    pub const INTERNAL: u16 = 1011;
    /// The server restarts, and the client should connect again.
    pub const RESTART: u16 = 1012;
}

/// A complete message or control frame of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    Text(String),
    Ping(Vec<u8>),
    Pong,
    /// The status code; `None` in a Close frame without one.
    Close(Option<u16>),
}

/// A violation of the protocol, with the status code for the Close frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameViolation {
    pub code: u16,
    pub reason: &'static str,
}

const fn violation(code: u16, reason: &'static str) -> FrameViolation {
    FrameViolation { code, reason }
}

/// The header of a frame whose payload is arriving.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct ArrivingFrame {
    is_final: bool,
    opcode: u8,
    mask: [u8; 4],
    /// Bytes of the payload to come, and those that have arrived.
    left: usize,
    done: usize,
}

/// Reads the frames of one client. Another program can go on with it.
#[derive(Debug, Serialize, Deserialize)]
pub struct FrameDecoder {
    /// The most bytes of a message.
    limit: usize,
    header: [u8; LONGEST_HEADER],
    have: u8,
    frame: Option<ArrivingFrame>,
    /// Whether a fragmented message has begun.
    fragmented: bool,
    /// The payload of a message so far.
    message: Vec<u8>,
    control: Vec<u8>,
}

impl FrameDecoder {
    /// Creates a decoder of messages with at most `limit` bytes.
    pub fn new(limit: usize) -> FrameDecoder {
        FrameDecoder {
            limit,
            header: [0; LONGEST_HEADER],
            have: 0,
            frame: None,
            fragmented: false,
            message: Vec::new(),
            control: Vec::new(),
        }
    }

    /// Sets the most bytes of a message. A message that has begun may have more.
    pub fn limit(&mut self, limit: usize) {
        self.limit = limit.max(self.message.len());
    }

    /// Takes bytes, and passes on what they complete.
    ///
    /// # Errors
    /// The client violates the protocol; nothing may be decoded after that.
    pub fn decode(&mut self, mut bytes: &[u8], take: &mut dyn FnMut(Received)) -> Result<(), FrameViolation> {
        while !bytes.is_empty() {
            let Some(mut frame) = self.frame else {
                self.header[usize::from(self.have)] = bytes[0];
                self.have += 1;
                bytes = &bytes[1..];
                if let Some(frame) = self.begin()? {
                    self.have = 0;
                    self.frame = Some(frame);
                    if frame.left == 0 {
                        self.end(frame, take)?;
                    }
                }
                continue;
            };
            let (here, rest) = bytes.split_at(frame.left.min(bytes.len()));
            let to = if frame.opcode >= CLOSE { &mut self.control } else { &mut self.message };
            to.extend(here.iter().enumerate().map(|(at, byte)| byte ^ frame.mask[(frame.done + at) % 4]));
            frame.left -= here.len();
            frame.done += here.len();
            bytes = rest;
            self.frame = Some(frame);
            if frame.left == 0 {
                self.end(frame, take)?;
            }
        }
        Ok(())
    }

    /// Returns the frame once its header is complete.
    fn begin(&self) -> Result<Option<ArrivingFrame>, FrameViolation> {
        let header = &self.header[..usize::from(self.have)];
        let &[first, second, ref rest @ ..] = header else { return Ok(None) };
        let (is_final, opcode) = (first & FINAL != 0, first & 0x0f);
        if first & 0x70 != 0 {
            return Err(violation(code::PROTOCOL, "a frame has an extension that was not agreed on"));
        }
        if second & 0x80 == 0 {
            return Err(violation(code::PROTOCOL, "a frame is not masked"));
        }
        match opcode {
            BINARY => return Err(violation(code::UNSUPPORTED, "binary messages are not accepted")),
            TEXT if self.fragmented => {
                return Err(violation(code::PROTOCOL, "a message begins inside another"));
            }
            CONTINUATION if !self.fragmented => {
                return Err(violation(code::PROTOCOL, "a continuation without a message"));
            }
            TEXT | CONTINUATION => {}
            CLOSE | PING | PONG => {
                if !is_final || usize::from(second & 0x7f) > LONGEST_CONTROL {
                    return Err(violation(code::PROTOCOL, "a control frame is too long or fragmented"));
                }
            }
            _ => return Err(violation(code::PROTOCOL, "an unknown opcode")),
        }
        let extended = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        if rest.len() < extended + 4 {
            return Ok(None);
        }
        let length = match extended {
            0 => u64::from(second & 0x7f),
            _ => rest[..extended].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
        };
        let shortest = match extended {
            2 => 126,
            8 => 1 << 16,
            _ => 0,
        };
        if length < shortest || length >> 63 != 0 {
            return Err(violation(code::PROTOCOL, "the length of a frame is not in its shortest form"));
        }
        let room = if opcode >= CLOSE { LONGEST_CONTROL } else { self.limit - self.message.len() };
        let left = usize::try_from(length).ok().filter(|length| *length <= room);
        let left = left.ok_or(violation(code::TOO_BIG, "the message is too big"))?;
        let mask = std::array::from_fn(|at| rest[extended + at]);
        Ok(Some(ArrivingFrame { is_final, opcode, mask, left, done: 0 }))
    }

    /// Handles the end of a frame.
    fn end(&mut self, frame: ArrivingFrame, take: &mut dyn FnMut(Received)) -> Result<(), FrameViolation> {
        self.frame = None;
        if frame.opcode < CLOSE {
            self.fragmented = !frame.is_final;
            if frame.is_final {
                let text = String::from_utf8(std::mem::take(&mut self.message));
                take(Received::Text(text.map_err(|_| violation(code::NOT_UTF8, "a text is not UTF-8"))?));
            }
            return Ok(());
        }
        let payload = std::mem::take(&mut self.control);
        take(match frame.opcode {
            PING => Received::Ping(payload),
            PONG => Received::Pong,
            _ => match *payload {
                [] => Received::Close(None),
                [high, low, ref reason @ ..] if std::str::from_utf8(reason).is_ok() => {
                    Received::Close(Some(u16::from_be_bytes([high, low])))
                }
                _ => return Err(violation(code::PROTOCOL, "a Close frame that cannot be read")),
            },
        });
        Ok(())
    }
}

/// Returns the frame of a text.
pub fn text(payload: &[u8]) -> Bytes {
    server_frame(TEXT, payload)
}

/// Returns the answer to a Ping frame.
pub fn pong(payload: &[u8]) -> Bytes {
    server_frame(PONG, payload)
}

/// Returns a Close frame. The reason is cut off after 123 bytes.
pub fn close(status: u16, reason: &str) -> Bytes {
    let mut end = reason.len().min(LONGEST_CONTROL - 2);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    server_frame(CLOSE, &[&status.to_be_bytes(), &reason.as_bytes()[..end]].concat())
}

fn server_frame(opcode: u8, payload: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(payload.len() + 10);
    frame.push(FINAL | opcode);
    match payload.len() {
        length @ ..126 => frame.push(length as u8),
        length @ 126..65_536 => {
            frame.push(126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            frame.push(127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(payload);
    frame.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a frame of a client with any opcode.
    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = server_frame(0, payload).to_vec();
        frame[0] = first;
        frame[1] |= 0x80;
        let head = frame.len() - payload.len();
        let mask = [1, 2, 3, 4];
        frame.splice(head..head, mask);
        frame[head + 4..].iter_mut().enumerate().for_each(|(at, byte)| *byte ^= mask[at % 4]);
        frame
    }

    fn decode(bytes: &[u8], cut: usize) -> (Vec<Received>, Option<u16>) {
        let (mut decoder, mut received) = (FrameDecoder::new(300), Vec::new());
        for piece in bytes.chunks(cut) {
            if let Err(violation) = decoder.decode(piece, &mut |one| received.push(one)) {
                return (received, Some(violation.code));
            }
        }
        (received, None)
    }

    #[test]
    fn violations_have_their_codes() {
        for (bytes, expected) in [
            (masked(0x81, &[0xff]), 1007),
            (masked(0x82, b"x"), 1003),
            (masked(0x83, b"x"), 1002),
            (masked(0xc1, b"x"), 1002),
            (masked(0x80, b"x"), 1002),
            (masked(0x09, b"x"), 1002),
            (masked(0x89, &[0; 126]), 1002),
            (masked(0x88, &[3]), 1002),
            (masked(0x81, &[b'x'; 301]), 1009),
            (vec![0x81, 1, b'x'], 1002),
            (vec![0x81, 0xfe, 0, 1, 0, 0, 0, 0, b'x'], 1002),
            ([masked(0x01, b"x"), masked(0x81, b"y")].concat(), 1002),
            ([masked(0x01, &[b'x'; 200]), masked(0x80, &[b'y'; 101])].concat(), 1009),
        ] {
            assert_eq!(decode(&bytes, 1000), (vec![], Some(expected)), "{bytes:?}");
        }
    }

    #[test]
    fn control_frames_may_stand_between_fragments() {
        let bytes = [
            masked(0x01, b"ab"),
            masked(0x89, b"ping"),
            masked(0x80, b"c"),
            masked(0x8a, b""),
            masked(0x88, &[3, 0xe8, b'o', b'k']),
        ];
        let expected = vec![
            Received::Ping(b"ping".to_vec()),
            Received::Text("abc".to_owned()),
            Received::Pong,
            Received::Close(Some(1000)),
        ];
        assert_eq!(decode(&bytes.concat(), 1), (expected, None));
    }

    #[test]
    fn a_reason_is_cut_off_between_characters() {
        let frame = close(code::POLICY, &"ä".repeat(100));
        assert_eq!((frame[1], frame.len()), (124, 126));
        assert!(std::str::from_utf8(&frame[4..]).is_ok());
    }

    proptest! {
        /// However the bytes are split, the messages are the same, and those that were sent.
        #[test]
        fn messages_survive_any_split(
            texts in prop::collection::vec("\\PC{0,80}", 0..6), fragment in 1usize..90, cut in 1usize..50,
        ) {
            let mut bytes = Vec::new();
            for text in &texts {
                let pieces: Vec<&[u8]> = text.as_bytes().chunks(fragment).collect();
                for (at, piece) in pieces.iter().enumerate() {
                    let opcode = if at == 0 { TEXT } else { CONTINUATION };
                    bytes.extend(masked(if at + 1 == pieces.len() { FINAL | opcode } else { opcode }, piece));
                }
                if pieces.is_empty() {
                    bytes.extend(masked(FINAL | TEXT, b""));
                }
            }
            let expected = texts.iter().cloned().map(Received::Text).collect::<Vec<_>>();
            prop_assume!(texts.iter().all(|text| text.len() <= 300));
            prop_assert_eq!(decode(&bytes, cut), (expected, None));
        }

        /// Another program goes on with a decoder, wherever its bytes have been cut.
        #[test]
        fn a_decoder_is_passed_on(text in "\\PC{0,80}", cut in 0usize..100) {
            let bytes = [masked(0x01, b"a"), masked(0x89, b"ping"), masked(0x80, text.as_bytes())].concat();
            let (before, after) = bytes.split_at(cut.min(bytes.len()));
            let (mut decoder, mut received) = (FrameDecoder::new(400), Vec::new());
            prop_assert!(decoder.decode(before, &mut |one| received.push(one)).is_ok());
            let record = serde_json::to_string(&decoder).unwrap();
            let mut other: FrameDecoder = serde_json::from_str(&record).unwrap();
            prop_assert!(other.decode(after, &mut |one| received.push(one)).is_ok());
            prop_assert_eq!(received, vec![Received::Ping(b"ping".to_vec()), Received::Text(format!("a{text}"))]);
        }

        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..400), cut in 1usize..40) {
            let (at_once, split) = (decode(&bytes, 1000), decode(&bytes, cut));
            prop_assert_eq!(at_once, split);
        }
    }
}
