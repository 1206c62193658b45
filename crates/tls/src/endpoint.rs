//! What an address that speaks TLS may negotiate, and with which certificates.
//!
//! Contract:
//! 1. An endpoint is made anew when its rules change; connections keep the one they began with.
//! 2. The certificate is chosen before the configuration is used, so that its choice may take time (on demand).

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

/// The protocols that are announced (ALPN, RFC 7301), best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpn {
    /// HTTP/1.1 alone.
    Http1,
    /// HTTP/2, then HTTP/1.1.
    Http2AndHttp1,
}

/// The rules of an address.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Oldest version.
    pub min_version: TlsVersion,
    /// What is announced.
    pub alpn: Alpn,
    /// Whether clients show a certificate.
    pub verify: Verify,
    /// PEM: the authorities of clients' certificates; empty where they are not asked.
    pub authorities: Secret,
    /// Whether clients that ask for an unknown name are refused although there is a default certificate.
    pub strict_names: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            min_version: TlsVersion::V1_2,
            alpn: Alpn::Http1,
            verify: Verify::Off,
            authorities: Secret::default(),
            strict_names: false,
        }
    }
}

/// An address that speaks TLS.
pub struct Endpoint {
    /// The certificates of this address alone, which come first.
    own: Option<Arc<Certificates>>,
    shared: Arc<Certificates>,
    strict_names: bool,
    asks_clients: bool,
    /// For most clients.
    usual: ServerConfig,
    /// For clients that prefer ChaCha20.
    chacha: ServerConfig,
    /// For those who validate the control of a name (TLS-ALPN-01): they have no certificate.
    challenge: ServerConfig,
    verifier: Arc<dyn ClientCertVerifier>,
    /// Configurations with their certificates: connections that are served with the same share one.
    made: RwLock<HashMap<(usize, bool), Arc<ServerConfig>>>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("own", &self.own).field("asks_clients", &self.asks_clients).finish()
    }
}

/// More configurations are not kept: certificates that are made on demand may be many.
const KEPT: usize = 1024;

impl Endpoint {
    /// An address with these rules. `own` are the certificates of this address alone.
    ///
    /// # Errors
    /// The authorities of clients' certificates cannot be used; the text says why.
    pub fn new(
        rules: &Rules,
        own: Option<Arc<Certificates>>,
        shared: Arc<Certificates>,
        secret: &TicketSecret,
    ) -> Result<Endpoint, String> {
        let verifier = verifier(rules.verify, &rules.authorities)?;
        let verifier = verifier.unwrap_or_else(WebPkiClientVerifier::no_client_auth);
        // Who was let in with a certificate is let in again without: only under the same rules.
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
            challenge: configured(provider(), nobody, &[crate::hello::ACME])?,
            verifier,
            made: RwLock::default(),
        })
    }

    /// Whether clients are asked for a certificate.
    pub fn asks_clients(&self) -> bool {
        self.asks_clients
    }

    /// Who verifies the certificates of clients.
    pub(crate) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        self.verifier.clone()
    }

    /// Who encrypts session tickets.
    pub(crate) fn ticketer(&self) -> Arc<dyn ProducesTickets> {
        self.usual.ticketer.clone()
    }

    /// The certificates of all addresses.
    pub(crate) fn shared(&self) -> &Arc<Certificates> {
        &self.shared
    }

    /// The certificate for what a client asks for.
    pub(crate) fn find(&self, wanted: Wanted<'_>) -> Option<Arc<Certificate>> {
        let own = self.own.as_ref().and_then(|own| own.find(wanted));
        own.or_else(|| self.shared.find(wanted))
    }

    /// The certificate for those who ask for nothing that there is.
    pub(crate) fn default_for(&self, wanted: Wanted<'_>) -> Option<Arc<Certificate>> {
        if self.strict_names && wanted.name.is_some() {
            return None;
        }
        let own = self.own.as_ref().and_then(|own| own.default_for(wanted));
        own.or_else(|| self.shared.default_for(wanted))
    }

    /// The configuration for a client that lists these suites and is served with `key`.
    pub(crate) fn config(&self, key: Arc<CertifiedKey>, suites: &[CipherSuite]) -> Arc<ServerConfig> {
        let chacha = prefers_chacha(suites);
        // A key in use is not freed, so that its address belongs to nothing else: the configuration keeps it.
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

    /// The configuration that answers a challenge of TLS-ALPN-01 (RFC 8737) with `key`.
    pub(crate) fn challenge_config(&self, key: Arc<CertifiedKey>) -> Arc<ServerConfig> {
        let mut config = self.challenge.clone();
        config.cert_resolver = Arc::new(Chosen(Some(key)));
        Arc::new(config)
    }
}

/// Whether the first suite is ChaCha20: the client has no AES in hardware. Suites whose numbers mean nothing (GREASE, RFC 8701)
/// do not count.
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
