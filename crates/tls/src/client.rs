//! Certificates of clients: who may issue them, and what apps learn about them.

use crate::certificate::hex;
use crate::pem;
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use settings::Verify;
use std::sync::Arc;
use std::time::SystemTime;
use trust::Secret;

/// What the certificate of a client says, as it is given to apps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Who it was issued to (RFC 4514).
    pub subject: String,
    /// The common name of the subject.
    pub common_name: Option<String>,
    /// Who issued it.
    pub issuer: String,
    /// Hexadecimal digits.
    pub serial: String,
    /// SHA-256 of its DER form, hexadecimal digits.
    pub fingerprint: String,
    /// Until when it is valid.
    pub not_after: SystemTime,
    /// From when.
    pub not_before: SystemTime,
    /// The certificate itself.
    pub der: Vec<u8>,
}

impl ClientCertificate {
    /// The certificate in PEM form.
    pub fn pem(&self) -> String {
        pem::encode(&self.der)
    }

    /// Reads one that the handshake has verified.
    pub(crate) fn read(der: &[u8]) -> Option<ClientCertificate> {
        let facts = crate::Facts::read(der, 1).ok()?;
        Some(ClientCertificate {
            fingerprint: hex(&facts.fingerprint),
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

/// Who verifies the certificates of clients; `None` when they are not asked.
///
/// # Errors
/// The collection of authorities cannot be used.
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
