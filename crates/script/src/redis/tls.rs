//! TLS to Redis: whom we believe, and who we are.
//!
//! Contract: certificates are always verified. The files are read once, at the first connection.

use std::cell::OnceCell;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_rustls::rustls::ClientConfig;
use trust::{Own, Role, Unusable, Whom};

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
        let whom = self.ca_file.as_deref().map_or(Whom::System, Whom::File);
        let own = self.cert.as_deref().zip(self.key.as_deref());
        let own = own.map(|(certificate, key)| Own { certificate, key });
        trust::client(whom, own).map_err(|unusable| match unusable {
            Unusable::File { role, path, why } => {
                let option = match role {
                    Role::Believed => "ca_file",
                    Role::Certificate => "cert",
                    Role::Key => "key",
                };
                format!("ssl_params {option} {}: {why}", path.display())
            }
            Unusable::NobodyBelieved(_) => {
                "there are no certificates to verify it by; install ca-certificates, or set \
                 ssl_params: { ca_file: '/etc/redis/ca.pem' }"
                    .to_owned()
            }
            Unusable::Tls(why) => why,
        })
    }

    /// Why there was no handshake; of a certificate that was refused, also whom we believe.
    pub(crate) fn told(&self, error: &io::Error) -> String {
        match (trust::refused(error), &self.ca_file) {
            (None, _) => error.to_string(),
            (Some(_), Some(file)) => {
                format!("{error}; it was verified by ssl_params ca_file {}", file.display())
            }
            (Some(_), None) => format!(
                "{error}; it was verified by the system's certificates; ssl_params: {{ ca_file: '/etc/redis/ca.pem' }} \
                 names others"
            ),
        }
    }
}
