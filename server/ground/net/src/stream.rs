//! A connected stream whose kind is chosen at run time: TCP, a Unix socket, or TLS over TCP.

use crate::{Delivery, TlsStream, Transport};
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};

pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Whether no byte, end or error has arrived since the last read. Asks the kernel, because the event loop
    /// learns of a byte only in its next turn; an unrequested response would then be taken for the response
    /// to the next request.
    pub fn is_quiet(&self) -> bool {
        matches!(self.read_anyway(&mut [0; 1]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }
}

macro_rules! delegate {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self {
            Stream::Tcp($stream) => $call,
            Stream::Unix($stream) => $call,
            Stream::Tls(tls) => {
                let $stream: &TlsStream = tls;
                $call
            }
        }
    };
}

impl Transport for Stream {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        delegate!(self, stream => Transport::poll_readable(stream, cx))
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        delegate!(self, stream => Transport::poll_writable(stream, cx))
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        delegate!(self, stream => Transport::try_read(stream, buffer))
    }

    fn try_read_more(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        delegate!(self, stream => Transport::try_read_more(stream, buffer))
    }

    fn read_anyway(&self, buffer: &mut [u8]) -> io::Result<usize> {
        delegate!(self, stream => Transport::read_anyway(stream, buffer))
    }

    fn try_peek(&self) -> io::Result<bool> {
        delegate!(self, stream => Transport::try_peek(stream))
    }

    fn try_write(&self, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        delegate!(self, stream => Transport::try_write(stream, parts, more))
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, stream => Transport::poll_flush(stream, cx))
    }

    fn try_send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        delegate!(self, stream => Transport::try_send_file(stream, file, offset, len))
    }

    fn lendable(&self) -> Option<BorrowedFd<'_>> {
        delegate!(self, stream => Transport::lendable(stream))
    }

    fn has_ended(&self) -> bool {
        delegate!(self, stream => Transport::has_ended(stream))
    }

    fn has_failed(&self) -> bool {
        delegate!(self, stream => Transport::has_failed(stream))
    }

    async fn failed(&self) {
        delegate!(self, stream => Transport::failed(stream).await)
    }

    fn end_writing(&self) {
        delegate!(self, stream => Transport::end_writing(stream));
    }

    fn abort_on_drop(&self) {
        delegate!(self, stream => Transport::abort_on_drop(stream));
    }

    fn delivery(&self) -> Option<Delivery> {
        delegate!(self, stream => Transport::delivery(stream))
    }

    fn abandon_after(&self, time: Duration) {
        delegate!(self, stream => Transport::abandon_after(stream, time));
    }

    fn bound_unsent(&self, bytes: u32) {
        delegate!(self, stream => Transport::bound_unsent(stream, bytes));
    }

    fn cut(&self) {
        delegate!(self, stream => Transport::cut(stream));
    }
}
