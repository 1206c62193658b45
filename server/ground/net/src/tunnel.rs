//! One end of a tunnel: the far side of a connection that was hijacked or upgraded.

use crate::Transport;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

/// A byte stream to one end of a tunnel: an app's socket, or an upstream's connection, with TLS or without.
/// The part of [`Transport`] that a tunnel needs, usable as a trait object.
///
/// Contract: `try_*` never block; `WouldBlock` means "wait for `poll_readable` or `poll_writable`". Bytes
/// that were read ahead come first. Dropping it closes the stream.
pub trait TunnelEnd {
    /// Ready when a read may succeed. Errors show up in the read.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ready when a write may succeed. Errors show up in the write.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Reads. 0 is the end of this direction.
    ///
    /// # Errors
    /// `WouldBlock`, or the error of the stream.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes as much as fits.
    ///
    /// # Errors
    /// `WouldBlock`, or the error of the stream.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Sends written bytes that TLS still buffers. Ready at once if nothing is buffered.
    ///
    /// # Errors
    /// The error of the stream.
    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = cx;
        Poll::Ready(Ok(()))
    }

    /// Closes the own direction: the other side reads the end after the last byte.
    fn end_writing(&self);

    /// Tells this end that it can have the connection at the other end itself, instead of a tunnel to it.
    fn offer_connection(&self) {}

    /// Ready when this end wants the connection that was offered to it.
    fn poll_wanted(&self, cx: &mut Context<'_>) -> Poll<()> {
        let _ = cx;
        Poll::Pending
    }

    /// Gives this end the connection, and ends the tunnel. `unwritten`: bytes that were read from the connection and could not be written here yet;
    /// `unsent`: bytes that were read here and could not be written to the connection yet.
    fn take_connection(&self, connection: OwnedFd, unwritten: Vec<u8>, unsent: Vec<u8>) {
        drop((connection, unwritten, unsent));
    }

    /// Returns whether the other side is known to take no more bytes. After the end of its own direction nothing is left of the tunnel then.
    fn is_over(&self) -> bool;
}

/// A transport as the end of a tunnel.
struct End<S>(S);

/// Makes a connected stream the end of a tunnel.
pub fn tunnel_end<S: Transport>(stream: S) -> Box<dyn TunnelEnd> {
    Box::new(End(stream))
}

impl<S: Transport> TunnelEnd for End<S> {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_readable(cx)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_writable(cx)
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(&[IoSlice::new(bytes)], false)
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush(cx)
    }

    fn end_writing(&self) {
        self.0.end_writing();
    }

    fn is_over(&self) -> bool {
        false
    }
}
