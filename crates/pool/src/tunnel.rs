//! Connections that an app has taken over (hijacks, WebSockets, streaming bodies): the app's socket, counted for its worker.
//!
//! Why: they hold no seat, but they cost their worker time, so new ones should go to workers that have few ([`crate::dispatch`]).

use crate::dispatch::Serial;
use crate::local::Local;
use handler::{BodyStream, Chunk, Failure};
use net::TunnelEnd;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::UnixStream;

/// Counts a connection for as long as it lives.
struct Counted {
    local: Rc<Local>,
    serial: Serial,
}

impl Counted {
    fn new(local: &Rc<Local>, serial: Serial) -> Counted {
        local.shared().dispatch().tunnel_opened(serial);
        Counted { local: local.clone(), serial }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.local.shared().dispatch().tunnel_closed(self.serial);
    }
}

/// The app's end of a connection, as the far end of a tunnel.
struct AppEnd {
    io: Box<dyn TunnelEnd>,
    _counted: Counted,
}

/// Makes the app's socket the far end of a tunnel.
///
/// # Errors
/// The descriptor is no stream socket.
pub(crate) fn open(fd: OwnedFd, local: &Rc<Local>, serial: Serial) -> io::Result<Box<dyn TunnelEnd>> {
    let io = net::tunnel_end(socket(fd)?);
    Ok(Box::new(AppEnd { io, _counted: Counted::new(local, serial) }))
}

impl TunnelEnd for AppEnd {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.io.poll_readable(cx)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.io.poll_writable(cx)
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.io.try_read(buffer)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.io.try_write(bytes)
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_flush(cx)
    }

    fn end_writing(&self) {
        self.io.end_writing();
    }
}

/// A response body that the app writes to a socket of its own (partial hijack, streaming bodies).
pub(crate) struct SocketBody {
    first: bytes::Bytes,
    socket: UnixStream,
    _counted: Counted,
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
        serial: Serial,
    ) -> io::Result<SocketBody> {
        Ok(SocketBody { first, socket: socket(fd)?, _counted: Counted::new(local, serial) })
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
                Poll::Ready(Some(Err(Failure::app(502, format!("the app's stream failed: {error}")))))
            }
            Poll::Ready(Ok(())) => {
                let n = buffer.filled().len();
                bytes.truncate(n);
                Poll::Ready((n > 0).then(|| Ok(Chunk::Bytes(bytes.into()))))
            }
        }
    }
}

fn socket(fd: OwnedFd) -> io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(fd);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}
