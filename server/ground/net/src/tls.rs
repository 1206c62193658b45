//! TLS on both sides: rustls over the same sockets and the same readiness as plain connections.
//!
//! Why not tokio-rustls: connections are read and written by `try_*` and `poll_*` through a shared reference,
//! by two sides at once (a request body in, its response out), with TLS or without.
//!
//! Contract, in addition to [`Transport`]'s:
//! 1. The handshake is complete before a value exists.
//! 2. A read that does not fill its buffer has drained the session and the socket.
//! 3. Bytes accepted by [`Transport::try_write`] may stay buffered here until [`Transport::poll_flush`].

use crate::{Delivery, Transport};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::future::poll_fn;
use std::io::{self, BufRead, ErrorKind, IoSlice, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use sys::file::read_cached;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Plain-text bytes per read if the reader does not specify: the largest TLS record.
const RECORD: usize = 16 << 10;
/// Bytes of a file that are encrypted at a time: as much as a session buffers.
const SLICE: usize = 64 << 10;
/// Bytes that are read from a socket at a time, if the reader has room for their plain text.
const CHUNK: usize = 48 << 10;
/// Bytes that a session may hold of an incomplete record, and some more. This much room stays free in the
/// reader's buffer.
const PARTIAL: usize = 18 << 10;

thread_local! {
    /// Bytes between a socket or a file and a session. Never borrowed across a wait.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub struct TlsStream {
    socket: TcpStream,
    /// Boxed, because a session has 1.1 KB, and each future that a connection passes through has room for this type.
    session: Box<RefCell<Connection>>,
    /// Whether plain-text bytes may be buffered even if the socket is empty.
    unread: Cell<bool>,
    /// Whether the other side has ended its direction (`close_notify`).
    ended: Cell<bool>,
    /// Whether a drop must look like a cut connection, not like an orderly end.
    aborted: Cell<bool>,
    /// Reads a part of a file into the kernel's cache.
    warming: RefCell<Option<JoinHandle<()>>>,
}

/// Announces the end of the stream, so that the other side can tell it from a cut (RFC 8446 section 6.1).
impl Drop for TlsStream {
    fn drop(&mut self) {
        let session = self.session.get_mut();
        if !self.aborted.get() && !session.is_handshaking() {
            session.send_close_notify();
            // Best effort: bytes that do not fit into the socket are lost.
            let _ = session.write_tls(&mut Wire { socket: &self.socket, anyway: false });
        }
    }
}

/// The result of reading several records.
struct Received {
    /// Bytes of plain text.
    plain: usize,
    /// Whether the socket is empty.
    drained: bool,
}

/// The socket as rustls reads and writes it.
struct Wire<'a> {
    socket: &'a TcpStream,
    /// Whether to read even if the socket counts as empty.
    anyway: bool,
}

