//! TLS for QUIC (RFC 9001): the same certificates and tickets, only TLS 1.3.
//!
//! Unlike over TCP, the certificate is chosen during the handshake, so no client waits for a certificate on demand.

use crate::accept::{NegotiatedVersion, TlsSession, iana};
use crate::certificates::Wanted;
use crate::client::ClientCertificate;
use crate::endpoint::Endpoint;
use crate::provider::provider;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{CipherSuite, ServerConfig};
use std::sync::Arc;

/// The announced protocol (RFC 9114 section 3.1).
const H3: &[u8] = b"h3";

impl Endpoint {
    /// Returns the configuration for QUIC. It stays valid when certificates change.
    ///
    /// # Errors
    /// The cryptography provider has no TLS 1.3.
    pub fn quic(self: &Arc<Endpoint>) -> Result<Arc<ServerConfig>, String> {
        let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
        let builder = builder.map_err(|why| why.to_string())?;
        let resolver = Arc::new(ByName(self.clone()));
        let mut config = builder.with_client_cert_verifier(self.verifier()).with_cert_resolver(resolver);
        config.ignore_client_order = true;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = self.ticketer();
        config.alpn_protocols = vec![H3.to_vec()];
        Ok(Arc::new(config))
    }
}

impl TlsSession {
    /// Returns the result of a QUIC handshake; `None` if the client's certificate cannot be read or has expired.
    pub fn over_quic(
        name: Option<&str>,
        client: Option<&[u8]>,
        suite: Option<CipherSuite>,
        resumed: bool,
    ) -> Option<TlsSession> {
        let client = client.map(ClientCertificate::read).map(|read| read.map(Box::new));
        let client = match client {
            Some(None) => return None,
            Some(read) => read,
            None => None,
        };
        let session = TlsSession {
            version: NegotiatedVersion::V1_3,
            cipher: suite.map_or("", iana),
            http2: false,
            resumed,
            name: name.map(|name| crate::names::normal(name).into_owned()),
            client,
        };
        session.is_current().then_some(session)
    }
}

/// Finds an address's certificate by the name that a client requests.
#[derive(Debug)]
struct ByName(Arc<Endpoint>);

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let wanted =
            Wanted { name: hello.server_name(), address: None, signatures: hello.signature_schemes() };
        let found = self.0.find(wanted).or_else(|| self.0.default_for(wanted))?;
        Some(found.certified_key().clone())
    }
}
