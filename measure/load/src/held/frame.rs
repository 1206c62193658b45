//! Frames of WebSockets (RFC 6455, 5), as a client reads and writes them.
//!
//! Contract: pure; input may be split anywhere. Payloads of messages are passed on in pieces and never kept, so that a
//! server cannot make the load generator hold a large message. Text is not checked for UTF-8. No extension is
//! offered, so that reserved bits are errors.

/// The longest payload of a control frame (RFC 6455, 5.5).
const LONGEST_CONTROL: u64 = 125;

/// The opcodes of what a client sends (RFC 6455, 11.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opcode {
    Text = 1,
    Binary = 2,
    Close = 8,
    Pong = 10,
}

/// The meaning of the frames of a server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FrameEvent<'a> {
    /// The next piece of a message.
    Piece(&'a [u8]),
    /// The end of a message.
    Message,
    Ping(&'a [u8]),
    Pong,
    /// The status code, if there is one.
    Close(Option<u16>),
}

/// Cuts the bytes of a connection into what they say.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// The head of the next frame, as far as it has arrived: at most 10 bytes.
    head: Vec<u8>,
    /// The frame under way: its opcode, 0 for a continuation, and the bytes left of it.
    frame: Option<(u8, u64)>,
    /// Whether that frame is the last of its message.
    last: bool,
    /// Whether a message has begun that is not complete.
    within: bool,
    /// The payload of a control frame so far.
    control: Vec<u8>,
}

