//! Builds the TLS configuration of `https` origins, including the trusted certificates.

use crate::ProxyConfig;
use rustls::ClientConfig;
use std::sync::Arc;
use trust::{Error, Trusted};

/// Returns the TLS configuration for `https` origins.
///
/// # Errors
/// Certificates cannot be read, or there are none.
pub(crate) fn client_config(config: &ProxyConfig) -> Result<Arc<ClientConfig>, String> {
    let trusted = match &config.tls_ca {
        _ if !config.tls_verify => Trusted::Any,
        Some(file) => Trusted::File(file),
        None => Trusted::System,
    };
    let mut tls = trust::client(trusted, None).map_err(describe)?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(tls))
}

fn describe(error: Error) -> String {
    match error {
        Error::NoTrustedCertificates(why) => format!(
            "the system has no certificates to verify https origins by ({why}); install ca-certificates, set SSL_CERT_FILE, \
             tls_ca, or tls_verify to false"
        ),
        Error::Tls(why) => why,
        Error::File { path, why, .. } => {
            format!("tls_ca {}: {why}; it must be a PEM file with at least one certificate", path.display())
        }
    }
}
