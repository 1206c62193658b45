//! TLS to upstreams: rustls over the same sockets and the same readiness as everything else.
//!
//! Why without a wrapper for asynchronous streams: connections are read and written by `try_*` and `poll_*` through a shared
//! reference, from two sides at once (request body up, response down), encrypted or not.

use crate::Config;
use http::Transport;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::net::TcpStream;

/// What connections to `https` origins agree on.
///
/// # Errors
/// Certificates cannot be read, or there are none to believe.
pub(crate) fn client_config(config: &Config) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be used: {error}"))?;
    let known = known(config)?;
    let verifier = Verifier { chains: chains(config, &known, &provider)?, known, provider };
    let mut tls =
        builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(tls))
}

/// The certificates of `tls_ca`.
fn known(config: &Config) -> Result<Vec<CertificateDer<'static>>, String> {
    let Some(path) = config.tls_ca.as_ref().filter(|_| config.tls_verify) else { return Ok(Vec::new()) };
    let unusable = |why: String| {
        format!("tls_ca {}: {why}; it must be a PEM file with at least one certificate", path.display())
    };
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| unusable(error.to_string()))?;
    let certificates =
        certificates.collect::<Result<Vec<_>, _>>().map_err(|error| unusable(error.to_string()))?;
    if certificates.is_empty() {
        return Err(unusable("no certificate in it".into()));
    }
    Ok(certificates)
}

/// What verifies chains of certificates; `None` when nothing is verified.
fn chains(
    config: &Config,
    known: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<WebPkiServerVerifier>>, String> {
    if !config.tls_verify {
        return Ok(None);
    }
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots(config, known)?), provider.clone())
            .build();
    verifier.map(Some).map_err(|error| format!("certificates cannot be verified: {error}"))
}

fn roots(config: &Config, known: &[CertificateDer<'static>]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = config.tls_ca.as_ref().filter(|_| !known.is_empty()) {
        for certificate in known {
            roots.add(certificate.clone()).map_err(|error| format!("tls_ca {}: {error}", path.display()))?;
        }
        return Ok(roots);
    }
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        return Err(format!(
            "the system has no certificates to verify https origins by ({}); install ca-certificates, set SSL_CERT_FILE, \
             tls_ca, or tls_verify to false",
            why.join("; ")
        ));
    }
    Ok(roots)
}

fn is_out_of_date(error: &rustls::Error) -> bool {
    use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    let rustls::Error::InvalidCertificate(why) = error else { return false };
    matches!(why, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
}

/// Verifies an origin's certificate.
///
/// Why not rustls' own verifier alone: it refuses a certificate that signs itself, as `openssl req -x509` makes it, even when
/// that very certificate was named in `tls_ca`.
#[derive(Debug)]
struct Verifier {
    /// Certificates that are believed for their own names, without a chain.
    known: Vec<CertificateDer<'static>>,
    /// `None` believes every certificate: `tls_verify` is off.
    chains: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chains) = &self.chains else { return Ok(ServerCertVerified::assertion()) };
        match chains.verify_server_cert(certificate, others, name, ocsp, now) {
            Err(error) if !is_out_of_date(&error) && self.known.iter().any(|known| known == certificate) => {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
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
