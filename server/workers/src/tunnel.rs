//! Connects the client with the socket of a connection that an app has taken over (hijacks, WebSockets,
//! streaming bodies), and counts it for its worker.
//!
//! Why: such connections hold no seat but cost their worker time, so new ones should go to workers that have
//! few ([`queue::Dispatch`]). WebSockets of a worker that is leaving are closed here with status 1012
//! ([`crate::websocket`]).

use crate::call::Call;
use crate::local::Local;
use crate::messages::End;
use crate::os;
use crate::websocket::{Follower, SERVICE_RESTART};
use handler::{BodyStream, Chunk, Failure};
use net::{Transport, TunnelEnd, descriptors};
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::UnixStream;

/// How long a client may take to answer a Close frame.
const ANSWER: Duration = Duration::from_secs(5);

/// Counts a connection as long as it lives.
struct CountedTunnel {
    local: Rc<Local>,
    end: End,
    /// Whether it counts among [`Local::tunnels`].
    awaited: Cell<bool>,
    _descriptor: descriptors::CountedDescriptor,
}

impl CountedTunnel {
    fn new(local: &Rc<Local>, call: &Call) -> CountedTunnel {
        let end = End { serial: call.serial(), pool: call.pool() };
        local.shared().dispatch(end.pool).tunnel_opened(end.serial);
        local.follow_tunnels(1);
        let _descriptor = descriptors::CountedDescriptor::begin();
        CountedTunnel { local: local.clone(), end, awaited: Cell::new(true), _descriptor }
    }

    /// Records that the app sends nothing more.
    fn is_not_awaited(&self) {
        if self.awaited.replace(false) {
            self.local.follow_tunnels(-1);
        }
    }

    /// Returns whether the worker gets no more requests or is gone.
    fn is_leaving(&self) -> bool {
        !self.local.shared().dispatch(self.end.pool).is_open(self.end.serial)
    }
}

impl Drop for CountedTunnel {
    fn drop(&mut self) {
        self.local.shared().dispatch(self.end.pool).tunnel_closed(self.end.serial);
        self.is_not_awaited();
    }
}

/// The app's end of a connection, used as the far end of a tunnel.
struct AppEnd {
    io: UnixStream,
    frames: RefCell<Follower>,
    /// When the front sent the Close frame on behalf of the app. Bytes from the client are ignored from then
    /// on.
    closed: Cell<Option<Instant>>,
    counted: CountedTunnel,
}

impl AppEnd {
    /// Handles the end or failure of the app's socket. If the worker is leaving, a Close frame is written to
    /// `buffer`. Otherwise the app has closed the connection itself, and nothing is added.
    fn ended(&self, buffer: &mut [u8]) -> Option<usize> {
        if self.closed.get().is_some() || !self.may_close() {
            return None;
        }
        buffer.get_mut(..SERVICE_RESTART.len())?.copy_from_slice(&SERVICE_RESTART);
        self.closed.set(Some(Instant::now()));
        Some(SERVICE_RESTART.len())
    }

    fn may_close(&self) -> bool {
        self.frames.borrow().may_close() && self.counted.is_leaving()
    }

    /// Returns whether the client may still answer its Close frame. Closing the connection now, with unread
    /// bytes, would reset it, and the Close frame might be lost.
    fn awaits_answer(&self) -> bool {
        self.closed.get().map_or_else(|| self.may_close(), |since| since.elapsed() < ANSWER)
    }
}

/// Makes the app's socket the far end of a tunnel. `frames` follows the bytes that the app sends on it.
///
/// # Errors
/// Fails if the descriptor is not a stream socket.
pub(crate) fn open(
    fd: OwnedFd,
    frames: Follower,
    local: &Rc<Local>,
    call: &Call,
) -> io::Result<Box<dyn TunnelEnd>> {
    let io = socket(fd)?;
    let (frames, closed) = (RefCell::new(frames), Cell::new(None));
    Ok(Box::new(AppEnd { io, frames, closed, counted: CountedTunnel::new(local, call) }))
}

/// Returns whether the error means that the app's end of a socket is gone.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

impl TunnelEnd for AppEnd {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        Transport::poll_readable(&self.io, cx)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        Transport::poll_writable(&self.io, cx)
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match Transport::try_read(&self.io, buffer) {
            Ok(0) => {
                let closing = self.ended(buffer);
                if closing.is_none() && !self.is_over() {
                    // The app has closed one direction, and the client decides when the other one ends.
                    self.counted.is_not_awaited();
                }
                Ok(closing.unwrap_or(0))
            }
            // The worker has not read everything that the client sent.
            Err(error) if is_gone(&error) => self.ended(buffer).or(self.closed.get().map(|_| 0)).ok_or(error),
            Ok(n) => {
                self.frames.borrow_mut().follow(&buffer[..n]);
                Ok(n)
            }
            error => error,
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match Transport::try_write(&self.io, &[IoSlice::new(bytes)], false) {
            Err(error) if is_gone(&error) && self.awaits_answer() => Ok(bytes.len()),
            result => result,
        }
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Transport::poll_flush(&self.io, cx)
    }

    fn end_writing(&self) {
        Transport::end_writing(&self.io);
    }

    fn is_over(&self) -> bool {
        os::takes_no_more(&self.io)
    }
}

/// A response body that the app writes to its own socket (partial hijack, streaming bodies). Dropping it
/// before its end means that the client has gone. The worker then gets a message, because an app that waits
/// for something else would notice only at its next write.
pub(crate) struct SocketBody {
    first: bytes::Bytes,
    socket: UnixStream,
    call: Rc<Call>,
    over: bool,
    counted: CountedTunnel,
}

impl SocketBody {
    /// Opens the body that begins with `first` and continues with the bytes from `fd`.
    ///
    /// # Errors
    /// Fails if the descriptor is not a stream socket.
    pub(crate) fn open(
        first: bytes::Bytes,
        fd: OwnedFd,
        local: &Rc<Local>,
        call: Rc<Call>,
    ) -> io::Result<SocketBody> {
        let counted = CountedTunnel::new(local, &call);
        Ok(SocketBody { first, socket: socket(fd)?, call, over: false, counted })
    }
}

impl BodyStream for SocketBody {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        if !self.first.is_empty() {
            return Poll::Ready(Some(Ok(Chunk::Bytes(std::mem::take(&mut self.first)))));
        }
        let mut bytes = vec![0; 16 << 10];
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(&mut self.socket).poll_read(cx, &mut buffer) {
            Poll::Pending => {
                self.call.set_unread(false);
                Poll::Pending
            }
            Poll::Ready(Err(error)) => {
                self.over = true;
                Poll::Ready(Some(Err(Failure::app(502, format!("the app's stream failed: {error}")))))
            }
            Poll::Ready(Ok(())) => {
                let n = buffer.filled().len();
                bytes.truncate(n);
                self.over = n == 0;
                self.call.set_unread(n > 0);
                Poll::Ready((n > 0).then(|| Ok(Chunk::Bytes(bytes.into()))))
            }
        }
    }
}

impl Drop for SocketBody {
    fn drop(&mut self) {
        if !self.over {
            self.counted.local.abandon(&self.call);
        }
    }
}

fn socket(fd: OwnedFd) -> io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(fd);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}
