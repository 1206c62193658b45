//! Client certificates: their authorities, and the contents that apps see.

use crate::pem;
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use settings::Verify;
use std::sync::Arc;
use std::time::SystemTime;
use trust::Secret;

/// The contents of a client certificate, for apps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The subject (RFC 4514).
    pub subject: String,
    /// The common name of the subject.
    pub common_name: Option<String>,
    /// The issuer (RFC 4514).
    pub issuer: String,
    /// In hexadecimal digits.
    pub serial: String,
    /// SHA-256 of the DER form, in hexadecimal digits.
    pub fingerprint: String,
    pub not_after: SystemTime,
    pub not_before: SystemTime,
    pub der: Vec<u8>,
}

impl ClientCertificate {
    pub fn pem(&self) -> String {
        pem::encode(&self.der)
    }

    /// Reads a certificate that the handshake has verified.
    pub(crate) fn read(der: &[u8]) -> Option<ClientCertificate> {
        let facts = crate::CertificateFacts::read(der, 1).ok()?;
        Some(ClientCertificate {
            fingerprint: text::hex(&facts.fingerprint),
            subject: facts.subject,
            common_name: facts.common_name,
            issuer: facts.issuer,
            serial: facts.serial,
            not_before: facts.not_before,
            not_after: facts.not_after,
            der: der.to_vec(),
        })
    }
}

/// Returns the verifier of client certificates; `None` if clients are not asked for one.
///
/// # Errors
/// The file of authorities cannot be used.
pub(crate) fn verifier(
    verify: Verify,
    authorities: &Secret,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    if verify == Verify::Off {
        return Ok(None);
    }
    let mut roots = RootCertStore::empty();
    for certificate in pem::authorities(authorities)? {
        roots.add(certificate).map_err(|why| format!("a certificate in it is no authority: {why}"))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crate::provider());
    let builder = if verify == Verify::Optional { builder.allow_unauthenticated() } else { builder };
    builder.build().map(Some).map_err(|why| why.to_string())
}