impl Read for Wire<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.anyway { self.socket.read_anyway(buffer) } else { Transport::try_read(self.socket, buffer) }
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Transport::try_write(self.socket, &[IoSlice::new(bytes)], false)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Transport::try_write(self.socket, parts, false)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsStream {
    /// Performs the handshake as the client of `host`.
    ///
    /// # Errors
    /// The other side does not speak TLS, or its certificate is not trusted.
    pub async fn connect(config: Arc<ClientConfig>, host: &str, socket: TcpStream) -> io::Result<TlsStream> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| io::Error::new(ErrorKind::InvalidInput, "its name cannot be in a certificate"))?;
        let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
        TlsStream::shake_hands(session.into(), socket).await
    }

    /// Performs the handshake as the server.
    ///
    /// # Errors
    /// The client does not speak TLS, or offers nothing that `config` accepts.
    pub async fn accept(config: Arc<ServerConfig>, socket: TcpStream) -> io::Result<TlsStream> {
        let session = ServerConnection::new(config).map_err(io::Error::other)?;
        TlsStream::shake_hands(session.into(), socket).await
    }

    /// Completes the handshake of a session that has read the client's first message. On failure, the client
    /// has got an alert and the stream is returned for closing.
    ///
    /// # Errors
    /// The client gave up, or its offer is not accepted. For TLS errors, the inner error is of rustls.
    pub async fn accept_session(
        session: ServerConnection,
        socket: TcpStream,
    ) -> Result<TlsStream, (io::Error, TlsStream)> {
        let tls = TlsStream::unshaken(session.into(), socket);
        match poll_fn(|cx| tls.poll_handshake(cx)).await {
            Ok(()) => Ok(tls),
            Err(error) => Err((error, tls)),
        }
    }

    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Calls `ask` with the server's session. Returns `None` on the client's side.
    pub fn server_session<T>(&self, ask: impl FnOnce(&ServerConnection) -> T) -> Option<T> {
        match &*self.session.borrow() {
            Connection::Server(session) => Some(ask(session)),
            Connection::Client(_) => None,
        }
    }

    fn unshaken(session: Connection, socket: TcpStream) -> TlsStream {
        TlsStream {
            socket,
            session: Box::new(RefCell::new(session)),
            unread: Cell::new(false),
            ended: Cell::new(false),
            aborted: Cell::new(false),
            warming: RefCell::new(None),
        }
    }

    async fn shake_hands(session: Connection, socket: TcpStream) -> io::Result<TlsStream> {
        let tls = TlsStream::unshaken(session, socket);
        poll_fn(|cx| tls.poll_handshake(cx)).await?;
        Ok(tls)
    }

    fn poll_handshake(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_flush(cx))?;
            if !self.session.borrow().is_handshaking() {
                // Plain-text bytes may have arrived with the last packet.
                self.unread.set(true);
                return Poll::Ready(Ok(()));
            }
            ready!(Transport::poll_readable(&self.socket, cx));
            match self.receive(&mut self.session.borrow_mut(), false) {
                Ok(0) => {
                    return Poll::Ready(Err(io::Error::new(
                        ErrorKind::UnexpectedEof,
                        "closed in the TLS handshake",
                    )));
                }
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Poll::Ready(Err(error)),
                _ => {}
            }
        }
    }

    /// Reads records from the socket into the session. 0 means the end of the socket.
    fn receive(&self, session: &mut Connection, anyway: bool) -> io::Result<usize> {
        let n = session.read_tls(&mut Wire { socket: &self.socket, anyway })?;
        self.process(session).map(|()| n)
    }

    /// Like [`TlsStream::receive`], but reads several records with one system call and puts their plain text into
    /// `buffer`; the session alone reads 4 KiB at a time. `buffer` has room for [`CHUNK`] and [`PARTIAL`].
    /// Returns the number of plain-text bytes: 0 if the socket has ended or no record is complete.
    fn receive_many(
        &self,
        session: &mut Connection,
        anyway: bool,
        buffer: &mut [u8],
    ) -> io::Result<Received> {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.resize(SLICE, 0);
            let n = Wire { socket: &self.socket, anyway }.read(&mut scratch[..CHUNK])?;
            if n == 0 {
                // Tells the session about the end.
                session.read_tls(&mut io::empty())?;
                self.process(session)?;
            }
            let (mut rest, mut filled) = (&scratch[..n], 0);
            while !rest.is_empty() {
                if session.read_tls(&mut rest)? == 0 {
                    // Bytes after the announced end are ignored (RFC 8446 section 6.1).
                    break;
                }
                self.process(session)?;
                match session.reader().read(&mut buffer[filled..]) {
                    Ok(plain) => filled += plain,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(Received { plain: filled, drained: n < CHUNK })
        })
    }

    fn process(&self, session: &mut Connection) -> io::Result<()> {
        match session.process_new_packets() {
            Ok(state) => self.ended.set(state.peer_has_closed()),
            Err(error) => {
                // Best effort: the connection ends anyway.
                let _ = session.write_tls(&mut Wire { socket: &self.socket, anyway: false });
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
        }
        // Messages of the session itself (key updates). The rest is sent with the next write.
        match self.send(session) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    fn send(&self, session: &mut Connection) -> io::Result<()> {
        while session.wants_write() {
            session.write_tls(&mut Wire { socket: &self.socket, anyway: false })?;
        }
        Ok(())
    }

    /// Fills `buffer` as far as session and socket have bytes.
    fn read(&self, buffer: &mut [u8], anyway: bool) -> io::Result<usize> {
        let mut session = self.session.borrow_mut();
        let mut filled = 0;
        let result = loop {
            match session.reader().read(&mut buffer[filled..]) {
                Ok(0) => break Ok(filled),
                Ok(n) => filled += n,
                // At the end of the socket, the reader tells a complete stream from a truncated one.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let received = if buffer.len() - filled >= CHUNK + PARTIAL && !session.is_handshaking() {
                        self.receive_many(&mut session, anyway, &mut buffer[filled..])
                    } else {
                        self.receive(&mut session, anyway).map(|_| Received { plain: 0, drained: false })
                    };
                    match received {
                        Ok(Received { plain, drained }) => {
                            filled += plain;
                            if drained && filled > 0 {
                                break Err(ErrorKind::WouldBlock.into());
                            }
                        }
                        Err(error) => break Err(error),
                    }
                }
                Err(error) => break Err(error),
            }
            if filled == buffer.len() {
                self.unread.set(true);
                return Ok(filled);
            }
        };
        // An error or the end is returned again by the next read.
        let would_block = matches!(&result, Err(error) if error.kind() == ErrorKind::WouldBlock);
        self.unread.set(filled > 0 && !would_block);
        if filled > 0 { Ok(filled) } else { result }
    }

    /// Reads a part of a file into the kernel's cache on another thread. [`Transport::poll_writable`] waits for it.
    fn warm(&self, file: &File, offset: u64, len: usize) -> io::Result<()> {
        let file = file.try_clone()?;
        let read = move || {
            let mut bytes = vec![0; len];
            // An error occurs again in the next read, and is reported there.
            let _ = file.read_at(&mut bytes, offset);
        };
        *self.warming.borrow_mut() = Some(tokio::task::spawn_blocking(read));
        Ok(())
    }

    /// Encrypts and sends. Returns `WouldBlock` while earlier bytes have not been sent.
    fn write(&self, write: impl FnOnce(&mut Connection) -> io::Result<usize>) -> io::Result<usize> {
        let mut session = self.session.borrow_mut();
        self.send(&mut session)?;
        let n = write(&mut session)?;
        match self.send(&mut session) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(n),
        }
    }
}

