//! Packets over a stream: each packet follows its length in four bytes, little endian. Descriptors travel
//! with the length.

use super::{Parts, Space, arrived, too_long, with};
use crate::handover::message::LONGEST;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::sockopt::socket_type;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags, SocketType, recv, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Time-out for the rest of a packet.
const REST: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// Size of the length field, in bytes.
const HEAD: usize = 4;

pub(in crate::handover) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    UnixStream::pair().map(|(one, other)| (one.into(), other.into()))
}

/// Accepts any stream socket; `belongs_to` does the other half of the check.
pub(in crate::handover) fn is_one(socket: impl AsFd) -> bool {
    socket_type(socket).is_ok_and(|kind| kind == SocketType::STREAM)
}

/// The system does not tell which process created a socket, so this checks the parent process.
pub(in crate::handover) fn belongs_to(_socket: impl AsFd, process: i32) -> bool {
    rustix::process::getppid().is_some_and(|parent| parent.as_raw_nonzero().get() == process)
}

pub(in crate::handover) fn send(socket: impl AsFd, packet: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space: Space = [MaybeUninit::uninit(); _];
    let mut ancillary = with(fds, &mut space)?;
    let head = (packet.len() as u32).to_le_bytes();
    let mut sent = loop {
        let parts = [IoSlice::new(&head), IoSlice::new(packet)];
        match sendmsg(&socket, &parts, &mut ancillary, SendFlags::DONTWAIT) {
            Err(Errno::INTR) => {}
            sent => break sent?,
        }
    };
    while sent < HEAD + packet.len() {
        let rest = if sent < HEAD { &head[sent..] } else { &packet[sent - HEAD..] };
        match rustix::net::send(&socket, rest, SendFlags::DONTWAIT) {
            Ok(count) => sent += count,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(&socket, PollFlags::OUT)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

pub(in crate::handover) fn receive(socket: impl AsFd, flags: RecvFlags) -> io::Result<Option<Parts>> {
    let mut space: Space = [MaybeUninit::uninit(); _];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut head = [0; HEAD];
    let received = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(&mut head)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(None),
            received => break received?,
        }
    };
    let fds = arrived(ancillary);
    for fd in &fds {
        fcntl_setfd(fd, FdFlags::CLOEXEC)?;
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    finish(&socket, &mut head[received.bytes..])?;
    let len = u32::from_le_bytes(head) as usize;
    if len > LONGEST || received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(too_long());
    }
    let mut packet = vec![0; len];
    finish(&socket, &mut packet)?;
    Ok(Some((packet, fds)))
}

fn finish(socket: impl AsFd, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        match recv(&socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, count)) => buffer = &mut buffer[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(&socket, PollFlags::IN)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn wait(socket: impl AsFd, what: PollFlags) -> io::Result<()> {
    match poll(&mut [PollFd::new(&socket, what)], Some(&REST)) {
        Ok(0) => Err(io::ErrorKind::TimedOut.into()),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
