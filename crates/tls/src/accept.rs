//! The handshake after the ClientHello, and what it has settled.

use crate::client::ClientCertificate;
use crate::hello::{Choice, Hello, Wire};
use crate::{Endpoint, Refusal};
use net::{Tls, Transport};
use rustls::{CipherSuite, HandshakeKind, ProtocolVersion, ServerConnection};
use std::io::ErrorKind;
use std::time::{Duration, SystemTime};
use tokio::net::TcpStream;

/// A handshake that came to nothing.
pub struct Failed {
    /// Why.
    pub refusal: Refusal,
    /// The connection, if it is still there; see [`Failed::linger`].
    pub remains: Option<Remains>,
    /// The host that the client asked for, if it came that far.
    pub name: Option<String>,
}

/// What remains of a connection whose handshake has failed.
pub enum Remains {
    /// Nothing has been agreed on.
    Socket(TcpStream),
    /// It failed in the middle.
    Stream(Box<Tls>),
}

impl Remains {
    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Remains::Socket(socket) => socket,
            Remains::Stream(stream) => stream.socket(),
        }
    }
}

/// A connection whose handshake is complete.
pub struct Established {
    /// The stream.
    pub stream: Tls,
    /// What was settled.
    pub session: Session,
}

/// What a handshake has settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// TLS 1.2 or 1.3.
    pub version: Version,
    /// The cipher suite as IANA names it.
    pub cipher: &'static str,
    /// Whether HTTP/2 was chosen.
    pub http2: bool,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// The host that the client asked for, in lower case.
    pub name: Option<String>,
    /// The client's certificate, which has been verified.
    pub client: Option<Box<ClientCertificate>>,
}

/// A version of TLS that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// TLS 1.2.
    V1_2,
    /// TLS 1.3.
    V1_3,
}

impl Version {
    /// Its name, as OpenSSL has it.
    pub fn name(self) -> &'static str {
        match self {
            Version::V1_2 => "TLSv1.2",
            Version::V1_3 => "TLSv1.3",
        }
    }
}

impl Hello {
    /// Completes the handshake. `None` when it was a challenge (TLS-ALPN-01): nothing follows it.
    ///
    /// # Errors
    /// There is nothing in common, a client certificate does not verify, or the client gave up. It has been told.
    pub async fn answer(self, endpoint: &Endpoint, choice: &Choice) -> Result<Option<Established>, Failed> {
        let name = self.name();
        let config = match choice {
            Choice::Certificate(certificate) => {
                let suites = self.accepted.client_hello().cipher_suites().to_vec();
                endpoint.config(certificate.certified_key().clone(), &suites)
            }
            Choice::Challenge(key) => endpoint.challenge_config(key.clone()),
            Choice::OnDemand(..) => return Err(self.refuse(Refusal::NoCertificate)),
        };
        let socket = self.socket;
        let session = match self.accepted.into_connection(config) {
            Ok(session) => session,
            Err((error, mut alert)) => {
                let _ = alert.write_all(&mut Wire(&socket));
                let remains = Some(Remains::Socket(socket));
                return Err(Failed { refusal: Refusal::of(&error), remains, name });
            }
        };
        let stream = match Tls::accept_session(session, socket).await {
            Ok(stream) => stream,
            Err((error, stream)) => {
                let remains = Some(Remains::Stream(Box::new(stream)));
                return Err(Failed { refusal: Refusal::of_io(&error), remains, name });
            }
        };
        if matches!(choice, Choice::Challenge(_)) {
            stream.end_writing();
            return Ok(None);
        }
        let session = stream.server_session(Session::of).flatten();
        match session {
            Some(session) if session.is_current() => Ok(Some(Established { stream, session })),
            _ => {
                stream.end_writing();
                Err(Failed { refusal: Refusal::ClientCertificate, remains: None, name })
            }
        }
    }
}

impl Session {
    fn of(session: &ServerConnection) -> Option<Session> {
        let version = match session.protocol_version()? {
            ProtocolVersion::TLSv1_3 => Version::V1_3,
            _ => Version::V1_2,
        };
        let client = match session.peer_certificates().and_then(<[_]>::first) {
            Some(der) => Some(Box::new(ClientCertificate::read(der)?)),
            None => None,
        };
        Some(Session {
            version,
            cipher: session.negotiated_cipher_suite().map_or("", |suite| iana(suite.suite())),
            http2: session.alpn_protocol() == Some(b"h2"),
            resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
            name: session.server_name().map(|name| crate::names::normal(name).into_owned()),
            client,
        })
    }

    /// Whether the client's certificate has not expired: that of a resumed session was verified earlier.
    pub(crate) fn is_current(&self) -> bool {
        self.client.as_ref().is_none_or(|client| SystemTime::now() <= client.not_after)
    }
}

/// The suite as IANA names it: TLS 1.3's have a different prefix in rustls.
pub(crate) fn iana(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or(""),
    }
}

impl Failed {
    /// Closes the connection so that the client can read what it was told: not before it has closed its side, for at most
    /// two seconds and 64 KiB.
    pub async fn linger(self) {
        let Some(remains) = self.remains else { return };
        let socket = remains.socket();
        Transport::end_writing(socket);
        let read = async {
            let (mut total, mut chunk) = (0, [0; 1024]);
            while total < 64 << 10 && socket.readable().await.is_ok() {
                match socket.try_read(&mut chunk) {
                    Ok(0) => return,
                    Ok(n) => total += n,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), read).await;
    }
}