impl Frames {
    /// Reads the next bytes.
    ///
    /// # Errors
    /// The rule that the server breaks. Nothing can be read after that.
    pub(crate) fn take(
        &mut self,
        mut bytes: &[u8],
        said: &mut dyn FnMut(FrameEvent<'_>),
    ) -> Result<(), String> {
        loop {
            let Some((opcode, left)) = self.frame else {
                let Some((first, rest)) = bytes.split_first() else { return Ok(()) };
                bytes = rest;
                self.head.push(*first);
                if let Some((opcode, length)) = self.head()? {
                    self.head.clear();
                    self.frame = Some((opcode, length));
                    if length == 0 {
                        self.end(opcode, said)?;
                    }
                }
                continue;
            };
            if bytes.is_empty() {
                return Ok(());
            }
            let here = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
            let (piece, rest) = bytes.split_at(here);
            bytes = rest;
            if opcode >= 8 {
                self.control.extend_from_slice(piece)
            } else {
                said(FrameEvent::Piece(piece))
            }
            self.frame = Some((opcode, left - here as u64));
            if left == here as u64 {
                self.end(opcode, said)?;
            }
        }
    }

    /// Returns opcode and length of the frame, once its head is complete.
    fn head(&mut self) -> Result<Option<(u8, u64)>, String> {
        let [first, second, extended @ ..] = &self.head[..] else { return Ok(None) };
        let (is_last, opcode) = (first & 0x80 != 0, first & 0x0f);
        if first & 0x70 != 0 {
            return Err("a frame has reserved bits, but no extension was agreed on".to_owned());
        }
        if second & 0x80 != 0 {
            return Err("a frame of the server is masked".to_owned());
        }
        let length = match (second & 0x7f, extended) {
            (126, [high, low]) => u64::from(u16::from_be_bytes([*high, *low])),
            (127, extended) if extended.len() == 8 => {
                extended.iter().fold(0, |length, byte| length << 8 | u64::from(*byte))
            }
            (126 | 127, _) => return Ok(None),
            (length, _) => u64::from(length),
        };
        let shorter = match extended.len() {
            2 => length < 126,
            8 => length < 1 << 16,
            _ => false,
        };
        if shorter || length >> 63 != 0 {
            return Err("the length of a frame is not written in the shortest form".to_owned());
        }
        match opcode {
            0 if !self.within => return Err("a continuation without a message before it".to_owned()),
            1 | 2 if self.within => return Err("a message begins within another one".to_owned()),
            0..=2 => (self.within, self.last) = (true, is_last),
            8..=10 if !is_last || length > LONGEST_CONTROL => {
                return Err("a control frame is in pieces, or longer than 125 bytes".to_owned());
            }
            8..=10 => {}
            _ => return Err(format!("a frame has the reserved opcode {opcode}")),
        }
        Ok(Some((opcode, length)))
    }

    fn end(&mut self, opcode: u8, said: &mut dyn FnMut(FrameEvent<'_>)) -> Result<(), String> {
        self.frame = None;
        match opcode {
            8 => said(FrameEvent::Close(close_code(&self.control)?)),
            9 => said(FrameEvent::Ping(&self.control)),
            10 => said(FrameEvent::Pong),
            _ if self.last => {
                self.within = false;
                said(FrameEvent::Message);
            }
            _ => {}
        }
        self.control.clear();
        Ok(())
    }
}

fn close_code(payload: &[u8]) -> Result<Option<u16>, String> {
    match payload {
        [] => Ok(None),
        [_] => Err("a close frame has half of a status code".to_owned()),
        [high, low, ..] => Ok(Some(u16::from_be_bytes([*high, *low]))),
    }
}

/// Appends a frame with a whole payload, masked with `mask` as those of clients are (RFC 6455, 5.3).
pub(crate) fn write(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8], mask: [u8; 4]) {
    out.push(0x80 | opcode as u8);
    // The match arms are the bounds of the casts.
    #[allow(clippy::cast_possible_truncation)]
    match payload.len() {
        length @ 0..126 => out.push(0x80 | length as u8),
        length @ 126..65_536 => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&mask);
    let masked = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
    out.extend(masked);
}

/// Reads frames in one piece and cut in two; for fuzzing.
///
/// # Panics
/// The results differ.
pub(crate) fn fuzz(bytes: &[u8], cut: usize) {
    let (first, second) = bytes.split_at(cut % (bytes.len() + 1));
    assert_eq!(heard(&[bytes]), heard(&[first, second]));
}

/// Returns what the pieces say, with messages put together, up to the first error.
fn heard(pieces: &[&[u8]]) -> (Vec<String>, Option<String>) {
    let (mut frames, mut all, mut message) = (Frames::default(), Vec::new(), Vec::new());
    for piece in pieces {
        let taken = frames.take(piece, &mut |said| match said {
            FrameEvent::Piece(piece) => message.extend_from_slice(piece),
            FrameEvent::Message => all.push(format!("Message({:?})", std::mem::take(&mut message))),
            other => all.push(format!("{other:?}")),
        });
        if let Err(why) = taken {
            return (all, Some(why));
        }
    }
    (all, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the frame as a server sends it: without a mask.
    fn unmasked(opcode: Opcode, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        write(&mut frame, opcode, payload, [0; 4]);
        let head = frame.len() - payload.len() - 4;
        frame.drain(head..head + 4);
        frame[1] &= 0x7f;
        frame
    }

    #[test]
    fn frames_of_a_server() {
        let bytes = [
            vec![0x01, 2, b'h', b'e'],
            [&[0x89, 3][..], b"now"].concat(),
            vec![0x80, 1, b'y'],
            unmasked(Opcode::Text, b""),
            unmasked(Opcode::Pong, b"x"),
            unmasked(Opcode::Close, &[3, 0xe8, b'!']),
        ];
        let (said, why) = heard(&[&bytes.concat()]);
        let expected =
            ["Ping([110, 111, 119])", "Message([104, 101, 121])", "Message([])", "Pong", "Close(Some(1000))"];
        assert_eq!((said, why), (expected.map(str::to_owned).to_vec(), None));
    }

    #[test]
    fn what_a_server_may_not_send() {
        for (bytes, why) in [
            (&[0xc1u8, 0][..], "reserved bits"),
            (&[0x81, 0x80], "masked"),
            (&[0x83, 0], "opcode 3"),
            (&[0x80, 0], "continuation"),
            (&[0x01, 0, 0x81, 0], "within another"),
            (&[0x09, 0], "control frame"),
            (&[0x89, 126, 0, 126], "control frame"),
            (&[0x81, 126, 0, 125], "shortest"),
            (&[0x81, 127, 0, 0, 0, 0, 0, 0, 255, 255], "shortest"),
            (&[0x81, 127, 128, 0, 0, 0, 0, 0, 0, 0], "shortest"),
            (&[0x88, 1, 3], "half"),
        ] {
            assert!(heard(&[bytes]).1.is_some_and(|found| found.contains(why)), "{bytes:?}: {why}");
        }
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in any::<usize>()) {
            fuzz(&bytes, cut);
        }

        #[test]
        fn messages_of_all_lengths(
            lengths in proptest::collection::vec(prop_oneof![0..300usize, 65_000..66_000usize], 1..4),
            cut in any::<usize>(),
        ) {
            let messages: Vec<Vec<u8>> = lengths.iter().map(|length| vec![7; *length]).collect();
            let bytes: Vec<u8> = messages.iter().flat_map(|one| unmasked(Opcode::Binary, one)).collect();
            let expected: Vec<String> = messages.iter().map(|one| format!("Message({one:?})")).collect();
            prop_assert_eq!(heard(&[&bytes]), (expected, None));
            fuzz(&bytes, cut);
        }

        #[test]
        fn a_mask_is_taken_off_by_itself(payload in proptest::collection::vec(any::<u8>(), 0..200), mask: [u8; 4]) {
            let mut frame = Vec::new();
            write(&mut frame, Opcode::Text, &payload, mask);
            let sent = &frame[frame.len() - payload.len()..];
            let plain: Vec<u8> = sent.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
            prop_assert_eq!(plain, payload);
        }
    }
}
