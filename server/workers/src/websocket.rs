//! Follows the bytes that an app sends on a WebSocket (RFC 6455), so that the front can close it properly.
//!
//! Why: a worker that leaves (a limit, a deploy, a shutdown) ends its WebSockets. Without a Close frame their
//! clients see a broken connection (1006), and some clients read 1001 as "do not come back". 1012, service
//! restart, makes them reconnect.
//!
//! Contract:
//! 1. Pure. Only an incomplete handshake is kept (at most [`HANDSHAKE`] bytes).
//! 2. [`Follower::may_close`] is true only between two frames, after a WebSocket handshake and before the
//!    app's own Close. It is also true between the fragments of a message, where control frames are allowed
//!    (RFC 6455, section 5.4).

/// Close with status 1012, service restart (IANA's registry of WebSocket close codes).
pub(crate) const SERVICE_RESTART: [u8; 4] = [0x88, 2, 0x03, 0xf4];
/// The largest size of a handshake. A longer one is not a WebSocket handshake.
const HANDSHAKE: usize = 16 << 10;
/// Two bytes, eight of length, four of mask.
const LONGEST_HEADER: usize = 14;
const CLOSE: u8 = 0x8;

/// The app's position in the byte stream of a WebSocket.
#[derive(Debug)]
pub(crate) enum Follower {
    /// The app sends the response head itself; the bytes so far.
    Handshake(Vec<u8>),
    /// In the header of a frame: its first bytes, and their number.
    Header([u8; LONGEST_HEADER], usize),
    /// In the payload of a frame: the number of bytes to come.
    Payload(u64),
    /// Not a WebSocket, or the app has sent its own Close.
    Over,
}

impl Follower {
    /// Starts with a frame, because the handshake was the app's response.
    pub(crate) fn frames() -> Follower {
        Follower::Header([0; LONGEST_HEADER], 0)
    }

    /// Starts with the response head, which the app sends itself.
    pub(crate) fn handshake() -> Follower {
        Follower::Handshake(Vec::new())
    }

    /// Returns whether a Close frame may follow the bytes sent so far.
    pub(crate) fn may_close(&self) -> bool {
        matches!(self, Follower::Header(_, 0))
    }

    /// Takes the next bytes from the app.
    pub(crate) fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self {
                Follower::Over => return,
                Follower::Handshake(head) => {
                    let before = head.len();
                    head.extend_from_slice(bytes);
                    // The end may have begun in the earlier bytes.
                    let from = before.saturating_sub(3);
                    let Some(end) = head[from..].windows(4).position(|four| four == b"\r\n\r\n") else {
                        if head.len() > HANDSHAKE {
                            *self = Follower::Over;
                        }
                        return;
                    };
                    let end = from + end + 4;
                    bytes = &bytes[end - before..];
                    *self = if is_websocket(&head[..end]) { Follower::frames() } else { Follower::Over };
                }
                Follower::Header(header, have) => {
                    header[*have] = bytes[0];
                    *have += 1;
                    bytes = &bytes[1..];
                    if let Some((opcode, payload)) = parse(&header[..*have]) {
                        *self = match (opcode, payload) {
                            (CLOSE, _) => Follower::Over,
                            (_, 0) => Follower::frames(),
                            _ => Follower::Payload(payload),
                        };
                    }
                }
                Follower::Payload(left) => {
                    let here = (*left).min(bytes.len() as u64);
                    bytes = &bytes[here as usize..];
                    *left -= here;
                    if *left == 0 {
                        *self = Follower::frames();
                    }
                }
            }
        }
    }
}

/// Returns the opcode and the payload length once the header is complete (RFC 6455, section 5.2).
fn parse(header: &[u8]) -> Option<(u8, u64)> {
    let &[first, second, ref rest @ ..] = header else { return None };
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    let (length, extended) = match second & 0x7f {
        126 => (rest.get(..2)?.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)), 2),
        127 => (rest.get(..8)?.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)), 8),
        short => (u64::from(short), 0),
    };
    (rest.len() == extended + mask).then_some((first & 0x0f, length))
}

