//! Configures TLS: the trusted certificates and the client certificate.
//!
//! Contract: certificates are always verified. The files are read once, when the first connection is opened.

use std::cell::OnceCell;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_rustls::rustls::ClientConfig;
use trust::{Error, FilePurpose, Identity, Trusted};

/// PEM files.
#[derive(Debug, Clone, Default)]
pub struct RedisTls {
    /// The certificates of the trusted authorities, or the server's own; `None` trusts the system's.
    pub ca_file: Option<PathBuf>,
    /// The client certificate, for a server that asks for one.
    pub cert: Option<PathBuf>,
    /// The private key of `cert`.
    pub key: Option<PathBuf>,
    made: OnceCell<Arc<ClientConfig>>,
}

impl PartialEq for RedisTls {
    fn eq(&self, other: &RedisTls) -> bool {
        (&self.ca_file, &self.cert, &self.key) == (&other.ca_file, &other.cert, &other.key)
    }
}

impl RedisTls {
    /// Returns the configuration that all connections share, so that they can resume sessions.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub(crate) fn client(&self) -> Result<Arc<ClientConfig>, String> {
        if let Some(made) = self.made.get() {
            return Ok(made.clone());
        }
        let made = Arc::new(self.read()?);
        Ok(self.made.get_or_init(|| made).clone())
    }

    fn read(&self) -> Result<ClientConfig, String> {
        let trusted = self.ca_file.as_deref().map_or(Trusted::System, Trusted::File);
        let identity = self.cert.as_deref().zip(self.key.as_deref());
        let identity = identity.map(|(certificate, key)| Identity { certificate, key });
        trust::client(trusted, identity).map_err(|error| match error {
            Error::File { role, path, why } => {
                let option = match role {
                    FilePurpose::Trusted => "ca_file",
                    FilePurpose::Certificate => "cert",
                    FilePurpose::Key => "key",
                };
                format!("{option} {}: {why}", path.display())
            }
            Error::NoTrustedCertificates(_) => {
                "there are no certificates to verify it with; install ca-certificates, or set ca_file, such as \
                 '/etc/redis/ca.pem'"
                    .to_owned()
            }
            Error::Tls(why) => why,
        })
    }

    /// Describes why the handshake failed; if the certificate was rejected, also which ones are trusted.
    pub(crate) fn handshake_error(&self, error: &io::Error) -> String {
        match (trust::certificate_error(error), &self.ca_file) {
            (None, _) => error.to_string(),
            (Some(_), Some(file)) => format!("{error}; it was verified with ca_file {}", file.display()),
            (Some(_), None) => {
                format!("{error}; it was verified with the system's certificates; set ca_file to use others")
            }
        }
    }
}
