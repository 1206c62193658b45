//! On Linux.

use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::{SendFlags, SocketFlags, acceptfrom_with};
use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

pub(crate) const SEND: SendFlags = SendFlags::NOSIGNAL;
pub(crate) const SEND_MORE: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::MORE);

#[inline]
pub(crate) fn send_file(
    socket: BorrowedFd<'_>,
    file: &File,
    mut offset: u64,
    len: usize,
) -> io::Result<usize> {
    Ok(rustix::fs::sendfile(socket, file, Some(&mut offset), len)?)
}

/// By `RWF_NOWAIT`.
#[inline]
pub(crate) fn read_cached(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut parts = [IoSliceMut::new(buffer)];
    loop {
        return match rustix::io::preadv2(file, &mut parts, offset, ReadWriteFlags::NOWAIT) {
            Err(Errno::INTR) => continue,
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Err(ErrorKind::Unsupported.into()),
            read => Ok(read?),
        };
    }
}

/// In one call.
#[inline]
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let (socket, address) = acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    Ok((socket, super::inet(address)?))
}
