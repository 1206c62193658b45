//! Systems other than Linux.
#![cfg_attr(all(test, not(firebrick_portable)), allow(dead_code))] // Tests on Linux compare some of it.

use super::Delivery;
use rustix::io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio};
use rustix::net::{SendFlags, acceptfrom};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Bytes of a file that are read for one send.
const SLICE: usize = 64 << 10;

pub(crate) const SEND: SendFlags = SendFlags::empty();
pub(crate) const SEND_MORE: SendFlags = SendFlags::empty();

thread_local!(static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });

/// Reads and sends a slice. Bytes that the socket does not take are read again next time.
pub(crate) fn send_file(socket: BorrowedFd<'_>, file: &File, offset: u64, len: usize) -> io::Result<usize> {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.resize(SLICE, 0);
        let slice = &mut scratch[..len.min(SLICE)];
        let read = file.read_at(slice, offset)?;
        if read == 0 {
            return Ok(0);
        }
        loop {
            match rustix::net::send(socket, &slice[..read], SEND) {
                Err(Errno::INTR) => {}
                sent => return Ok(sent?),
            }
        }
    })
}

/// The system does not tell which bytes are in memory.
pub(crate) fn read_cached(_file: &File, _offset: u64, _buffer: &mut [u8]) -> io::Result<usize> {
    Err(ErrorKind::Unsupported.into())
}

/// Uses three calls.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let (socket, address) = acceptfrom(listener)?;
    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    ioctl_fionbio(&socket, true)?;
    Ok((socket, super::inet(address)?))
}

/// The system does not tell.
pub(crate) fn delivery(_socket: BorrowedFd<'_>) -> Option<Delivery> {
    None
}

/// The limit is the size of the system's buffer.
pub(crate) fn bound_unsent(_socket: BorrowedFd<'_>, _bytes: u32) {}

/// The system's own time-out applies.
pub(crate) fn abandon_after(_socket: BorrowedFd<'_>, _time: Duration) {}
