//! Reads a header from a socket, and no byte after it.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

use crate::Connection;
use crate::socket::Socket as _;

use super::header::{ParsedHeader, ProxyHeader};
use super::parse::{Accepted, MalformedHeader, parse};

/// A connected socket of this thread's runtime.
pub trait Socket {
    /// Waits until a read may succeed.
    fn readable(&self) -> impl Future<Output = io::Result<()>>;
    /// Calls `read`. Its `WouldBlock` clears the readiness.
    ///
    /// # Errors
    /// The errors of `read`, and `WouldBlock` if the socket is known to be unreadable.
    fn read_with<T>(&self, read: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T>;
}

macro_rules! socket {
    ($stream:ty) => {
        impl Socket for $stream {
            fn readable(&self) -> impl Future<Output = io::Result<()>> {
                <$stream>::readable(self)
            }

            fn read_with<T>(&self, read: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
                self.try_io(Interest::READABLE, || read(self.as_fd()))
            }
        }
    };
}

socket!(TcpStream);
socket!(UnixStream);

impl Socket for Connection {
    async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_read_ready(cx)).await
    }

    fn read_with<T>(&self, read: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        self.try_on(Interest::READABLE, read)
    }
}

/// The reason why there is no header.
#[derive(Debug)]
pub enum HeaderFailure {
    /// The client sent other bytes.
    Malformed(MalformedHeader),
    /// The connection ended. The flag tells whether any bytes had arrived.
    Ended(bool),
    Io(io::Error),
}

impl fmt::Display for HeaderFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeaderFailure::Malformed(why) => why.fmt(f),
            HeaderFailure::Ended(true) => write!(f, "it ended within its PROXY header"),
            HeaderFailure::Ended(false) => write!(f, "it ended before its PROXY header"),
            HeaderFailure::Io(why) => write!(f, "it failed before its PROXY header: {why}"),
        }
    }
}

/// Takes the header from the socket.
///
/// # Errors
/// There is no header, or the connection ended before it was complete.
pub async fn receive<S: Socket>(socket: &S, accepted: Accepted) -> Result<ProxyHeader, HeaderFailure> {
    let mut bytes = Vec::new();
    loop {
        socket.readable().await.map_err(HeaderFailure::Io)?;
        match socket.read_with(|fd| advance(fd, accepted, &mut bytes)) {
            Ok(header) => return header,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(HeaderFailure::Io(error)),
        }
    }
}

/// Peeks at the received bytes and takes those of the header. The end of the header is known only after a
/// look at the bytes.
fn advance(
    socket: BorrowedFd<'_>,
    accepted: Accepted,
    bytes: &mut Vec<u8>,
) -> io::Result<Result<ProxyHeader, HeaderFailure>> {
    let mut peeked = [0; 256];
    loop {
        let (_, count) = recv(socket, &mut peeked[..], RecvFlags::PEEK)?;
        if count == 0 {
            return Ok(Err(HeaderFailure::Ended(!bytes.is_empty())));
        }
        let known = bytes.len();
        bytes.extend_from_slice(&peeked[..count]);
        let (header, take) = match parse(bytes, accepted) {
            Ok(ParsedHeader::Incomplete) => (None, count),
            Ok(ParsedHeader::Complete(header, length)) => (Some(header), length.saturating_sub(known)),
            Err(why) => return Ok(Err(HeaderFailure::Malformed(why))),
        };
        // The bytes have been peeked, so this takes exactly as many.
        let (_, taken) = recv(socket, &mut peeked[..take], RecvFlags::empty())?;
        debug_assert_eq!(taken, take, "bytes that were seen are gone");
        if let Some(header) = header {
            return Ok(Ok(header));
        }
    }
}