impl Transport for TlsStream {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.unread.get() { Poll::Ready(()) } else { Transport::poll_readable(&self.socket, cx) }
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(reading) = &mut *self.warming.borrow_mut() {
            // The next read reports a failure.
            let _ = ready!(Pin::new(reading).poll(cx));
        }
        self.warming.take();
        // The write reports a failure.
        self.poll_flush(cx).map(|_| ())
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read(buffer, false)
    }

    fn try_read_more(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let before = buffer.len();
        let room = (buffer.capacity() - before).min(RECORD);
        buffer.resize(before + room, 0);
        let result = self.read(&mut buffer[before..], false);
        buffer.truncate(before + result.as_ref().copied().unwrap_or(0));
        result
    }

    fn read_anyway(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read(buffer, true)
    }

    fn try_peek(&self) -> io::Result<bool> {
        let mut session = self.session.borrow_mut();
        loop {
            match session.reader().fill_buf() {
                Ok([]) => return Ok(false),
                Ok(_) => break,
                // The session is empty: from now on only the socket can have more.
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.unread.set(false),
                Err(error) => return Err(error),
            }
            self.receive(&mut session, false)?;
        }
        self.unread.set(false);
        let _ =
            self.socket.try_io(Interest::READABLE, || io::Result::<()>::Err(ErrorKind::WouldBlock.into()));
        Ok(true)
    }

    fn try_write(&self, parts: &[IoSlice<'_>], _more: bool) -> io::Result<usize> {
        self.write(|session| session.writer().write_vectored(parts))
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.send(&mut self.session.borrow_mut()) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready!(Transport::poll_writable(&self.socket, cx));
                }
                other => return Poll::Ready(other),
            }
        }
    }

    fn try_send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        if self.warming.borrow().is_some() {
            return Err(ErrorKind::WouldBlock.into());
        }
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.resize(SLICE, 0);
            let plain = &mut scratch[..len.min(SLICE)];
            self.write(|session| {
                let read = match read_cached(file, offset, plain) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        self.warm(file, offset, plain.len())?;
                        return Err(error);
                    }
                    Err(error) if error.kind() == ErrorKind::Unsupported => file.read_at(plain, offset)?,
                    read => read?,
                };
                if read == 0 { Ok(0) } else { session.writer().write(&plain[..read]) }
            })
        })
    }

    fn lendable(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn has_ended(&self) -> bool {
        self.ended.get() || self.socket.has_ended()
    }

    fn has_failed(&self) -> bool {
        self.socket.has_failed()
    }

    async fn failed(&self) {
        self.socket.failed().await;
    }

    fn end_writing(&self) {
        let mut session = self.session.borrow_mut();
        session.send_close_notify();
        if self.send(&mut session).is_ok() {
            self.socket.end_writing();
        }
    }

    fn abort_on_drop(&self) {
        self.aborted.set(true);
        self.socket.abort_on_drop();
    }

    fn delivery(&self) -> Option<Delivery> {
        let mut delivery = self.socket.delivery()?;
        // Bytes that the session buffers have not even been written.
        delivery.outstanding += u64::from(self.session.borrow().wants_write());
        Some(delivery)
    }

    fn abandon_after(&self, time: Duration) {
        self.socket.abandon_after(time);
    }

    fn bound_unsent(&self, bytes: u32) {
        self.socket.bound_unsent(bytes);
    }

    fn cut(&self) {
        self.aborted.set(true);
        self.socket.cut();
    }
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
