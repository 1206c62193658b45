//! Implements the origin's end of a tunnel.

use crate::pool::Connection;
use crate::upstreams::Active;
use bytes::{Buf, Bytes};
use net::descriptors::CountedDescriptor;
use net::{Stream, Transport, TunnelEnd};
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

/// A stream, with the bytes that followed its response head.
pub(crate) struct Tunnel {
    stream: Stream,
    first: RefCell<Bytes>,
    _active: Active,
    _descriptor: CountedDescriptor,
}

impl Tunnel {
    pub(crate) fn new(connection: Connection, first: Bytes, active: Active) -> Tunnel {
        let Connection { stream, descriptor, .. } = connection;
        Tunnel { stream, first: RefCell::new(first), _active: active, _descriptor: descriptor }
    }
}

impl TunnelEnd for Tunnel {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.first.borrow().is_empty() { self.stream.poll_readable(cx) } else { Poll::Ready(()) }
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.poll_writable(cx)
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut first = self.first.borrow_mut();
        if first.is_empty() {
            return self.stream.try_read(buffer);
        }
        let n = first.len().min(buffer.len());
        first.copy_to_slice(&mut buffer[..n]);
        if first.is_empty() {
            *first = Bytes::new();
        }
        Ok(n)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.try_write(&[IoSlice::new(bytes)], false)
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_flush(cx)
    }

    fn end_writing(&self) {
        self.stream.end_writing();
    }

    fn is_over(&self) -> bool {
        // TCP does not tell a closed connection from a half-closed one.
        false
    }
}
