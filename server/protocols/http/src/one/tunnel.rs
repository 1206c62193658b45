//! Runs tunnels: copies bytes in both directions until both have ended.
//!
//! Contract:
//! 1. Bytes that were read ahead are delivered first.
//! 2. Each direction buffers at most one read, and nothing while the tunnel is idle.
//! 3. The end of one direction is passed on; the other direction continues, unless the far end takes no more bytes either.
//!    When the far end takes no more bytes, the client's are dropped, and what the far end has sent is still delivered.
//! 4. A client that reads nothing for `timeouts.send` while data waits ends the tunnel (see `delivery`). An idle tunnel has no time-out of its own:
//!    TCP keep-alive finds a vanished client.

use super::link::Link;
use net::{Transport, TunnelEnd};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::task::{Context, Poll, ready};

/// The most reads per direction and turn, so that other connections get served.
const ROUNDS: usize = 16;

/// One direction of a tunnel.
#[derive(Debug, Default)]
struct Flow {
    /// Bytes that are read but not written.
    held: Vec<u8>,
    ended: bool,
    passed_on: bool,
    /// The receiver takes no more; bytes are read and dropped.
    dropped: bool,
    bytes: u64,
}

trait End {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()>;
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()>;
    fn read(&self, take: &mut dyn FnMut(&[u8])) -> io::Result<()>;
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;
    /// Ready when all written bytes have been sent.
    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = cx;
        Poll::Ready(Ok(()))
    }
    fn end_writing(&self);
}

struct ClientEnd<'a, S>(&'a Link<S>);

impl<S: Transport> End for ClientEnd<'_, S> {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_readable(cx)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let writable = self.0.stream.poll_writable(cx);
        self.0.block(writable.is_pending());
        writable
    }

    fn read(&self, take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        self.0.read(take)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.0.stream.try_write(&[IoSlice::new(bytes)], false)?;
        self.0.wrote(written);
        Ok(written)
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.stream.poll_flush(cx)
    }

    fn end_writing(&self) {
        self.0.stream.end_writing();
    }
}

struct FarEnd<'a> {
    io: &'a dyn TunnelEnd,
    scratch: &'a RefCell<Vec<u8>>,
}

impl End for FarEnd<'_> {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.io.poll_readable(cx)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.io.poll_writable(cx)
    }

    fn read(&self, take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let mut scratch = self.scratch.borrow_mut();
        let n = self.io.try_read(&mut scratch)?;
        take(&scratch[..n]);
        Ok(())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.io.try_write(bytes)
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_flush(cx)
    }

    fn end_writing(&self) {
        self.io.end_writing();
    }
}

/// How a tunnel has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TunnelOutcome {
    /// Both directions have ended.
    Ended,
    /// A direction has failed.
    Broken,
    /// The far end has got the client's connection, so it stays open.
    Given,
}

/// Runs until both directions have ended, one has failed, or the far end takes the connection. Returns the number of bytes sent to the client.
pub(crate) async fn run<S: Transport>(link: &Link<S>, io: Box<dyn TunnelEnd>) -> (u64, TunnelOutcome) {
    if link.stream.lendable().is_some() {
        io.offer_connection();
    }
    let mut up = Flow { held: link.input.take().into(), ..Flow::default() };
    let mut down = Flow::default();
    let client = ClientEnd(link);
    let far = FarEnd { io: &*io, scratch: &link.shared.scratch };
    let outcome = poll_fn(|cx| {
        if io.poll_wanted(cx).is_ready() && give(link, &*io, &mut up, &mut down) {
            return Poll::Ready(TunnelOutcome::Given);
        }
        match (up.poll(&client, &far, cx), down.poll(&far, &client, cx)) {
            (Poll::Ready(Err(Broken::Read)), _) | (_, Poll::Ready(Err(_))) => {
                Poll::Ready(TunnelOutcome::Broken)
            }
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(TunnelOutcome::Ended),
            (_, Poll::Ready(Ok(()))) if up.dropped || io.is_over() => Poll::Ready(TunnelOutcome::Ended),
            (Poll::Ready(Err(Broken::Write)), _) => {
                up.dropped = true;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            _ => Poll::Pending,
        }
    })
    .await;
    (down.bytes, outcome)
}

/// Gives the far end the client's connection. Returns false if it cannot have it.
fn give<S: Transport>(link: &Link<S>, io: &dyn TunnelEnd, up: &mut Flow, down: &mut Flow) -> bool {
    if up.ended || up.dropped || down.ended {
        return false;
    }
    let copy = link.stream.lendable().and_then(|descriptor| descriptor.try_clone_to_owned().ok());
    let Some(connection) = copy else { return false };
    io.take_connection(connection, std::mem::take(&mut up.held), std::mem::take(&mut down.held));
    // The process that has the connection watches the bytes that are on their way to the client.
    link.delivery.give_up();
    true
}

/// Which end of a direction has failed.
enum Broken {
    Read,
    Write,
}

impl Flow {
    /// Ready when this direction has ended and its end was passed on.
    fn poll(&mut self, from: &impl End, to: &impl End, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        for _ in 0..ROUNDS {
            while !self.held.is_empty() && !self.dropped {
                match to.write(&self.held) {
                    Ok(n) => {
                        self.held.drain(..n);
                        self.bytes += n as u64;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        if to.poll_writable(cx).is_pending() {
                            return Poll::Pending;
                        }
                    }
                    Err(_) => return Poll::Ready(Err(Broken::Write)),
                }
            }
            self.held = Vec::new();
            if !self.dropped && ready!(to.poll_flush(cx)).is_err() {
                return Poll::Ready(Err(Broken::Write));
            }
            if self.ended {
                if !std::mem::replace(&mut self.passed_on, true) {
                    to.end_writing();
                }
                return Poll::Ready(Ok(()));
            }
            if from.poll_readable(cx).is_pending() {
                return Poll::Pending;
            }
            match from.read(&mut |bytes| self.receive(bytes, to)) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Poll::Ready(Err(Broken::Read)),
                _ => {}
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes as much as fits and holds the rest. A write error shows up again when the rest is written.
    fn receive(&mut self, bytes: &[u8], to: &impl End) {
        self.ended = bytes.is_empty();
        if self.dropped {
            return;
        }
        let sent = if bytes.is_empty() { 0 } else { to.write(bytes).unwrap_or(0) };
        self.bytes += sent as u64;
        self.held.extend_from_slice(&bytes[sent..]);
    }
}
