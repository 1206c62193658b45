//! TLS to servers: whose certificates are believed. Sessions are never resumed, so that each connection costs a server what
//! that of a new visitor does.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::plan::{Protocol, Transport};

/// What all connections of a run agree on.
///
/// # Errors
/// Certificates cannot be read, or there are none to believe.
pub(crate) fn config(transport: &Transport) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let believed = match (&transport.tls.ca, transport.tls.insecure) {
        (Some(path), false) => read(path)?,
        _ => Vec::new(),
    };
    let chains = match transport.tls.insecure {
        true => None,
        false => {
            let roots = Arc::new(roots(&believed)?);
            let built = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
            Some(built.map_err(|error| format!("certificates cannot be verified: {error}"))?)
        }
    };
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be used: {error}"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier { believed, chains, provider }))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = match transport.protocol {
        Protocol::Http1 { .. } => vec![b"http/1.1".to_vec()],
        Protocol::Http2 { .. } => vec![b"h2".to_vec()],
    };
    Ok(Arc::new(config))
}

fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let unusable = |why: String| {
        format!("{}: {why}; a PEM file with at least one certificate was expected", path.display())
    };
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| unusable(error.to_string()))?;
    let certificates: Vec<_> =
        certificates.collect::<Result<_, _>>().map_err(|error| unusable(error.to_string()))?;
    match certificates.is_empty() {
        true => Err(unusable("no certificate in it".to_owned())),
        false => Ok(certificates),
    }
}

fn roots(believed: &[CertificateDer<'static>]) -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    roots.add_parsable_certificates(believed.iter().cloned());
    if roots.is_empty() {
        return Err("there are no certificates to verify https servers by: install ca-certificates, set SSL_CERT_FILE, name a \
                    file of certificates, or have every certificate believed"
            .to_owned());
    }
    Ok(roots)
}

/// Verifies a server's certificate.
///
/// Why not rustls' own verifier alone: it refuses a certificate that signs itself, as `openssl req -x509` makes it, even when
/// that very certificate was named.
#[derive(Debug)]
struct Verifier {
    /// Believed for their own names, without a chain.
    believed: Vec<CertificateDer<'static>>,
    /// `None` believes everything.
    chains: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chains) = &self.chains else { return Ok(ServerCertVerified::assertion()) };
        if self.believed.iter().any(|believed| believed == certificate) {
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        chains.verify_server_cert(certificate, others, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
