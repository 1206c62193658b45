//! The trait of all byte streams, and its implementation for TCP and Unix sockets.
//!
//! Why: protocol engines are written once for all streams, and only this file knows how the event loop's
//! readiness and system calls work together.
//!
//! Contract:
//! 1. `try_*` never block: `WouldBlock` means "wait for `poll_readable` or `poll_writable`".
//! 2. A read that did not fill its buffer has emptied the socket. The readiness is cleared at once, so that
//!    the next wait needs no extra call to find that out.
//! 3. Bytes accepted by `try_write` are sent once `poll_flush` is ready: TLS may buffer them.

use crate::socket::Socket;
use crate::{Connection, Delivery};
use rustix::buffer::spare_capacity;
use rustix::net::{RecvFlags, SendAncillaryBuffer, Shutdown, recv, sendmsg};
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use sys::socket::{MORE, NO_SIGNAL, send_file};
use tokio::io::{Interest, Ready};
use tokio::net::{TcpStream, UnixStream};

/// A connected byte stream on the current thread's runtime.
pub trait Transport: 'static {
    /// Ready when a read may succeed. Errors show up in the read.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()>;
    /// Ready when a write may succeed. Errors show up in the write.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()>;
    /// Reads. 0 is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock`, or the error of the connection.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;
    /// Appends to `buffer` within its capacity. 0 is the end of the stream, or no room.
    ///
    /// # Errors
    /// `WouldBlock`, or the error of the connection.
    fn try_read_more(&self, buffer: &mut Vec<u8>) -> io::Result<usize>;
    /// Like [`Transport::try_read`], without a look at the readiness.
    ///
    /// # Errors
    /// `WouldBlock`, or the error of the connection.
    fn read_anyway(&self, buffer: &mut [u8]) -> io::Result<usize>;
    /// Whether bytes (`true`) or the end (`false`) can be read. Consumes nothing. If bytes can be read, the
    /// readiness is cleared, so that `poll_readable` waits for the next event; read the bytes with
    /// [`Transport::read_anyway`].
    ///
    /// # Errors
    /// `WouldBlock`, or the error of the connection.
    fn try_peek(&self) -> io::Result<bool>;
    /// Writes as much as fits. `more`: the rest of the message follows at once, so a packet need not be sent yet.
    ///
    /// # Errors
    /// `WouldBlock`, or the error of the connection.
    fn try_write(&self, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize>;
    /// Sends buffered bytes of earlier writes. Ready at once if nothing is buffered.
    ///
    /// # Errors
    /// The error of the connection.
    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = cx;
        Poll::Ready(Ok(()))
    }
    /// Sends a part of a file, by sendfile(2) if possible. 0 if the file ends before `offset`.
    ///
    /// # Errors
    /// `WouldBlock`, or the error of the connection or the file.
    fn try_send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize>;
    /// Returns the descriptor to which another process may write the stream's bytes; `None` with TLS.
    fn lendable(&self) -> Option<BorrowedFd<'_>>;
    /// Whether the other side is known to have closed its direction. Bytes before the end may still be unread.
    fn has_ended(&self) -> bool;
    /// Whether the connection is known to be closed in both directions or reset.
    fn has_failed(&self) -> bool;
    /// Whether the event loop watches the stream. If not, each wait begins with a system call.
    fn is_watched(&self) -> bool {
        true
    }
    /// Waits until [`Transport::has_failed`] may have become true.
    fn failed(&self) -> impl Future<Output = ()>;
    /// Closes the own direction: the other side reads the end after the last byte.
    fn end_writing(&self);
    /// Makes a drop reset the connection instead of ending it in order (TLS: `close_notify`, RFC 8446 section
    /// 6.1), so that the other side does not take the received bytes for complete.
    fn abort_on_drop(&self);
    /// Returns the progress of the other side in receiving the written bytes; `None` if the system does not tell.
    fn delivery(&self) -> Option<Delivery>;
    /// Sets the limit of unsent bytes in the system. A write waits at the limit; raising it can make a write ready.
    fn bound_unsent(&self, bytes: u32);
    /// Makes the system give up on bytes that stay unacknowledged for `time`, after this has been dropped.
    fn abandon_after(&self, time: Duration);
    /// Closes both directions now: tasks that wait for either are woken and fail. A drop then resets the
    /// connection and discards bytes that have not been received.
    fn cut(&self);
}

