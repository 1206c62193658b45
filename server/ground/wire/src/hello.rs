//! HELLO: the first frame on a connection of a worker that was spawned, not forked (docs/internals/wire.md, "Workers
//! that connect").

use crate::cursor::Cursor;
use crate::{FrameKind, Malformed, frame};

/// The longest payload, with room for any token.
pub const LONGEST: usize = 128;

/// The purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A control socket, like that of a template.
    Control,
    /// The link with this number.
    Link(u16),
    /// The descriptors of the link with this number.
    Beside(u16),
    /// A stream that a frame of the link with this number refers to, in place of a descriptor.
    Stream(u16),
}

/// The capabilities of a worker.
pub mod can {
    /// Descriptors are sent beside the link, on a separate socket.
    pub const BESIDE: u8 = 0x01;
    /// The worker writes the scoreboard.
    pub const SCOREBOARD: u8 = 0x02;
}

/// The first frame of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The version of docs/internals/wire.md that the worker implements.
    pub version: u16,
    pub role: Role,
    /// Bits of [`can`].
    pub can: u8,
    /// The token by which the front recognises the process.
    pub token: &'a [u8],
}

impl<'a> Hello<'a> {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (role, number) = match self.role {
            Role::Control => (0, 0),
            Role::Link(number) => (1, number),
            Role::Beside(number) => (2, number),
            Role::Stream(number) => (3, number),
        };
        let mut payload = self.version.to_le_bytes().to_vec();
        payload.extend([role, self.can]);
        payload.extend(number.to_le_bytes());
        payload.extend(self.token);
        frame::append(out, FrameKind::Hello, 0, 0, &payload);
    }

    /// Decodes the payload.
    ///
    /// # Errors
    /// Fails if the payload ends too early, is too long, or has an unknown role.
    pub fn decode(payload: &'a [u8]) -> Result<Hello<'a>, Malformed> {
        if payload.len() > LONGEST {
            return Err(Malformed("HELLO is longer than 128 bytes"));
        }
        let mut cursor = Cursor::new(payload);
        let (version, role, can, number) = (cursor.u16()?, cursor.u8()?, cursor.u8()?, cursor.u16()?);
        let role = match role {
            0 => Role::Control,
            1 => Role::Link(number),
            2 => Role::Beside(number),
            3 => Role::Stream(number),
            _ => return Err(Malformed("unknown role of HELLO")),
        };
        Ok(Hello { version, role, can, token: cursor.rest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;

    #[test]
    fn what_is_encoded_is_read_back() {
        for role in [Role::Control, Role::Link(3), Role::Beside(65_535), Role::Stream(1)] {
            let hello = Hello { version: 6, role, can: can::BESIDE | can::SCOREBOARD, token: b"abc" };
            let mut bytes = Vec::new();
            hello.encode(&mut bytes);
            let (frame, used) = Frame::cut(&bytes).unwrap().unwrap();
            assert_eq!((frame.header.kind, used), (FrameKind::Hello, bytes.len()));
            assert_eq!(Hello::decode(frame.payload).unwrap(), hello);
        }
    }

    #[test]
    fn broken_ones_are_refused() {
        assert!(Hello::decode(&[6, 0, 0, 0, 0]).is_err(), "too short");
        assert!(Hello::decode(&[6, 0, 4, 0, 0, 0]).is_err(), "an unknown role");
        assert!(Hello::decode(&[0; LONGEST + 1]).is_err(), "too long");
    }
}
