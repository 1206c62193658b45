//! TLS to upstreams: rustls over the same sockets and the same readiness as everything else.
//!
//! Why without a wrapper for asynchronous streams: connections are read and written by `try_*` and `poll_*` through a shared
//! reference, from two sides at once (request body up, response down), encrypted or not.

use crate::Config;
use http::Transport;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::net::TcpStream;
use trust::{Unusable, Whom};

/// What connections to `https` origins agree on.
///
/// # Errors
/// Certificates cannot be read, or there are none to believe.
pub(crate) fn client_config(config: &Config) -> Result<Arc<ClientConfig>, String> {
    let whom = match &config.tls_ca {
        _ if !config.tls_verify => Whom::Anybody,
        Some(file) => Whom::File(file),
        None => Whom::System,
    };
    let mut tls = trust::client(whom, None).map_err(told)?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(tls))
}

fn told(unusable: Unusable) -> String {
    match unusable {
        Unusable::NobodyBelieved(why) => format!(
            "the system has no certificates to verify https origins by ({why}); install ca-certificates, set SSL_CERT_FILE, \
             tls_ca, or tls_verify to false"
        ),
        Unusable::Tls(why) => why,
        Unusable::File { path, why, .. } => {
            format!("tls_ca {}: {why}; it must be a PEM file with at least one certificate", path.display())
        }
    }
}

/// A TLS connection. Reads and writes plain bytes; the contract is [`Transport`]'s, with [`Tls::poll_flush`] in addition:
/// what was accepted for writing may still have to be sent.
pub(crate) struct Tls {
    socket: TcpStream,
    session: RefCell<ClientConnection>,
    /// Plain bytes may be there although the socket has none.
    unread: Cell<bool>,
}

/// The socket as rustls sees it.
struct Wire<'a>(&'a TcpStream);

impl Read for Wire<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Transport::try_read(self.0, buffer)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Transport::try_write(self.0, &[IoSlice::new(bytes)], false)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Transport::try_write(self.0, parts, false)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Tls {
    /// Shakes hands with `host`.
    ///
    /// # Errors
    /// The other side does not speak TLS, or its certificate is not to be believed.
    pub(crate) async fn connect(config: Arc<ClientConfig>, host: &str, socket: TcpStream) -> io::Result<Tls> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| io::Error::new(ErrorKind::InvalidInput, "its name cannot be in a certificate"))?;
        let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let tls = Tls { socket, session: RefCell::new(session), unread: Cell::new(false) };
        poll_fn(|cx| tls.poll_handshake(cx)).await?;
        Ok(tls)
    }

    fn poll_handshake(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_flush(cx))?;
            if !self.session.borrow().is_handshaking() {
                // Plain bytes may have come with the last packet.
                self.unread.set(true);
                return Poll::Ready(Ok(()));
            }
            ready!(self.socket.poll_readable(cx));
            match self.receive(&mut self.session.borrow_mut()) {
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

    /// Takes what the socket has; 0 is its end.
    fn receive(&self, session: &mut ClientConnection) -> io::Result<usize> {
        let n = session.read_tls(&mut Wire(&self.socket))?;
        if let Err(error) = session.process_new_packets() {
            // The other side is told why; whether it hears that does not matter any more.
            let _ = session.write_tls(&mut Wire(&self.socket));
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        Ok(n)
    }

    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.unread.get() { Poll::Ready(()) } else { self.socket.poll_readable(cx) }
    }

    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.poll_flush(cx) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        }
    }

    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.send(&mut self.session.borrow_mut()) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready!(self.socket.poll_writable(cx)),
                other => return Poll::Ready(other),
            }
        }
    }

    /// Sends what waits to be sent.
    fn send(&self, session: &mut ClientConnection) -> io::Result<()> {
        while session.wants_write() {
            session.write_tls(&mut Wire(&self.socket))?;
        }
        Ok(())
    }

    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut session = self.session.borrow_mut();
        loop {
            match session.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => {
                    self.unread.set(result.as_ref().is_ok_and(|&n| n == buffer.len()));
                    return result;
                }
            }
            self.unread.set(false);
            // At the socket's end the reader says whether that was the end of the stream, or it was cut off.
            self.receive(&mut session)?;
            match self.send(&mut session) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }

    pub(crate) fn try_write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut session = self.session.borrow_mut();
        match self.send(&mut session) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        let n = session.writer().write_vectored(parts)?;
        match self.send(&mut session) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        if n == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(n) }
    }

    pub(crate) fn end_writing(&self) {
        let mut session = self.session.borrow_mut();
        session.send_close_notify();
        if self.send(&mut session).is_ok() {
            self.socket.end_writing();
        }
    }
}
