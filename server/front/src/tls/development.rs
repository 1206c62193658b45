//! `--https`: serves certificates from this user's own authority.

use crate::error_log::ErrorLog;
use crate::listen::Address;
use ::tls::Certificates;
use certs::local::{self, Authority, Leaves};
use settings::Settings;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

/// Serves certificates for the names of this machine, if the settings ask for it. Must be called on the
/// thread of the server's event loop.
///
/// # Errors
/// The authority cannot be read or created.
pub(crate) fn serve(
    settings: &Settings,
    certificates: &Arc<Certificates>,
    log: &Arc<ErrorLog>,
) -> Result<(), String> {
    if !settings.tls.development {
        return Ok(());
    }
    let failed = |why: local::Error| format!("https: {why}");
    let folder = local::folder(|name| std::env::var(name).ok()).map_err(failed)?;
    let (authority, made) = Authority::open(&folder, SystemTime::now()).map_err(failed)?;
    if made {
        log.write(&format!(
            "https: made an authority for development certificates of this user: {} ({}); `firebrick trust` makes browsers \
             accept it",
            authority.name(),
            authority.file().display()
        ));
    }
    let leaves = Leaves::new(authority).map_err(failed)?;
    let log = log.clone();
    let fresh = local::serve(leaves, certificates, move |what| log.write(what)).map_err(failed)?;
    net::task::spawn_local(fresh);
    Ok(())
}

/// An address as the banner shows it.
pub(crate) struct Shown<'a> {
    pub(crate) address: &'a Address,
    /// Whether the address uses development certificates. It is then shown with a name that they cover.
    pub(crate) development: bool,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Address::Tls(address)
                if self.development && (address.ip().is_unspecified() || address.ip().is_loopback()) =>
            {
                write!(f, "https://localhost:{}", address.port())
            }
            other => other.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn development_is_reached_as_localhost() {
        let shown = |address: &str, development| {
            let address = Address::Tls(address.parse().unwrap());
            Shown { address: &address, development }.to_string()
        };
        for address in ["0.0.0.0:1", "[::]:1", "127.0.0.1:1", "[::1]:1"] {
            assert_eq!(shown(address, true), "https://localhost:1");
        }
        assert_eq!(shown("192.0.2.1:1", true), "https://192.0.2.1:1");
        assert_eq!(shown("0.0.0.0:1", false), "https://0.0.0.0:1");
        let plain = Address::Tcp("127.0.0.1:1".parse().unwrap());
        assert_eq!(Shown { address: &plain, development: true }.to_string(), "http://127.0.0.1:1");
    }
}
