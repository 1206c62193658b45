//! Verifies a server's certificate.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use std::sync::Arc;

/// Verifies chains as rustls does, and also trusts the certificates of the given file themselves.
#[derive(Debug)]
pub(crate) struct Verifier {
    /// Trusted as server certificates, whatever their signature.
    pub(crate) named: Vec<CertificateDer<'static>>,
    /// `None` trusts every certificate.
    pub(crate) chains: Option<Arc<WebPkiServerVerifier>>,
    pub(crate) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chains) = &self.chains else { return Ok(ServerCertVerified::assertion()) };
        if !self.named.iter().any(|named| named == certificate) {
            return chains.verify_server_cert(certificate, intermediates, name, ocsp, now);
        }
        // Verify the chain first: only that checks the validity period. Leave out the intermediates: one of
        // them might have expired, and a certificate of the file does not need them.
        match chains.verify_server_cert(certificate, &[], name, ocsp, now) {
            Err(error) if !is_outside_validity(&error) => {
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
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn is_outside_validity(error: &Error) -> bool {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    let Error::InvalidCertificate(why) = error else { return false };
    matches!(why, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
}
