//! TLS client configuration.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::Resumption;
use trust::{Error, Trusted};

use crate::scenario::{Protocol, Tls, Transport};

/// The most servers whose sessions are kept.
const SESSIONS: usize = 256;

/// Returns the configuration for all connections of a run.
///
/// # Errors
/// Certificates cannot be read, or none are trusted.
pub(crate) fn config(transport: &Transport) -> Result<Arc<ClientConfig>, String> {
    let trusted = match &transport.tls {
        Tls { insecure: true, .. } => Trusted::Any,
        Tls { ca: Some(file), .. } => Trusted::SystemAndFile(file),
        Tls { ca: None, .. } => Trusted::System,
    };
    let mut config = trust::client(trusted, None).map_err(message)?;
    // All threads share the sessions, as all users share the tickets of a server.
    config.resumption =
        if transport.tls.resume { Resumption::in_memory_sessions(SESSIONS) } else { Resumption::disabled() };
    config.alpn_protocols = match transport.protocol {
        Protocol::Http1 { .. } => vec![b"http/1.1".to_vec()],
        Protocol::Http2 { .. } => vec![b"h2".to_vec()],
        Protocol::Http3 { .. } => vec![b"h3".to_vec()],
    };
    Ok(Arc::new(config))
}

fn message(error: Error) -> String {
    match error {
        Error::NoTrustedCertificates(_) => {
            "there are no trusted certificates to verify https servers: install ca-certificates, set SSL_CERT_FILE, name a \
             certificate file, or trust every certificate"
                .to_owned()
        }
        Error::Tls(why) => why,
        Error::File { path, why, .. } => {
            format!("{}: {why}; expected a PEM file with at least one certificate", path.display())
        }
    }
}
