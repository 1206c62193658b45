//! The far end of a connection that was taken over or upgraded.

use std::io;
use std::task::{Context, Poll};

/// A byte stream to the other end of a tunnel: an app's socket, an upstream's connection, encrypted or not.
///
/// Contract: `try_*` never block; `WouldBlock` means "wait for `poll_readable` or `poll_writable`". What was read ahead of
/// need is read first. Dropping it closes the stream.
pub trait TunnelEnd {
    /// Ready when a read may do something; errors show up in the read.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ready when a write may do something; errors show up in the write.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Reads; 0 is the end of this direction.
    ///
    /// # Errors
    /// `WouldBlock`, or what the stream died of.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes as much as fits.
    ///
    /// # Errors
    /// `WouldBlock`, or what the stream died of.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Hands on what a layer of encryption still holds of the written bytes; ready at once where there is none.
    ///
    /// # Errors
    /// What the stream died of.
    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = cx;
        Poll::Ready(Ok(()))
    }

    /// Ends our direction: the other side sees the end after the last byte.
    fn end_writing(&self);
}
