//! A WebSocket on a stream of HTTP/2 (RFC 8441): copies bytes between the stream and the far end.
//!
//! Contract:
//! 1. Each direction buffers no more than the windows allow: of the client's bytes as many as its window, of the far end's one read.
//! 2. The end of one direction is passed on (END_STREAM, or the end of the far end's input); the other direction continues, unless the far end
//!    takes no more bytes either.
//! 3. When the far end breaks off, the stream is reset with CANCEL; when the client resets it, the far end is closed (RFC 8441 section 5).
//! 4. When the far end takes no more bytes, the client's are dropped, and what the far end has sent is still delivered.

use super::client::StreamClient;
use super::hub::Hub;
use bytes::Bytes;
use http2::{Connection, StreamId};
use net::TunnelEnd;
use std::io::ErrorKind;
use std::task::{Context, Poll};

/// The most bytes per read from the far end.
const READ: usize = 64 << 10;

/// The state of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Open,
    /// The receiver takes no more; the rest is dropped.
    Dropped,
    /// Its end was passed on.
    Ended,
}

/// The next step of a tunnel.
pub(super) enum TunnelStep {
    /// Nothing, until the client or the far end does something.
    Waiting,
    /// Bytes of the far end can be sent.
    Ready,
    /// The far end has ended: send END_STREAM. The other direction continues.
    EndStream,
    /// Both directions have ended.
    Over,
    /// The far end has broken off.
    Broken,
}

/// The far end of a tunnel, and the state of both directions.
pub(super) struct Tunnel {
    io: Box<dyn TunnelEnd>,
    /// From the client to the far end.
    up: Flow,
    /// From the far end to the client.
    down: Flow,
    /// Bytes of the far end that are not sent.
    held: Bytes,
}

impl Tunnel {
    pub(super) fn new(io: Box<dyn TunnelEnd>) -> Box<Tunnel> {
        Box::new(Tunnel { io, up: Flow::Open, down: Flow::Open, held: Bytes::new() })
    }

    /// Returns whether END_STREAM has been sent.
    pub(super) fn is_closed(&self) -> bool {
        self.down == Flow::Ended
    }

    /// Moves bytes in both directions as far as possible.
    pub(super) fn step(&mut self, cx: &mut Context<'_>, hub: &Hub, client: &StreamClient) -> TunnelStep {
        self.pass_up(cx, hub, client);
        if self.down == Flow::Open && self.held.is_empty() {
            match self.poll_read(cx, hub) {
                Poll::Pending => return TunnelStep::Waiting,
                Poll::Ready(None) => return TunnelStep::Broken,
                Poll::Ready(Some(bytes)) if bytes.is_empty() => {
                    self.down = Flow::Ended;
                    return TunnelStep::EndStream;
                }
                Poll::Ready(Some(bytes)) => self.held = bytes,
            }
        }
        if self.down == Flow::Ended && self.up == Flow::Open && self.io.is_over() {
            self.up = Flow::Dropped;
        }
        match (self.down, self.up) {
            // If the far end is closed in both directions, the client gets a request to send no more
            // (`Connection::discard`).
            (Flow::Ended, Flow::Ended | Flow::Dropped) => TunnelStep::Over,
            (Flow::Ended, Flow::Open) => TunnelStep::Waiting,
            _ => TunnelStep::Ready,
        }
    }

    fn pass_up(&mut self, cx: &mut Context<'_>, hub: &Hub, client: &StreamClient) {
        if self.up == Flow::Open {
            match client.poll_pass_on(hub, &*self.io, cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) => {
                    self.io.end_writing();
                    self.up = Flow::Ended;
                }
                Poll::Ready(Err(_)) => self.up = Flow::Dropped,
            }
        }
        if self.up == Flow::Dropped {
            let _ = client.poll_drop(hub, cx);
        }
    }

    /// Reads once. Empty at the end; `None` if the far end has broken off.
    fn poll_read(&self, cx: &mut Context<'_>, hub: &Hub) -> Poll<Option<Bytes>> {
        let mut scratch = hub.shared.scratch.borrow_mut();
        loop {
            if self.io.poll_readable(cx).is_pending() {
                return Poll::Pending;
            }
            match self.io.try_read(&mut scratch[..READ]) {
                Ok(n) => return Poll::Ready(Some(Bytes::copy_from_slice(&scratch[..n]))),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Ready(None),
            }
        }
    }

    /// Sends at most `most` bytes of the far end.
    pub(super) fn send(&mut self, engine: &mut Connection, stream: StreamId, most: usize) -> usize {
        let piece = self.held.split_to(most.min(self.held.len()));
        let len = piece.len();
        let unsent = engine.data(stream, piece, false);
        debug_assert!(unsent.is_empty(), "the engine has asked for that much");
        if self.held.is_empty() {
            self.held = Bytes::new();
        }
        len - unsent.len()
    }

    /// Gives the far end the last bytes of a client that has ended its half after the far end had ended its
    /// own: the stream is gone, and nothing but this tunnel is left of it.
    pub(super) async fn finish(self: Box<Tunnel>, mut rest: Bytes) {
        let io = &self.io;
        std::future::poll_fn(|cx| {
            while !rest.is_empty() {
                match io.try_write(&rest) {
                    Ok(n) => drop(rest.split_to(n)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        if io.poll_writable(cx).is_pending() {
                            return Poll::Pending;
                        }
                    }
                    Err(_) => return Poll::Ready(()),
                }
            }
            io.poll_flush(cx).map(|_| ())
        })
        .await;
        self.io.end_writing();
    }
}
