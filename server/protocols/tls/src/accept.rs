//! Completes the handshake after the ClientHello, and describes the result.

use crate::client::ClientCertificate;
use crate::hello::{CertificateChoice, Hello, Wire};
use crate::{Endpoint, Failed, HandshakeRefusal, Remains};
use net::{TlsStream, Transport};
use rustls::{CipherSuite, HandshakeKind, ProtocolVersion, ServerConnection};
use std::time::SystemTime;

/// A connection whose handshake is complete.
pub struct Established {
    pub stream: TlsStream,
    pub session: TlsSession,
}

/// The parameters that a handshake has negotiated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSession {
    pub version: NegotiatedVersion,
    /// The cipher suite by its IANA name.
    pub cipher: &'static str,
    /// Whether HTTP/2 was negotiated.
    pub http2: bool,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// The host that the client requested, in lower case.
    pub name: Option<String>,
    /// The client's verified certificate.
    pub client: Option<Box<ClientCertificate>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NegotiatedVersion {
    V1_2,
    V1_3,
}

impl NegotiatedVersion {
    /// Returns the name that OpenSSL uses.
    pub fn name(self) -> &'static str {
        match self {
            NegotiatedVersion::V1_2 => "TLSv1.2",
            NegotiatedVersion::V1_3 => "TLSv1.3",
        }
    }
}

impl Hello {
    /// Completes the handshake. Returns `None` after a TLS-ALPN-01 challenge, on which nothing follows.
    ///
    /// # Errors
    /// No common parameters, an invalid client certificate, or the client gave up. The client got an alert.
    pub async fn answer(
        self,
        endpoint: &Endpoint,
        choice: &CertificateChoice,
    ) -> Result<Option<Established>, Failed> {
        let name = self.name();
        let config = match choice {
            CertificateChoice::Certificate(certificate) => {
                let suites = self.accepted.client_hello().cipher_suites().to_vec();
                endpoint.config(certificate.certified_key().clone(), &suites)
            }
            CertificateChoice::Challenge(key) => endpoint.challenge_config(key.clone()),
            CertificateChoice::OnDemand(..) => return Err(self.refuse(HandshakeRefusal::NoCertificate)),
        };
        let socket = self.socket;
        let session = match self.accepted.into_connection(config) {
            Ok(session) => session,
            Err((error, mut alert)) => {
                let _ = alert.write_all(&mut Wire(&socket));
                let remains = Some(Remains::Socket(socket));
                return Err(Failed { refusal: HandshakeRefusal::of(&error), remains, name });
            }
        };
        let stream = match TlsStream::accept_session(session, socket).await {
            Ok(stream) => stream,
            Err((error, stream)) => {
                let remains = Some(Remains::Stream(Box::new(stream)));
                return Err(Failed { refusal: HandshakeRefusal::of_io(&error), remains, name });
            }
        };
        if matches!(choice, CertificateChoice::Challenge(_)) {
            stream.end_writing();
            return Ok(None);
        }
        let session = stream.server_session(TlsSession::of).flatten();
        match session {
            Some(session) if session.is_current() => Ok(Some(Established { stream, session })),
            _ => {
                stream.end_writing();
                Err(Failed { refusal: HandshakeRefusal::ClientCertificate, remains: None, name })
            }
        }
    }
}

impl TlsSession {
    fn of(session: &ServerConnection) -> Option<TlsSession> {
        let version = match session.protocol_version()? {
            ProtocolVersion::TLSv1_3 => NegotiatedVersion::V1_3,
            _ => NegotiatedVersion::V1_2,
        };
        let client = match session.peer_certificates().and_then(<[_]>::first) {
            Some(der) => Some(Box::new(ClientCertificate::read(der)?)),
            None => None,
        };
        Some(TlsSession {
            version,
            cipher: session.negotiated_cipher_suite().map_or("", |suite| iana(suite.suite())),
            http2: session.alpn_protocol() == Some(b"h2"),
            resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
            name: session.server_name().map(|name| crate::names::normal(name).into_owned()),
            client,
        })
    }

    /// Whether the client's certificate has not expired. In a resumed session, it was verified earlier.
    pub(crate) fn is_current(&self) -> bool {
        self.client.as_ref().is_none_or(|client| SystemTime::now() <= client.not_after)
    }
}

/// Returns the IANA name of a suite. For TLS 1.3, rustls uses another prefix.
pub(crate) fn iana(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or(""),
    }
}