/// Returns whether a response switches to WebSocket.
fn is_websocket(head: &[u8]) -> bool {
    let mut lines = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let switches =
        lines.next().is_some_and(|status| status.split(|&byte| byte == b' ').nth(1) == Some(b"101"));
    switches
        && lines.any(|line| {
            line.split_at_checked(b"upgrade:".len()).is_some_and(|(name, value)| {
                name.eq_ignore_ascii_case(b"upgrade:")
                    && value.trim_ascii().eq_ignore_ascii_case(b"websocket")
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAD: &[u8] =
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUPGRADE:  WebSocket\r\n\r\n";

    fn frame(opcode: u8, masked: bool, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0x80 | opcode];
        let mask = if masked { 0x80 } else { 0 };
        match payload.len() {
            n @ ..126 => frame.push(mask | n as u8),
            n @ 126..65_536 => {
                frame.push(mask | 126);
                frame.extend_from_slice(&(n as u16).to_be_bytes());
            }
            n => {
                frame.push(mask | 127);
                frame.extend_from_slice(&(n as u64).to_be_bytes());
            }
        }
        frame.extend_from_slice(if masked { &[1, 2, 3, 4] } else { &[] });
        frame.extend_from_slice(payload);
        frame
    }

    #[test]
    fn only_a_websocket_may_be_closed() {
        for (head, expected) in [
            (HEAD, true),
            (b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\n\r\n", true),
            (b"HTTP/1.1 101 x\r\nUpgrade: chat\r\n\r\n", false),
            (b"HTTP/1.1 200 OK\r\nUpgrade: websocket\r\n\r\n", false),
            (b"raw bytes of another protocol\r\n\r\n", false),
        ] {
            let mut follower = Follower::handshake();
            follower.follow(&head[..head.len() - 1]);
            assert!(!follower.may_close(), "the head is not complete");
            follower.follow(&head[head.len() - 1..]);
            assert_eq!(follower.may_close(), expected, "{}", String::from_utf8_lossy(head));
        }
    }

    #[test]
    fn a_head_without_end_is_not_kept() {
        let mut follower = Follower::handshake();
        (0..200).for_each(|_| follower.follow(&[b'x'; 1000]));
        assert!(matches!(follower, Follower::Over));
    }

    #[test]
    fn after_the_apps_close_nothing_follows() {
        let mut follower = Follower::frames();
        follower.follow(&frame(CLOSE, false, &[0x03, 0xe8]));
        assert!(!follower.may_close());
        follower.follow(&frame(1, false, b"x"));
        assert!(!follower.may_close());
    }

    proptest! {
        /// However the frames are split into pieces, `may_close` is true exactly at their ends.
        #[test]
        fn the_ends_of_frames_are_found(
            frames in proptest::collection::vec((0u8..=0xf, any::<bool>(), 0usize..200), 1..8),
            long in any::<bool>(),
            cut in 1usize..40,
        ) {
            let mut bytes = HEAD.to_vec();
            let mut ends = vec![bytes.len()];
            for (at, &(opcode, masked, length)) in frames.iter().enumerate() {
                let length = if long && at == 0 { 70_000 } else { length };
                let opcode = if opcode == CLOSE { 1 } else { opcode };
                bytes.extend(frame(opcode, masked, &vec![b'p'; length]));
                ends.push(bytes.len());
            }
            let mut follower = Follower::handshake();
            let mut sent = 0;
            for piece in bytes.chunks(cut) {
                follower.follow(piece);
                sent += piece.len();
                prop_assert_eq!(follower.may_close(), ends.contains(&sent), "after {} bytes", sent);
            }
        }

        /// No bytes from an app cause a panic.
        #[test]
        fn any_bytes_are_followed(bytes in proptest::collection::vec(any::<u8>(), 0..2000), cut in 1usize..99) {
            let mut follower = Follower::frames();
            bytes.chunks(cut).for_each(|piece| follower.follow(piece));
        }
    }
}
