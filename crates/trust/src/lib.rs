//! TLS to other servers: whose certificates are believed, and which we show.
//!
//! Why one place: proxies, handlers and the load generator ask the same question, and a difference between their answers
//! would be a mistake.
//!
//! Contract:
//! 1. [`Whom`] is believed. A server's certificate must be within its dates and be for the name that was asked for, and an
//!    authority that is believed must have signed it, with what the server sends in between.
//! 2. A certificate that was named itself needs no such signature: rustls alone refuses one that signs itself, as
//!    `openssl req -x509` makes it. Dates and name count for it all the same.
//! 3. Whoever is believed must show that the certificate's key is theirs, also where [`Whom::Anybody`] is.
//! 4. Files are read once, when [`client`] is called, and blockingly. What is wrong with them is told without the name of an
//!    option: that is the caller's.
//! 5. Protocols (ALPN) and whether sessions are taken up again are the caller's to set.
#![forbid(unsafe_code)]

mod files;
mod verifier;

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, ClientConfig, RootCertStore};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use verifier::Verifier;

/// Whose certificates are believed. Files are PEM, with one certificate or more.
#[derive(Debug, Clone, Copy)]
pub enum Whom<'a> {
    /// Those whom the system believes, or `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
    System,
    /// Those of a file, and nobody else: who names an authority of their own does not mean all others of the world.
    File(&'a Path),
    /// Those of a file besides the system's: for whoever asks servers of both kinds at once.
    SystemAndFile(&'a Path),
    /// Everybody: nothing is verified.
    Anybody,
}

/// What we show to servers that want to know who we are: PEM files.
#[derive(Debug, Clone, Copy)]
pub struct Own<'a> {
    /// Our certificate, followed by those between it and its authority.
    pub certificate: &'a Path,
    /// Its key, which is not encrypted.
    pub key: &'a Path,
}

/// What a file was named for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// That of [`Whom`].
    Believed,
    /// [`Own::certificate`].
    Certificate,
    /// [`Own::key`].
    Key,
}

/// Why there can be no connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    /// A file cannot be used.
    File {
        /// Which one.
        role: Role,
        /// Its name, as it was given.
        path: PathBuf,
        /// In words that go behind its name.
        why: String,
    },
    /// The system has no certificates to verify others by. What it says of that may be empty.
    NobodyBelieved(String),
    /// A sentence about TLS itself.
    Tls(String),
}

/// What connections are made with.
///
/// # Errors
/// Files cannot be read or used, or there is nobody to believe.
pub fn client(whom: Whom<'_>, own: Option<Own<'_>>) -> Result<ClientConfig, Unusable> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let named = match whom {
        Whom::File(file) | Whom::SystemAndFile(file) => {
            files::certificates(file).map_err(|why| unusable(Role::Believed, file, why))?
        }
        Whom::System | Whom::Anybody => Vec::new(),
    };
    let chains = match whom {
        Whom::Anybody => None,
        _ => {
            let roots = Arc::new(roots(whom, &named)?);
            let built = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
            Some(built.map_err(|error| Unusable::Tls(format!("certificates cannot be verified: {error}")))?)
        }
    };
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Unusable::Tls(format!("TLS cannot be used: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier { named, chains, provider }));
    let Some(own) = own else { return Ok(builder.with_no_client_auth()) };
    let certificate = |why| unusable(Role::Certificate, own.certificate, why);
    let key = |why| unusable(Role::Key, own.key, why);
    let chain = files::certificates(own.certificate).map_err(certificate)?;
    let secret = files::key(own.key).map_err(key)?;
    builder.with_client_auth_cert(chain, secret).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => certificate(format!("{} is not its key", own.key.display())),
        rustls::Error::InvalidCertificate(_) => certificate(error.to_string()),
        _ => key(error.to_string()),
    })
}

/// What was wrong with the server's certificate; `None` when a connection failed for another reason.
pub fn refused(error: &io::Error) -> Option<&CertificateError> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::InvalidCertificate(why) => Some(why),
        _ => None,
    }
}

fn unusable(role: Role, file: &Path, why: String) -> Unusable {
    Unusable::File { role, path: file.to_owned(), why }
}

/// What was named must be usable; of the system's, some may be too old or too odd.
fn roots(whom: Whom<'_>, named: &[CertificateDer<'static>]) -> Result<RootCertStore, Unusable> {
    let mut roots = RootCertStore::empty();
    if let Whom::File(file) | Whom::SystemAndFile(file) = whom {
        for certificate in named {
            let told = |error: rustls::Error| unusable(Role::Believed, file, error.to_string());
            roots.add(certificate.clone()).map_err(told)?;
        }
    }
    if let Whom::System | Whom::SystemAndFile(_) = whom {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let why: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
            return Err(Unusable::NobodyBelieved(why.join("; ")));
        }
    }
    Ok(roots)
}
