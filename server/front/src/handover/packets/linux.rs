//! Packets over a `SOCK_SEQPACKET` socket.

use super::{Parts, Space, arrived, too_long, with};
use crate::handover::message::LONGEST;
use rustix::io::Errno;
use rustix::net::sockopt::{socket_peercred, socket_type};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub(in crate::handover) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

pub(in crate::handover) fn is_one(socket: impl AsFd) -> bool {
    socket_type(socket).is_ok_and(|kind| kind == SocketType::SEQPACKET)
}

pub(in crate::handover) fn belongs_to(socket: impl AsFd, process: i32) -> bool {
    socket_peercred(socket).is_ok_and(|peer| peer.pid.as_raw_nonzero().get() == process)
}

pub(in crate::handover) fn send(socket: impl AsFd, packet: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space: Space = [MaybeUninit::uninit(); _];
    let mut ancillary = with(fds, &mut space)?;
    loop {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sendmsg(&socket, &[IoSlice::new(packet)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            sent => return Ok(sent.map(|_| ())?),
        }
    }
}

pub(in crate::handover) fn receive(socket: impl AsFd, flags: RecvFlags) -> io::Result<Option<Parts>> {
    let mut space: Space = [MaybeUninit::uninit(); _];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut packet = vec![0; LONGEST];
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let mut reset = false;
    let received = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(&mut packet)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            // The other side closed with unread data. The kernel reports this once, before the data that is
            // still to read.
            Err(Errno::CONNRESET) if !reset => reset = true,
            Err(Errno::CONNRESET) => return Ok(None),
            received => break received?,
        }
    };
    let fds = arrived(ancillary);
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(too_long());
    }
    packet.truncate(received.bytes);
    Ok(Some((packet, fds)))
}
