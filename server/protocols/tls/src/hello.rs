//! Reads a client's first message, before anything is decided.
//!
//! Contract: a client that does not speak TLS is recognized by its first bytes, without a full buffer.

use crate::certificates::Wanted;
use crate::endpoint::ACME;
use crate::{Certificate, Endpoint, Failed, HandshakeRefusal, OnDemandHook, Remains};
use net::Transport;
use rustls::server::{Accepted, Acceptor};
use rustls::sign::CertifiedKey;
use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::task::ready;
use tokio::net::TcpStream;

/// The type of a handshake record (RFC 8446 section 5.1). Every TLS client sends it first.
const HANDSHAKE: u8 = 22;
/// Bytes per read. A ClientHello with a post-quantum key fits.
const CHUNK: usize = 4 << 10;

/// A client that has sent its ClientHello.
pub struct Hello {
    pub(crate) accepted: Accepted,
    pub(crate) socket: TcpStream,
}

/// The answer to a client.
pub enum CertificateChoice {
    Certificate(Arc<Certificate>),
    /// The certificate of a TLS-ALPN-01 challenge: the connection ends after the handshake.
    Challenge(Arc<CertifiedKey>),
    /// A certificate to create for this name, by these hooks in order.
    OnDemand(String, Arc<[Arc<dyn OnDemandHook>]>),
}

impl Hello {
    /// Waits for the whole ClientHello.
    ///
    /// # Errors
    /// The client does not speak TLS, or closed the connection.
    pub async fn read(socket: TcpStream) -> Result<Hello, Failed> {
        let mut acceptor = Acceptor::default();
        let mut begun = false;
        loop {
            let outcome = poll_fn(|cx| {
                ready!(Transport::poll_readable(&socket, cx));
                std::task::Poll::Ready(receive(&socket, &mut acceptor, &mut begun))
            });
            match outcome.await {
                Ok(Some(accepted)) => return Ok(Hello { accepted, socket }),
                Ok(None) => {}
                Err(refusal) => {
                    return Err(Failed { refusal, remains: Some(Remains::Socket(socket)), name: None });
                }
            }
        }
    }

    /// Returns the host that the client requests (SNI).
    pub fn name(&self) -> Option<String> {
        self.accepted.client_hello().server_name().map(|name| crate::names::normal(name).into_owned())
    }

    /// Chooses the answer to the client.
    ///
    /// # Errors
    /// There is no certificate. The client got an alert.
    pub fn choose(self, endpoint: &Endpoint) -> Result<(Hello, CertificateChoice), Failed> {
        match self.chosen(endpoint) {
            Ok(choice) => Ok((self, choice)),
            Err(refusal) => Err(self.refuse(refusal)),
        }
    }

    fn chosen(&self, endpoint: &Endpoint) -> Result<CertificateChoice, HandshakeRefusal> {
        let hello = self.accepted.client_hello();
        let name = hello.server_name();
        let challenged = hello.alpn().is_some_and(|mut protocols| protocols.any(|protocol| protocol == ACME));
        if challenged {
            let key = name.and_then(|name| endpoint.shared().challenge(name));
            return key.map(CertificateChoice::Challenge).ok_or(HandshakeRefusal::UnknownName);
        }
        let address = self.socket.local_addr().ok().map(|address| address.ip());
        let wanted = Wanted { name, address, signatures: hello.signature_schemes() };
        if let Some(found) = endpoint.find(wanted) {
            return Ok(CertificateChoice::Certificate(found));
        }
        let hooks = endpoint.shared().hooks();
        if let (Some(name), false) = (name, hooks.is_empty()) {
            return Ok(CertificateChoice::OnDemand(crate::names::normal(name).into_owned(), hooks));
        }
        self.by_default(endpoint)
    }

