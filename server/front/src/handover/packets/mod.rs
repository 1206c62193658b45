//! Packets with descriptors between two programs.
//!
//! Contract:
//! 1. `pair` returns both ends of a socket, closed on exec. `is_one` checks whether a socket can be such an
//!    end, `belongs_to` whether that process created it.
//! 2. `send` sends a packet whole or not at all. It blocks only while the receiver is in the middle of that packet.
//! 3. `receive` returns a packet with its descriptors, closed on exec, or `None` when the other side has
//!    closed its end. With `DONTWAIT` it blocks only while the sender is in the middle of a packet.
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

pub(super) type Parts = (Vec<u8>, Vec<OwnedFd>);

/// Buffer for the descriptors of a packet.
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
