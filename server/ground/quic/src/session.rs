//! TLS for QUIC (RFC 9001) by rustls, for both sides.
//!
//! Why not quinn's own: it does not tell the cipher suite, whether the session was resumed, or why a
//! certificate was rejected. The server's Initial and Retry packets stay quinn's.
//!
//! Contract: QUIC version 1, no 0-RTT. `Connection::handshake_data` is a [`HandshakeData`].

use aws_lc_rs::aead;
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::crypto::{
    ClientConfig, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig, Session,
    UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::quic::{self, KeyChange, Secrets, Suite, Version};
use rustls::{CipherSuite, HandshakeKind};
use std::any::Any;
use std::io::Cursor;
use std::sync::{Arc, OnceLock};

/// The supported versions of QUIC.
pub(crate) const VERSIONS: [u32; 1] = [1];

/// The result of a handshake. Complete once the connection is established.
#[derive(Debug, Clone)]
pub struct HandshakeData {
    /// The protocol chosen by ALPN.
    pub protocol: Option<Vec<u8>>,
    /// On servers: the name that the client has requested.
    pub server_name: Option<String>,
    pub suite: Option<CipherSuite>,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
}

/// Receives the reason when TLS fails on this side.
pub type TlsError = Arc<OnceLock<rustls::Error>>;

/// Returns the client's configuration for one connection. `crypto` names its protocols (ALPN).
///
/// # Errors
/// `crypto` has no AES-128-GCM, which protects the first packets (RFC 9001 section 5.2).
pub fn client_config(crypto: Arc<rustls::ClientConfig>) -> Result<(quinn::ClientConfig, TlsError), String> {
    let failure = TlsError::default();
    let initial = initial_suite(crypto.crypto_provider())?;
    let client = Client { crypto, initial, failure: failure.clone() };
    Ok((quinn::ClientConfig::new(Arc::new(client)), failure))
}

struct Client {
    crypto: Arc<rustls::ClientConfig>,
    initial: Suite,
    failure: TlsError,
}

impl ClientConfig for Client {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        parameters: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let invalid = || ConnectError::InvalidServerName(server_name.to_owned());
        if !VERSIONS.contains(&version) {
            return Err(ConnectError::UnsupportedVersion);
        }
        let name = ServerName::try_from(server_name).map_err(|_| invalid())?.to_owned();
        let tls = quic::ClientConnection::new(self.crypto.clone(), Version::V1, name, encoded(parameters));
        let tls = tls.map_err(|_| ConnectError::UnsupportedVersion)?;
        Ok(TlsSession::boxed(quic::Connection::Client(tls), self.initial, self.failure.clone()))
    }
}

pub(crate) struct Server {
    crypto: Arc<rustls::ServerConfig>,
    initial: Suite,
    packets: QuicServerConfig,
}

impl Server {
    pub(crate) fn new(crypto: Arc<rustls::ServerConfig>) -> Result<Server, String> {
        let initial = initial_suite(crypto.crypto_provider())?;
        let packets =
            QuicServerConfig::with_initial(crypto.clone(), initial).map_err(|why| why.to_string())?;
        // Checks the requirements of a session now rather than with the first client.
        quic::ServerConnection::new(crypto.clone(), Version::V1, Vec::new())
            .map_err(|why| why.to_string())?;
        Ok(Server { crypto, initial, packets })
    }
}

impl ServerConfig for Server {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        match VERSIONS.contains(&version) {
            true => self.packets.initial_keys(version, id),
            false => Err(UnsupportedVersion),
        }
    }

    fn retry_tag(&self, version: u32, id: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.packets.retry_tag(version, id, packet)
    }

    fn start_session(self: Arc<Self>, _version: u32, parameters: &TransportParameters) -> Box<dyn Session> {
        let tls = quic::ServerConnection::new(self.crypto.clone(), Version::V1, encoded(parameters));
        let tls = tls.expect("the configuration has been tried");
        TlsSession::boxed(quic::Connection::Server(tls), self.initial, TlsError::default())
    }
}

/// AES-128-GCM protects the first packets, whatever suite is negotiated later.
fn initial_suite(provider: &rustls::crypto::CryptoProvider) -> Result<Suite, String> {
    let wanted = CipherSuite::TLS13_AES_128_GCM_SHA256;
    let suite = provider.cipher_suites.iter().filter(|suite| suite.suite() == wanted);
    let suite = suite.filter_map(|suite| suite.tls13()).find_map(|suite| suite.quic_suite());
    suite.ok_or_else(|| "QUIC needs TLS_AES_128_GCM_SHA256".to_owned())
}

fn encoded(parameters: &TransportParameters) -> Vec<u8> {
    let mut bytes = Vec::new();
    parameters.write(&mut bytes);
    bytes
}

struct TlsSession {
    tls: quic::Connection,
    initial: Suite,
    /// The keys of later phases are derived from these.
    secrets: Option<Secrets>,
    /// Whether quinn knows that the first parameters have arrived.
    told: bool,
    failure: TlsError,
}

