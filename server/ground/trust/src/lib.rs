//! TLS client configuration: which server certificates are trusted, and the client certificate.
//!
//! Proxies, handlers and the load generator share this crate, so they verify servers by the same rules.
//!
//! Contract:
//! 1. [`Trusted`] says which certificates are trusted. A server's certificate must be within its validity
//!    period, match the requested name, and be signed by a trusted authority, directly or through the
//!    intermediates that the server sends.
//! 2. A certificate that is itself in the given file needs no trusted signature. rustls alone rejects self-signed
//!    certificates as `openssl req -x509` makes them. Validity period and name are still checked.
//! 3. A server must always prove that it has the certificate's key, even with [`Trusted::Any`].
//! 4. [`client`] reads the files once, with blocking I/O. Its errors do not mention option names; the caller adds them.
//! 5. The caller sets the ALPN protocols and whether sessions are resumed.
//! 6. No message contains a byte of a file: a file named as a certificate may be a key ([`Secret`]).
#![forbid(unsafe_code)]

mod files;
pub mod pem;
mod secret;
mod verifier;

pub use secret::{Secret, TextPosition};

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, ClientConfig, RootCertStore};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use verifier::Verifier;

/// The trusted certificates. Files are PEM, with at least one certificate.
#[derive(Debug, Clone, Copy)]
pub enum Trusted<'a> {
    /// The authorities of the system, or of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    System,
    /// Only those of a file, not the system's: a private authority replaces the public ones.
    File(&'a Path),
    /// The authorities of a file and of the system, for clients of both private and public servers.
    SystemAndFile(&'a Path),
    /// Every certificate: nothing is verified.
    Any,
}

/// The client certificate, for servers that request one: PEM files.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// The certificate, followed by the intermediates.
    pub certificate: &'a Path,
    /// Its private key, unencrypted.
    pub key: &'a Path,
}

/// The purpose of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilePurpose {
    /// The file of [`Trusted`].
    Trusted,
    /// [`Identity::certificate`].
    Certificate,
    /// [`Identity::key`].
    Key,
}

/// Why there is no configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A file cannot be used.
    File {
        /// Its purpose.
        role: FilePurpose,
        /// Its path, as given.
        path: PathBuf,
        /// The reason, to be printed after the path.
        why: String,
    },
    /// The system has no trusted certificates; with the reason, which may be empty.
    NoTrustedCertificates(String),
    /// Another TLS error, in a sentence.
    Tls(String),
}

/// Creates the configuration for connections.
///
/// # Errors
/// A file cannot be read or used, or the system has no trusted certificates.
pub fn client(trusted: Trusted<'_>, identity: Option<Identity<'_>>) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let named = match trusted {
        Trusted::File(file) | Trusted::SystemAndFile(file) => {
            files::certificates(file).map_err(|why| file_error(FilePurpose::Trusted, file, why))?
        }
        Trusted::System | Trusted::Any => Vec::new(),
    };
    let chains = match trusted {
        Trusted::Any => None,
        _ => {
            let roots = Arc::new(roots(trusted, &named)?);
            let built = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
            Some(built.map_err(|error| Error::Tls(format!("certificates cannot be verified: {error}")))?)
        }
    };
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Tls(format!("TLS cannot be used: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier { named, chains, provider }));
    let Some(identity) = identity else { return Ok(builder.with_no_client_auth()) };
    let certificate = |why| file_error(FilePurpose::Certificate, identity.certificate, why);
    let key = |why| file_error(FilePurpose::Key, identity.key, why);
    let chain = files::certificates(identity.certificate).map_err(certificate)?;
    let secret = files::key(identity.key).map_err(key)?;
    builder.with_client_auth_cert(chain, secret).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            certificate(format!("{} is not its key", identity.key.display()))
        }
        rustls::Error::InvalidCertificate(_) => certificate("a certificate in it is damaged".to_owned()),
        // The library's error may quote the key, so it is dropped.
        _ => key(
            "contains a private key that cannot be used: RSA from 2048 bits, ECDSA or Ed25519 is expected"
                .to_owned(),
        ),
    })
}

/// Why the server's certificate was rejected; `None` if the connection failed for another reason.
pub fn certificate_error(error: &io::Error) -> Option<&CertificateError> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::InvalidCertificate(why) => Some(why),
        _ => None,
    }
}

fn file_error(role: FilePurpose, file: &Path, why: String) -> Error {
    Error::File { role, path: file.to_owned(), why }
}

/// Collects the trusted certificates. All certificates of a file must be usable; unusable ones of the system
/// are skipped.
fn roots(trusted: Trusted<'_>, named: &[CertificateDer<'static>]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    if let Trusted::File(file) | Trusted::SystemAndFile(file) = trusted {
        for certificate in named {
            let damaged =
                || file_error(FilePurpose::Trusted, file, "a certificate in it is damaged".to_owned());
            roots.add(certificate.clone()).map_err(|_| damaged())?;
        }
    }
    if let Trusted::System | Trusted::SystemAndFile(_) = trusted {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let why: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
            return Err(Error::NoTrustedCertificates(why.join("; ")));
        }
    }
    Ok(roots)
}
