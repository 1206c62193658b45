//! The socket between the old program and the new one: messages with descriptors.
//!
//! Why standard input: using a descriptor by its number needs `unsafe`, standard input cannot be confused
//! with another descriptor, and a program that does not know handovers leaves it alone. The original standard
//! input is sent with the first message.

use super::message::{Message, announced, decode, encode};
use super::packets;
use rustix::net::RecvFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The environment variable that announces a handover. The app never sees it.
pub(crate) const VARIABLE: &str = settings::HANDOVER_VARIABLE;

pub(super) type Packet = (Message, Vec<OwnedFd>);

/// Returns the new program's end of the socket and the old program's process id, if standard input is a
/// socket of the process that the variable names. A stale or inherited variable is ignored.
pub(super) fn on_standard_input() -> Option<(OwnedFd, i32)> {
    let old = announced(std::env::var_os(VARIABLE)?)?;
    let stdin = std::io::stdin();
    if !packets::is_one(&stdin) || !packets::belongs_to(&stdin, old) {
        return None;
    }
    Some((stdin.as_fd().try_clone_to_owned().ok()?, old))
}

/// Sends one message without blocking.
///
/// # Errors
/// `WouldBlock`, or the other side has closed its end.
pub(super) fn send(socket: impl AsFd, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    packets::send(socket, &encode(message), fds)
}

/// Receives one message; `None` when the other side has closed its end.
fn receive(socket: impl AsFd, flags: RecvFlags) -> io::Result<Option<Packet>> {
    let Some((packet, fds)) = packets::receive(socket, flags)? else { return Ok(None) };
    let message = decode(&packet).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
    Ok(Some((message, fds)))
}

/// Waits for one message, at most for `timeout`.
///
/// # Errors
/// The message is invalid, or none arrived in time.
pub(super) fn receive_within(socket: impl AsFd, timeout: Duration) -> io::Result<Option<Packet>> {
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, Some(timeout))?;
    receive(socket, RecvFlags::empty())
}

/// One end, for the event loop. The stream type only serves to register it: all sends and receives are whole packets.
#[derive(Debug)]
pub(super) struct Channel(UnixStream);

impl Channel {
    /// Must be called in a tokio runtime.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn new(socket: OwnedFd) -> io::Result<Channel> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Channel(UnixStream::from_std(socket.into())?))
    }

    /// # Errors
    /// The other side has closed its end.
    pub(super) async fn send(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.0.async_io(Interest::WRITABLE, || send(&self.0, message, fds)).await
    }

    /// Receives the next message; `None` when the other side has closed its end. Cancel-safe.
    ///
    /// # Errors
    /// The message is invalid.
    pub(super) async fn receive(&self) -> io::Result<Option<Packet>> {
        self.0.async_io(Interest::READABLE, || receive(&self.0, RecvFlags::DONTWAIT)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::message::LONGEST;
    use packets::pair;
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

    #[tokio::test]
    async fn what_was_said_before_the_end_is_heard_although_not_everything_was_read() {
        let (ours, theirs) = pair().unwrap();
        let ours = Channel::new(ours).unwrap();
        ours.send(&Message::Go, &[]).await.unwrap();
        send(&theirs, &Message::Failed("why".to_owned()), &[]).unwrap();
        drop(theirs);
        assert_eq!(ours.receive().await.unwrap().unwrap().0, Message::Failed("why".to_owned()));
        assert!(ours.receive().await.unwrap().is_none());
    }

    #[test]
    fn silence_and_nonsense_are_errors() {
        let (ours, theirs) = pair().unwrap();
        let silent = receive_within(&theirs, Duration::from_millis(20)).unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::WouldBlock);
        packets::send(&ours, b"GET / HTTP/1.1", &[]).unwrap();
        let nonsense = receive_within(&theirs, Duration::from_secs(5)).unwrap_err();
        assert!(nonsense.to_string().contains("GET / HTTP/1.1"), "{nonsense}");
        packets::send(&ours, &vec![b'x'; LONGEST + 1], &[]).unwrap();
        let long = receive_within(&theirs, Duration::from_secs(5)).unwrap_err();
        assert!(long.to_string().contains("more than"), "{long}");
    }
}
