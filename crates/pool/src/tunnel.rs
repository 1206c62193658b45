//! Connections that an app has taken over (hijacks, WebSockets, streaming bodies): the app's socket, counted for its worker.
//!
//! Why: they hold no seat, but they cost their worker time, so new ones should go to workers that have few ([`crate::dispatch`]).
//! WebSockets whose worker leaves are closed here with status 1012 ([`crate::websocket`]).

use crate::call::Call;
use crate::link::End;
use crate::local::Local;
use crate::websocket::{Follower, SERVICE_RESTART};
use handler::{BodyStream, Chunk, Failure};
use net::{TunnelEnd, descriptors};
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::UnixStream;

/// How long a client may take to answer a Close frame.
const ANSWER: Duration = Duration::from_secs(5);

/// Counts a connection for as long as it lives.
struct Counted {
    local: Rc<Local>,
    end: End,
    _descriptor: descriptors::Held,
}

impl Counted {
    fn new(local: &Rc<Local>, call: &Call) -> Counted {
        let end = End { serial: call.serial(), kind: call.kind() };
        local.shared().dispatch(end.kind).tunnel_opened(end.serial);
        Counted { local: local.clone(), end, _descriptor: descriptors::Held::begin() }
    }

    /// Whether the worker gets no more requests, or is gone.
    fn is_leaving(&self) -> bool {
        !self.local.shared().dispatch(self.end.kind).is_open(self.end.serial)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.local.shared().dispatch(self.end.kind).tunnel_closed(self.end.serial);
    }
}

/// The app's end of a connection, as the far end of a tunnel.
struct AppEnd {
    io: Box<dyn TunnelEnd>,
    frames: RefCell<Follower>,
    /// When the Close frame was sent in the app's place: what the client sends is of no interest any more.
    closed: Cell<Option<Instant>>,
    counted: Counted,
}

impl AppEnd {
    /// The app's socket has ended, or has failed. A worker that leaves closes its WebSockets so; others are closed by their app,
    /// and what it did or did not send stands.
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

    /// Whether the client may still be about to answer its Close frame: closing now, with unread bytes, would reset the
    /// connection, and the frame might be lost.
    fn awaits_answer(&self) -> bool {
        self.closed.get().map_or_else(|| self.may_close(), |since| since.elapsed() < ANSWER)
    }
}

/// Makes the app's socket the far end of a tunnel; `frames` follows what the app sends on it.
///
/// # Errors
/// The descriptor is no stream socket.
pub(crate) fn open(
    fd: OwnedFd,
    frames: Follower,
    local: &Rc<Local>,
    call: &Call,
) -> io::Result<Box<dyn TunnelEnd>> {
    let io = net::tunnel_end(socket(fd)?);
    let (frames, closed) = (RefCell::new(frames), Cell::new(None));
    Ok(Box::new(AppEnd { io, frames, closed, counted: Counted::new(local, call) }))
}

/// Whether the app's side of a socket is gone.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

impl TunnelEnd for AppEnd {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.io.poll_readable(cx)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.io.poll_writable(cx)
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.io.try_read(buffer) {
            Ok(0) => Ok(self.ended(buffer).unwrap_or(0)),
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
        match self.io.try_write(bytes) {
            Err(error) if is_gone(&error) && self.awaits_answer() => Ok(bytes.len()),
            result => result,
        }
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_flush(cx)
    }

    fn end_writing(&self) {
        self.io.end_writing();
    }
}

/// A response body that the app writes to a socket of its own (partial hijack, streaming bodies). When it is dropped before its end,
/// the client has gone: the worker is told, because an app that waits for something else would notice only when it writes.
pub(crate) struct SocketBody {
    first: bytes::Bytes,
    socket: UnixStream,
    call: Rc<Call>,
    over: bool,
    counted: Counted,
}

impl SocketBody {
    /// The body that begins with `first` and goes on with what comes out of `fd`.
    ///
    /// # Errors
    /// The descriptor is no stream socket.
    pub(crate) fn open(
        first: bytes::Bytes,
        fd: OwnedFd,
        local: &Rc<Local>,
        call: Rc<Call>,
    ) -> io::Result<SocketBody> {
        let counted = Counted::new(local, &call);
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
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => {
                self.over = true;
                Poll::Ready(Some(Err(Failure::app(502, format!("the app's stream failed: {error}")))))
            }
            Poll::Ready(Ok(())) => {
                let n = buffer.filled().len();
                bytes.truncate(n);
                self.over = n == 0;
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
