//! TLS to servers. Sessions are never resumed, so that each connection costs a server what that of a new visitor does.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::Resumption;
use trust::{Unusable, Whom};

use crate::plan::{Protocol, Tls, Transport};

/// What all connections of a run agree on.
///
/// # Errors
/// Certificates cannot be read, or there are none to believe.
pub(crate) fn config(transport: &Transport) -> Result<Arc<ClientConfig>, String> {
    let whom = match &transport.tls {
        Tls { insecure: true, .. } => Whom::Anybody,
        Tls { ca: Some(file), .. } => Whom::SystemAndFile(file),
        Tls { ca: None, .. } => Whom::System,
    };
    let mut config = trust::client(whom, None).map_err(told)?;
    config.resumption = Resumption::disabled();
    config.alpn_protocols = match transport.protocol {
        Protocol::Http1 { .. } => vec![b"http/1.1".to_vec()],
        Protocol::Http2 { .. } => vec![b"h2".to_vec()],
    };
    Ok(Arc::new(config))
}

fn told(unusable: Unusable) -> String {
    match unusable {
        Unusable::NobodyBelieved(_) => {
            "there are no certificates to verify https servers by: install ca-certificates, set SSL_CERT_FILE, name a \
             file of certificates, or have every certificate believed"
                .to_owned()
        }
        Unusable::Tls(why) => why,
        Unusable::File { path, why, .. } => {
            format!("{}: {why}; a PEM file with at least one certificate was expected", path.display())
        }
    }
}