    /// Returns the default certificate, for a client whose request matches none.
    ///
    /// # Errors
    /// There is no default.
    fn by_default(&self, endpoint: &Endpoint) -> Result<CertificateChoice, HandshakeRefusal> {
        let hello = self.accepted.client_hello();
        let name = hello.server_name();
        let wanted = Wanted { name, address: None, signatures: hello.signature_schemes() };
        let missing =
            if name.is_some() { HandshakeRefusal::UnknownName } else { HandshakeRefusal::NoCertificate };
        endpoint.default_for(wanted).map(CertificateChoice::Certificate).ok_or(missing)
    }

    /// Waits for the certificate that `hooks` create for `name` and the client at `client`, or takes the default.
    ///
    /// # Errors
    /// There is neither. The client got an alert.
    pub async fn on_demand(
        self,
        endpoint: &Endpoint,
        name: &str,
        client: Option<IpAddr>,
        hooks: &[Arc<dyn OnDemandHook>],
    ) -> Result<(Hello, CertificateChoice), Failed> {
        for hook in hooks {
            if let Some(certificate) = hook.certificate(name.to_owned(), client).await {
                return Ok((self, CertificateChoice::Certificate(certificate)));
            }
        }
        match self.by_default(endpoint) {
            Ok(choice) => Ok((self, choice)),
            Err(refusal) => Err(self.refuse(refusal)),
        }
    }

    /// Sends the alert unrecognized_name (RFC 6066 section 3): there is no certificate.
    pub fn refuse(self, refusal: HandshakeRefusal) -> Failed {
        const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];
        let name = self.name();
        // An error is ignored, because the connection ends anyway.
        let _ = Wire(&self.socket).write(&ALERT);
        Failed { refusal, remains: Some(Remains::Socket(self.socket)), name }
    }
}

/// Reads the available bytes. Returns the ClientHello once it is complete.
fn receive(
    socket: &TcpStream,
    acceptor: &mut Acceptor,
    begun: &mut bool,
) -> Result<Option<Accepted>, HandshakeRefusal> {
    let mut chunk = [0; CHUNK];
    let read = match Transport::try_read(socket, &mut chunk) {
        Ok(0) => return Err(HandshakeRefusal::Closed),
        Ok(n) => &chunk[..n],
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
        Err(_) => return Err(HandshakeRefusal::Closed),
    };
    if !*begun && read[0] != HANDSHAKE {
        return Err(if is_http(read) { HandshakeRefusal::PlainHttp } else { HandshakeRefusal::NotTls });
    }
    *begun = true;
    let mut rest = read;
    while !rest.is_empty() {
        if acceptor.read_tls(&mut rest as &mut dyn Read).map_or(true, |n| n == 0) {
            return Err(HandshakeRefusal::Malformed);
        }
    }
    match acceptor.accept() {
        Ok(accepted) => Ok(accepted),
        Err((error, mut alert)) => {
            let _ = alert.write_all(&mut Wire(socket));
            Err(HandshakeRefusal::of(&error))
        }
    }
}

/// Whether the bytes begin like an HTTP request: a method in capital letters (all registered ones are) and a
/// blank. An incomplete method counts.
fn is_http(bytes: &[u8]) -> bool {
    let letters = bytes.iter().take_while(|byte| byte.is_ascii_uppercase() || **byte == b'-').count();
    (1..=24).contains(&letters) && bytes.get(letters).is_none_or(|byte| *byte == b' ')
}

/// A socket for alerts. Writes as much as fits.
pub(crate) struct Wire<'a>(pub(crate) &'a TcpStream);

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_from_other_bytes() {
        for text in [&b"GET / HTTP/1.1\r\n"[..], b"G", b"VERSION-CONTROL /", b"PRI * HTTP/2.0"] {
            assert!(is_http(text), "{text:?}");
        }
        for text in [&b"SSH-2.0-OpenSSH"[..], b"\x80\x2e\x01", b"get / HTTP/1.1", b"GET\0", b" "] {
            assert!(!is_http(text), "{text:?}");
        }
    }
}
