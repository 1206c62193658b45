//! The socket between the program that serves and the one that takes over: packets with descriptors.
//!
//! Why the new program's standard input: a descriptor that is known by its number can only be used with `unsafe`, standard input cannot be
//! mistaken for another one, and a program that knows nothing of handovers leaves it alone. The original standard input travels with the
//! first message.

use super::message::{LONGEST, MOST_FDS, Message, announced, decode, encode};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The variable that announces a handover. It never reaches the app.
pub(crate) const VARIABLE: &str = settings::HANDOVER_VARIABLE;

/// A message and the descriptors that came with it.
pub(super) type Packet = (Message, Vec<OwnedFd>);

/// Both ends.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// The end of the new program, if this is one: standard input is the socket of the process that the variable names. A variable that was
/// left over, or inherited from somewhere, announces nothing.
pub(super) fn on_standard_input() -> Option<(OwnedFd, i32)> {
    let old = announced(std::env::var_os(VARIABLE)?)?;
    let stdin = std::io::stdin();
    let is_packets =
        rustix::net::sockopt::socket_type(&stdin).is_ok_and(|kind| kind == SocketType::SEQPACKET);
    if !is_packets || !belongs_to(&stdin, old) {
        return None;
    }
    Some((stdin.as_fd().try_clone_to_owned().ok()?, old))
}

/// Whether a pair of sockets was made by that process.
#[cfg(target_os = "linux")]
fn belongs_to(socket: impl AsFd, process: i32) -> bool {
    rustix::net::sockopt::socket_peercred(socket).is_ok_and(|peer| peer.pid.as_raw_nonzero().get() == process)
}

#[cfg(not(target_os = "linux"))]
fn belongs_to(_: impl AsFd, process: i32) -> bool {
    rustix::process::getppid().is_some_and(|parent| parent.as_raw_nonzero().get() == process)
}

/// Sends one message without waiting.
///
/// # Errors
/// `WouldBlock`, or the other side is gone.
pub(super) fn send(socket: impl AsFd, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one message"));
    }
    let packet = encode(message);
    loop {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sendmsg(&socket, &[IoSlice::new(&packet)], &mut ancillary, flags) {
            Err(rustix::io::Errno::INTR) => {}
            sent => return Ok(sent.map(|_| ())?),
        }
    }
}

/// Receives one message; `None` when the other side is gone.
fn receive(socket: impl AsFd, flags: RecvFlags) -> io::Result<Option<Packet>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut packet = vec![0; LONGEST];
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(&mut packet)], &mut ancillary, flags) {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            received => break received?,
        }
    };
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(arrived) = message {
            fds.extend(arrived);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(invalid(format!("a message of more than {LONGEST} bytes or {MOST_FDS} descriptors")));
    }
    let message = decode(&packet[..received.bytes]).map_err(invalid)?;
    Ok(Some((message, fds)))
}

/// Receives one message and waits for it, at most for `timeout`.
///
/// # Errors
/// It is no message, or none came.
pub(super) fn receive_within(socket: impl AsFd, timeout: Duration) -> io::Result<Option<Packet>> {
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, Some(timeout))?;
    receive(socket, RecvFlags::empty())
}

/// One end, for the event loop. As a stream it is only registered there: whole packets are sent and received.
#[derive(Debug)]
pub(super) struct Channel(UnixStream);

impl Channel {
    /// Needs a runtime.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn new(socket: OwnedFd) -> io::Result<Channel> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Channel(UnixStream::from_std(socket.into())?))
    }

    /// Sends one message.
    ///
    /// # Errors
    /// The other side is gone.
    pub(super) async fn send(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.0.async_io(Interest::WRITABLE, || send(&self.0, message, fds)).await
    }

    /// The next message; `None` when the other side is gone. Safe to drop and call again.
    ///
    /// # Errors
    /// It is no message.
    pub(super) async fn receive(&self) -> io::Result<Option<Packet>> {
        self.0.async_io(Interest::READABLE, || receive(&self.0, RecvFlags::DONTWAIT)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[tokio::test]
    async fn messages_travel_with_descriptors_and_the_end_is_seen() {
        let (ours, theirs) = pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let ours = Channel::new(ours).unwrap();
        ours.send(&Message::End, &[writer.as_fd()]).await.unwrap();
        ours.send(&Message::Go, &[]).await.unwrap();
        drop(writer);
        let (message, mut fds) = receive_within(&theirs, Duration::from_secs(5)).unwrap().unwrap();
        assert_eq!((message, fds.len()), (Message::End, 1));
        let mut file = std::fs::File::from(fds.remove(0));
        file.write_all(b"inside").unwrap();
        drop(file);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "inside");
        let theirs = Channel::new(theirs).unwrap();
        assert_eq!(theirs.receive().await.unwrap().unwrap().0, Message::Go);
        drop(ours);
        assert!(theirs.receive().await.unwrap().is_none());
        assert!(theirs.send(&Message::Ready, &[]).await.is_err());
    }

    #[test]
    fn silence_and_nonsense_are_errors() {
        let (ours, theirs) = pair().unwrap();
        let silent = receive_within(&theirs, Duration::from_millis(20)).unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::WouldBlock);
        rustix::net::send(&ours, b"GET / HTTP/1.1", SendFlags::empty()).unwrap();
        let nonsense = receive_within(&theirs, Duration::from_secs(5)).unwrap_err();
        assert!(nonsense.to_string().contains("GET / HTTP/1.1"), "{nonsense}");
        rustix::net::send(&ours, &vec![b'x'; LONGEST + 1], SendFlags::empty()).unwrap();
        let long = receive_within(&theirs, Duration::from_secs(5)).unwrap_err();
        assert!(long.to_string().contains("more than"), "{long}");
    }
}
