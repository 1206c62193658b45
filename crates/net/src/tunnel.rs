//! One end of a tunnel: the far side of a connection that was taken over or upgraded.

use crate::Transport;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

/// A byte stream to one end of a tunnel: an app's socket, an upstream's connection, encrypted or not. The part of
/// [`Transport`] that a tunnel needs, usable as a trait object.
///
/// Contract: `try_*` never block; `WouldBlock` means "wait for `poll_readable` or `poll_writable`". Bytes that were read
/// ahead are read first. Dropping it closes the stream.
pub trait TunnelEnd {
    /// Ready when a read may succeed; errors show up in the read.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ready when a write may succeed; errors show up in the write.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Reads; 0 is the end of this direction.
    ///
    /// # Errors
    /// `WouldBlock`, or why the stream failed.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes as much as fits.
    ///
    /// # Errors
    /// `WouldBlock`, or why the stream failed.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Sends written bytes that encryption still buffers; ready at once where nothing is buffered.
    ///
    /// # Errors
    /// Why the stream failed.
    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = cx;
        Poll::Ready(Ok(()))
    }

    /// Closes our direction: the other side reads the end after the last byte.
    fn end_writing(&self);
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
}
