//! The TLS parameters of an address, and its choice of certificates.
//!
//! Contract:
//! 1. Changed rules result in a new endpoint; connections keep the one that they began with.
//! 2. The certificate is chosen before the configuration is used, so that the choice can wait (on demand).

use crate::certificates::Wanted;
use crate::client::verifier;
use crate::provider::{chacha_first, provider};
use crate::{Certificate, Certificates, TicketSecret, Tickets};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ServerConfig, SupportedProtocolVersion};
use settings::{TlsVersion, Verify};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use trust::Secret;

/// The ALPN protocol of TLS-ALPN-01 validation (RFC 8737 section 6.2).
pub(crate) const ACME: &[u8] = b"acme-tls/1";

/// The announced protocols (ALPN, RFC 7301), best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpn {
    Http1,
    /// HTTP/2, then HTTP/1.1.
    Http2AndHttp1,
}

/// The TLS rules of an address.
#[derive(Clone, Debug)]
pub struct EndpointRules {
    pub min_version: TlsVersion,
    pub alpn: Alpn,
    /// Whether clients are asked for a certificate.
    pub verify: Verify,
    /// The authorities of client certificates as PEM; empty if clients are not asked.
    pub authorities: Secret,
    /// Whether clients that request an unknown name are refused even if there is a default certificate.
    pub strict_names: bool,
}

impl Default for EndpointRules {
    fn default() -> EndpointRules {
        EndpointRules {
            min_version: TlsVersion::V1_2,
            alpn: Alpn::Http1,
            verify: Verify::Off,
            authorities: Secret::default(),
            strict_names: false,
        }
    }
}

pub struct Endpoint {
    /// Certificates of this address only. They take precedence.
    own: Option<Arc<Certificates>>,
    shared: Arc<Certificates>,
    strict_names: bool,
    asks_clients: bool,
    /// The configuration for most clients.
    usual: ServerConfig,
    /// The configuration for clients that prefer ChaCha20.
    chacha: ServerConfig,
    /// The configuration for TLS-ALPN-01 validation, which asks for no client certificate.
    challenge: ServerConfig,
    verifier: Arc<dyn ClientCertVerifier>,
    /// Configurations by certificate, shared by all connections with the same certificate.
    made: RwLock<HashMap<(usize, bool), Arc<ServerConfig>>>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("own", &self.own).field("asks_clients", &self.asks_clients).finish()
    }
}

/// The largest number of cached configurations. There can be many certificates on demand.
const KEPT: usize = 1024;

