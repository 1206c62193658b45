//! A connected byte stream to an upstream: TCP, a Unix socket or TLS.

use crate::tls::Tls;
use http::Transport;
use std::io::{self, ErrorKind, IoSlice};
use std::task::{Context, Poll};
use tokio::net::{TcpStream, UnixStream};

/// Bytes of encrypted data taken at a time.
const PLAIN: usize = 16 << 10;

/// A stream; `try_*` and `poll_*` as in [`Transport`].
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<Tls>),
}

impl Stream {
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Stream::Tcp(socket) => Transport::poll_readable(socket, cx),
            Stream::Unix(socket) => Transport::poll_readable(socket, cx),
            Stream::Tls(tls) => tls.poll_readable(cx),
        }
    }

    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Stream::Tcp(socket) => Transport::poll_writable(socket, cx),
            Stream::Unix(socket) => Transport::poll_writable(socket, cx),
            Stream::Tls(tls) => tls.poll_writable(cx),
        }
    }

    /// Hands on what encryption still holds of what was written.
    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) => Poll::Ready(Ok(())),
            Stream::Tls(tls) => tls.poll_flush(cx),
        }
    }

    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(socket) => Transport::try_read(socket, buffer),
            Stream::Unix(socket) => Transport::try_read(socket, buffer),
            Stream::Tls(tls) => tls.try_read(buffer),
        }
    }

    /// Appends to `buffer` at most what it has room for; 0 is the end of the stream.
    pub(crate) fn try_read_more(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Stream::Tcp(socket) => socket.try_read_more(buffer),
            Stream::Unix(socket) => socket.try_read_more(buffer),
            Stream::Tls(tls) => {
                let room = (buffer.capacity() - buffer.len()).min(PLAIN);
                let before = buffer.len();
                buffer.resize(before + room, 0);
                let result = tls.try_read(&mut buffer[before..]);
                buffer.truncate(before + result.as_ref().copied().unwrap_or(0));
                result
            }
        }
    }

    pub(crate) fn try_write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(socket) => Transport::try_write(socket, parts, false),
            Stream::Unix(socket) => Transport::try_write(socket, parts, false),
            Stream::Tls(tls) => tls.try_write(parts),
        }
    }

    pub(crate) fn end_writing(&self) {
        match self {
            Stream::Tcp(socket) => Transport::end_writing(socket),
            Stream::Unix(socket) => Transport::end_writing(socket),
            Stream::Tls(tls) => tls.end_writing(),
        }
    }

    /// Whether nothing has come that nobody has asked for: no byte, no end, no error. The kernel is asked, not the event
    /// loop, which learns of a byte only in its next turn: until then an answer to nobody would be the next one's.
    pub(crate) fn is_quiet(&self) -> bool {
        let read = match self {
            Stream::Tcp(socket) => socket.read_anyway(&mut [0; 1]),
            Stream::Unix(socket) => socket.read_anyway(&mut [0; 1]),
            // What has come may be the session's own: it says itself.
            Stream::Tls(tls) => tls.try_read(&mut [0; 1]),
        };
        matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }
}
