//! TLS to Redis: whom we believe, and who we are.
//!
//! Contract: certificates are always verified. The files are read once, at the first connection.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

/// PEM files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tls {
    /// Who signs its certificate; `None` believes those that the system does.
    pub(crate) ca_file: Option<PathBuf>,
    /// Our own certificate, for a Redis that wants one, and its key.
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    made: OnceCell<Arc<ClientConfig>>,
}

impl PartialEq for Tls {
    fn eq(&self, other: &Tls) -> bool {
        (&self.ca_file, &self.cert, &self.key) == (&other.ca_file, &other.cert, &other.key)
    }
}

impl Tls {
    /// What connections are made with. They share it: so sessions are taken up again.
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
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be used: {error}"))?
            .with_root_certificates(self.roots()?);
        let (Some(cert), Some(key)) = (&self.cert, &self.key) else {
            return Ok(builder.with_no_client_auth());
        };
        let private = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| format!("ssl_params key {}: {error}", key.display()))?;
        builder
            .with_client_auth_cert(certificates("cert", cert)?, private)
            .map_err(|error| format!("ssl_params cert {}: {error}", cert.display()))
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        if let Some(file) = &self.ca_file {
            for certificate in certificates("ca_file", file)? {
                let told = |error| format!("ssl_params ca_file {}: {error}", file.display());
                roots.add(certificate).map_err(told)?;
            }
        } else {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        if roots.is_empty() {
            return Err("there are no certificates to verify it by; install ca-certificates, or set \
                        ssl_params: { ca_file: '/etc/redis/ca.pem' }"
                .to_owned());
        }
        Ok(roots)
    }
}

fn certificates(name: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let told = |error| format!("ssl_params {name} {}: {error}", file.display());
    CertificateDer::pem_file_iter(file).map_err(told)?.map(|certificate| certificate.map_err(told)).collect()
}
