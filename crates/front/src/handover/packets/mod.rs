//! Packets with descriptors between two programs.
//!
//! Contract:
//! 1. `pair`: both ends of a socket, closed on exec. `is_one` and `belongs_to`: whether a socket may be such an end, and whether it was
//!    made by that process.
//! 2. `send` sends a packet whole or not at all, and waits only for a receiver that is in the middle of it.
//! 3. `receive` gives a packet as it was sent, with its descriptors, closed on exec; `None` when the other side is gone. With
//!    `DONTWAIT` it waits only for a sender that is in the middle of a packet.
//! 4. A packet of more than `LONGEST` bytes or `MOST_FDS` descriptors is an error.

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod linux;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
mod portable;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
pub(super) use linux::{belongs_to, is_one, pair, receive, send};
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
pub(super) use portable::{belongs_to, is_one, pair, receive, send};

use super::message::{LONGEST, MOST_FDS};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, SendAncillaryBuffer, SendAncillaryMessage};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The bytes and the descriptors of a packet.
pub(super) type Parts = (Vec<u8>, Vec<OwnedFd>);

/// Room for the descriptors of a packet.
type Space = [MaybeUninit<u8>; rustix::cmsg_space!(ScmRights(MOST_FDS))];

fn with<'a, 's: 'a>(
    fds: &'a [BorrowedFd<'s>],
    space: &'a mut Space,
) -> io::Result<SendAncillaryBuffer<'a, 'a, 's>> {
    let mut ancillary = SendAncillaryBuffer::new(space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one message"));
    }
    Ok(ancillary)
}

fn arrived(mut ancillary: RecvAncillaryBuffer<'_>) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(arrived) = message {
            fds.extend(arrived);
        }
    }
    fds
}

fn too_long() -> io::Error {
    let text = format!("a message of more than {LONGEST} bytes or {MOST_FDS} descriptors");
    io::Error::new(io::ErrorKind::InvalidData, text)
}