impl TlsSession {
    fn boxed(tls: quic::Connection, initial: Suite, failure: TlsError) -> Box<dyn Session> {
        Box::new(TlsSession { tls, initial, secrets: None, told: false, failure })
    }

    fn server_name(&self) -> Option<&str> {
        match &self.tls {
            quic::Connection::Client(_) => None,
            quic::Connection::Server(tls) => tls.server_name(),
        }
    }

    fn side(&self) -> Side {
        match self.tls {
            quic::Connection::Client(_) => Side::Client,
            quic::Connection::Server(_) => Side::Server,
        }
    }
}

impl Session for TlsSession {
    fn initial_keys(&self, id: &ConnectionId, side: Side) -> Keys {
        boxed(self.initial.keys(id, side.into(), Version::V1))
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.told.then(|| -> Box<dyn Any> {
            Box::new(HandshakeData {
                protocol: self.tls.alpn_protocol().map(<[u8]>::to_vec),
                server_name: self.server_name().map(str::to_owned),
                suite: self.tls.negotiated_cipher_suite().map(|suite| suite.suite()),
                resumed: self.tls.handshake_kind() == Some(HandshakeKind::Resumed),
            })
        })
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        let chain = self.tls.peer_certificates()?;
        let chain: Vec<CertificateDer<'static>> = chain.iter().map(|one| one.clone().into_owned()).collect();
        Some(Box::new(chain))
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        if let Err(error) = self.tls.read_hs(bytes) {
            let code = match self.tls.alert() {
                Some(alert) => TransportErrorCode::crypto(alert.into()),
                None => TransportErrorCode::PROTOCOL_VIOLATION,
            };
            let reason = error.to_string();
            // Only the first error is kept.
            let _ = self.failure.set(error);
            return Err(TransportError { code, frame: None, reason });
        }
        let settled =
            self.tls.alpn_protocol().is_some() || self.server_name().is_some() || !self.tls.is_handshaking();
        Ok(settled && !std::mem::replace(&mut self.told, settled))
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(bytes) = self.tls.quic_transport_parameters() else { return Ok(None) };
        Ok(Some(TransportParameters::read(self.side(), &mut Cursor::new(bytes))?))
    }

    fn write_handshake(&mut self, to: &mut Vec<u8>) -> Option<Keys> {
        Some(boxed(match self.tls.write_hs(to)? {
            KeyChange::Handshake { keys } => keys,
            KeyChange::OneRtt { keys, next } => {
                self.secrets = Some(next);
                keys
            }
        }))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.secrets.as_mut()?.next_packet_keys();
        Some(KeyPair { local: Box::new(keys.local), remote: Box::new(keys.remote) })
    }

    fn is_valid_retry(&self, original: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        let Some(at) = payload.len().checked_sub(aead::AES_128_GCM.tag_len()) else { return false };
        let (text, tag) = payload.split_at(at);
        let pseudo = [&[original.len() as u8], &original[..], header, text].concat();
        retry_tag(&pseudo).is_some_and(|expected| expected.as_ref() == tag)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        let exported = self.tls.export_keying_material(output, label, Some(context));
        exported.map(|_| ()).map_err(|_| ExportKeyingMaterialError)
    }
}

/// Returns the Retry Integrity Tag of a pseudo-packet, with the public key and nonce (RFC 9001 section 5.8).
fn retry_tag(pseudo: &[u8]) -> Option<aead::Tag> {
    const KEY: u128 = 0xbe0c_690b_9f66_575a_1d76_6b54_e368_c84e;
    const NONCE: u128 = 0x4615_99d3_5d63_2bf2_2398_25bb;
    let key = aead::LessSafeKey::new(aead::UnboundKey::new(&aead::AES_128_GCM, &KEY.to_be_bytes()).ok()?);
    let nonce = aead::Nonce::try_assume_unique_for_key(&NONCE.to_be_bytes()[4..]).ok()?;
    key.seal_in_place_separate_tag(nonce, aead::Aad::from(pseudo), &mut []).ok()
}

fn boxed(keys: quic::Keys) -> Keys {
    Keys {
        header: KeyPair { local: Box::new(keys.local.header), remote: Box::new(keys.remote.header) },
        packet: KeyPair { local: Box::new(keys.local.packet), remote: Box::new(keys.remote.packet) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Retry packet of RFC 9001 appendix A.4.
    #[test]
    fn the_retry_of_the_standard() {
        let original = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
        let packet = [
            0xff, 0x00, 0x00, 0x00, 0x01, 0x00, 0x08, 0xf0, 0x67, 0xa5, 0x50, 0x2a, 0x42, 0x62, 0xb5, 0x74,
            0x6f, 0x6b, 0x65, 0x6e,
        ];
        let tag =
            [0x04, 0xa2, 0x65, 0xba, 0x2e, 0xff, 0x4d, 0x82, 0x90, 0x58, 0xfb, 0x3f, 0x0f, 0x24, 0x96, 0xba];
        let pseudo = [&[8][..], &original, &packet].concat();
        assert_eq!(retry_tag(&pseudo).unwrap().as_ref(), tag);
    }
}