impl Endpoint {
    /// Creates an endpoint with these rules. `own`: the certificates of this address only.
    ///
    /// # Errors
    /// The authorities of client certificates cannot be used. The text says why.
    pub fn new(
        rules: &EndpointRules,
        own: Option<Arc<Certificates>>,
        shared: Arc<Certificates>,
        secret: &TicketSecret,
    ) -> Result<Endpoint, String> {
        let verifier = verifier(rules.verify, &rules.authorities)?;
        let verifier = verifier.unwrap_or_else(WebPkiClientVerifier::no_client_auth);
        // A resumed session skips the client certificate, so tickets are valid only under the same rules.
        let mut context = vec![rules.verify as u8];
        let digest =
            rules.authorities.parse(|text| Ok(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text)));
        context.extend(digest.iter().flat_map(|digest| digest.as_ref()));
        let tickets = Arc::new(Tickets::new(secret, &context));
        let versions: &[&SupportedProtocolVersion] = match rules.min_version {
            TlsVersion::V1_2 => &[&TLS13, &TLS12],
            TlsVersion::V1_3 => &[&TLS13],
        };
        let alpn: &[&[u8]] = match rules.alpn {
            Alpn::Http1 => &[b"http/1.1"],
            Alpn::Http2AndHttp1 => &[b"h2", b"http/1.1"],
        };
        let configured = |provider, verifier, alpn: &[&[u8]]| {
            let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions);
            let builder = builder.map_err(|why| why.to_string())?;
            let mut config =
                builder.with_client_cert_verifier(verifier).with_cert_resolver(Arc::new(Chosen(None)));
            config.ignore_client_order = true;
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
            Ok::<ServerConfig, String>(config)
        };
        let with_tickets = |provider| {
            let mut config = configured(provider, verifier.clone(), alpn)?;
            config.ticketer = tickets.clone();
            Ok::<ServerConfig, String>(config)
        };
        let nobody = WebPkiClientVerifier::no_client_auth();
        Ok(Endpoint {
            own,
            shared,
            strict_names: rules.strict_names,
            asks_clients: rules.verify != Verify::Off,
            usual: with_tickets(provider())?,
            chacha: with_tickets(chacha_first())?,
            challenge: configured(provider(), nobody, &[ACME])?,
            verifier,
            made: RwLock::default(),
        })
    }

    /// Whether clients are asked for a certificate.
    pub fn asks_clients(&self) -> bool {
        self.asks_clients
    }

    /// Returns the verifier of client certificates.
    pub(crate) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        self.verifier.clone()
    }

    /// Returns the encryption of session tickets.
    pub(crate) fn ticketer(&self) -> Arc<dyn ProducesTickets> {
        self.usual.ticketer.clone()
    }

    /// Returns the certificates of all addresses.
    pub(crate) fn shared(&self) -> &Arc<Certificates> {
        &self.shared
    }

    /// Returns a certificate that matches a client's request.
    pub(crate) fn find(&self, wanted: Wanted<'_>) -> Option<Arc<Certificate>> {
        let own = self.own.as_ref().and_then(|own| own.find(wanted));
        own.or_else(|| self.shared.find(wanted))
    }

    /// Returns the certificate for clients whose request matches none.
    pub(crate) fn default_for(&self, wanted: Wanted<'_>) -> Option<Arc<Certificate>> {
        if self.strict_names && wanted.name.is_some() {
            return None;
        }
        let own = self.own.as_ref().and_then(|own| own.default_for(wanted));
        own.or_else(|| self.shared.default_for(wanted))
    }

    /// Returns the configuration for a client with these suites, and for `key`.
    pub(crate) fn config(&self, key: Arc<CertifiedKey>, suites: &[CipherSuite]) -> Arc<ServerConfig> {
        let chacha = prefers_chacha(suites);
        // The cached configuration holds the key, so its address cannot be reused for another key.
        let place = (Arc::as_ptr(&key) as usize, chacha);
        if let Some(made) = self.made.read().unwrap_or_else(PoisonError::into_inner).get(&place) {
            return made.clone();
        }
        let mut config = if chacha { self.chacha.clone() } else { self.usual.clone() };
        config.cert_resolver = Arc::new(Chosen(Some(key)));
        let config = Arc::new(config);
        let mut made = self.made.write().unwrap_or_else(PoisonError::into_inner);
        if made.len() >= KEPT {
            made.clear();
        }
        made.insert(place, config.clone());
        config
    }

    /// Returns the configuration that answers a TLS-ALPN-01 challenge (RFC 8737) with `key`.
    pub(crate) fn challenge_config(&self, key: Arc<CertifiedKey>) -> Arc<ServerConfig> {
        let mut config = self.challenge.clone();
        config.cert_resolver = Arc::new(Chosen(Some(key)));
        Arc::new(config)
    }
}

/// Whether the first suite is ChaCha20, which means that the client has no AES instructions. Reserved numbers
/// (GREASE, RFC 8701) are skipped.
fn prefers_chacha(suites: &[CipherSuite]) -> bool {
    suites.iter().find_map(|suite| suite.as_str()).is_some_and(|name| name.contains("CHACHA20"))
}

/// The certificate that was chosen before.
#[derive(Debug)]
struct Chosen(Option<Arc<CertifiedKey>>);

impl ResolvesServerCert for Chosen {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.clone()
    }
}