fn read_fd(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match recv(fd, &mut *buffer, RecvFlags::empty()) {
            Ok((_, n)) => return Ok(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn append_fd(fd: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        match recv(fd, spare_capacity(buffer), RecvFlags::empty()) {
            Ok((n, _)) => return Ok(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn write_fd(fd: BorrowedFd<'_>, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
    let flags = if more { NO_SIGNAL.union(MORE) } else { NO_SIGNAL };
    loop {
        let sent = match parts {
            [one] => rustix::net::send(fd, one, flags),
            many => sendmsg(fd, many, &mut SendAncillaryBuffer::default(), flags),
        };
        match sent {
            Ok(n) => return Ok(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

const EVERYTHING: Interest = Interest::READABLE.add(Interest::WRITABLE).add(Interest::ERROR);

/// Returns the known readiness without waiting; `None` if the runtime has ended.
fn probe(ready: impl Future<Output = io::Result<Ready>>) -> Option<Ready> {
    match pin!(ready).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ready) => ready.ok(),
        Poll::Pending => Some(Ready::EMPTY),
    }
}

macro_rules! transport {
    ($stream:ty) => {
        impl Transport for $stream {
            #[inline]
            fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
                self.poll_read_ready(cx).map(|_| ())
            }

            #[inline]
            fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
                self.poll_write_ready(cx).map(|_| ())
            }

            #[inline]
            fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
                let mut emptied = None;
                let whole = self.try_on(Interest::READABLE, |fd| match read_fd(fd, buffer) {
                    Ok(n) if n > 0 && n < buffer.len() => {
                        emptied = Some(n);
                        // Not an actual error: it makes the runtime clear its readiness.
                        Err(ErrorKind::WouldBlock.into())
                    }
                    other => other,
                });
                emptied.map_or(whole, Ok)
            }

            fn try_read_more(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
                let room = buffer.capacity() - buffer.len();
                let mut emptied = None;
                let whole = self.try_on(Interest::READABLE, |fd| match append_fd(fd, buffer) {
                    Ok(n) if n > 0 && n < room => {
                        emptied = Some(n);
                        Err(ErrorKind::WouldBlock.into())
                    }
                    other => other,
                });
                emptied.map_or(whole, Ok)
            }

            fn read_anyway(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.on(|fd| read_fd(fd, buffer))
            }

            fn try_peek(&self) -> io::Result<bool> {
                let mut found = false;
                let ended = self.try_on(Interest::READABLE, |fd| {
                    let (_, n) = recv(fd, &mut [0u8; 1][..], RecvFlags::PEEK)?;
                    found = n > 0;
                    if found { Err(ErrorKind::WouldBlock.into()) } else { Ok(false) }
                });
                if found { Ok(true) } else { ended }
            }

            #[inline]
            fn try_write(&self, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
                self.try_on(Interest::WRITABLE, |fd| write_fd(fd, parts, more))
            }

            fn try_send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
                self.try_on(Interest::WRITABLE, |fd| send_file(fd, file, offset, len))
            }

            fn lendable(&self) -> Option<BorrowedFd<'_>> {
                self.descriptor()
            }

            fn is_watched(&self) -> bool {
                Socket::is_watched(self)
            }

            fn has_ended(&self) -> bool {
                probe(self.ready(EVERYTHING)).is_none_or(Ready::is_read_closed)
            }

            fn has_failed(&self) -> bool {
                probe(self.ready(EVERYTHING)).is_none_or(|ready| ready.is_error() || ready.is_write_closed())
            }

            async fn failed(&self) {
                let _ = self.ready(Interest::ERROR).await;
            }

            fn end_writing(&self) {
                // Fails only if the connection is gone.
                let _ = self.on(|fd| Ok(rustix::net::shutdown(fd, Shutdown::Write)?));
            }

            fn abort_on_drop(&self) {
                // Fails only if the connection is gone. Has no effect on a Unix socket.
                let _ = self.on(|fd| Ok(rustix::net::sockopt::set_socket_linger(fd, Some(Duration::ZERO))?));
            }

            fn delivery(&self) -> Option<Delivery> {
                self.on(|fd| Ok(sys::socket::delivery(fd))).ok().flatten()
            }

            fn abandon_after(&self, time: Duration) {
                let _ = self.on(|fd| {
                    sys::socket::abandon_after(fd, time);
                    Ok(())
                });
            }

            fn bound_unsent(&self, bytes: u32) {
                let _ = self.on(|fd| {
                    sys::socket::bound_unsent(fd, bytes);
                    Ok(())
                });
            }

            fn cut(&self) {
                Transport::abort_on_drop(self);
                // Fails only if the connection is gone.
                let _ = self.on(|fd| Ok(rustix::net::shutdown(fd, Shutdown::Both)?));
            }
        }
    };
}

transport!(TcpStream);
transport!(UnixStream);
transport!(Connection);
