//! Linux.

use super::Delivery;
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::{SendFlags, SocketFlags, acceptfrom_with};
use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

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

/// Uses `RWF_NOWAIT`.
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

/// Uses a single call.
#[inline]
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let (socket, address) = acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    Ok((socket, super::inet(address)?))
}

pub(crate) fn delivery(socket: BorrowedFd<'_>) -> Option<Delivery> {
    let sockopt::Delivery { acknowledged, outstanding } = sockopt::delivery(socket).ok()?;
    Some(Delivery { acknowledged, outstanding })
}

/// Uses `TCP_NOTSENT_LOWAT`.
pub(crate) fn bound_unsent(socket: BorrowedFd<'_>, bytes: u32) {
    // Fails only for a Unix socket, which does not need the limit.
    let _ = sockopt::unsent_low_water(socket, bytes);
}

/// Uses `TCP_USER_TIMEOUT`. Not suitable while a connection is in use: if a slow reader repeatedly makes room
/// for only a part of the next segment, the kernel counts that as one long wait.
pub(crate) fn abandon_after(socket: BorrowedFd<'_>, time: Duration) {
    let millis = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    // Fails only if the connection is gone. Has no effect on a Unix socket.
    let _ = rustix::net::sockopt::set_tcp_user_timeout(socket, millis);
}
