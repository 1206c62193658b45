//! Recognizes the protocol of an answer by its first bytes, so that an error names a wrong scheme or version
//! as such: [`Spoken`].

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A protocol that was not asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoken {
    Tls,
    Http1,
    Http2,
    Other,
}

impl Spoken {
    /// Returns the protocol of these bytes, the first of a connection.
    pub(crate) fn of(bytes: &[u8]) -> Spoken {
        match bytes {
            // An alert or a handshake: record type, version.
            [0x15 | 0x16, 0x03, ..] => Spoken::Tls,
            // SETTINGS: length, type, no flags, stream 0.
            [0, _, _, 4, 0, 0, 0, 0, 0, ..] => Spoken::Http2,
            [b'H', b'T', b'T', b'P', b'/', b'1', ..] => Spoken::Http1,
            _ => Spoken::Other,
        }
    }

    /// Returns what to do if HTTP/1.1 was expected.
    pub(crate) fn in_place_of_http1(self) -> Option<&'static str> {
        match self {
            Spoken::Tls => Some("the answer is TLS: this port speaks https; use https://"),
            Spoken::Http2 => Some("the answer is HTTP/2: this port speaks HTTP/2 only, not HTTP/1.1"),
            Spoken::Http1 | Spoken::Other => None,
        }
    }

    /// Returns what to do if HTTP/2 without TLS was expected.
    pub(crate) fn in_place_of_http2(self) -> Option<&'static str> {
        match self {
            Spoken::Tls => Spoken::Tls.in_place_of_http1(),
            Spoken::Http1 => Some(
                "the answer is HTTP/1.1: this port does not speak HTTP/2; leave out --http 2 and --streams",
            ),
            Spoken::Other => Some("the answer is not HTTP/2"),
            Spoken::Http2 => None,
        }
    }
}

/// The protocol that a peer has been heard to speak; `None` if it has sent nothing.
pub(crate) type Heard = Rc<Cell<Option<Spoken>>>;

/// A stream that recognizes the protocol of the first bytes read from it.
#[derive(Debug)]
pub(crate) struct Listening<S> {
    inner: S,
    heard: Heard,
}

impl<S> Listening<S> {
    pub(crate) fn new(inner: S, heard: Heard) -> Listening<S> {
        Listening { inner, heard }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Listening<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.inner).poll_read(cx, buffer);
        if this.heard.get().is_none() && buffer.filled().len() > before {
            this.heard.set(Some(Spoken::of(&buffer.filled()[before..])));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Listening<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}
