//! The TLS state that all threads share: certificates, ticket secrets, and the parameters of each address
//! ([`Encryption`]).
//!
//! Contract:
//! 1. Errors in files show before the app is loaded, each with the name of its file.
//! 2. Files are read again at run time. A file that cannot be used changes nothing.

pub(crate) mod development;
pub(crate) mod obtain;
mod report;
mod tickets;
pub(crate) mod variables;
mod watch;

use crate::error_log::ErrorLog;
use crate::listen::Address;
use ::tls::{Alpn, CertificateSource, Certificates, Endpoint, EndpointRules, Pair, TicketSecret};
use settings::{Bind, BindTls, Settings, Verify};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;
use tokio::sync::watch as channel;

pub(crate) use report::{certificates, check};

/// The TLS state of a server, shared by all threads.
#[derive(Debug)]
pub(crate) struct Encryption {
    /// The certificates of all addresses. Other crates, such as `certs`, add theirs.
    pub(crate) certificates: Arc<Certificates>,
    /// The service that obtains certificates, if it is configured.
    pub(crate) obtaining: OnceLock<certs::CertificateService>,
    addresses: Vec<EncryptedAddress>,
    /// The files of `[tls]`.
    pairs: Mutex<Vec<Pair>>,
    secret: Mutex<TicketSecret>,
    /// The group whose ticket secret could not be fetched because its Redis did not respond.
    missed: Option<tickets::Group>,
    port: OnceLock<u16>,
    /// Warnings about settings that are valid but probably not intended. For the error log.
    pub(crate) warnings: Vec<String>,
}

#[derive(Debug)]
struct EncryptedAddress {
    /// The setting.
    tls: BindTls,
    /// The address's own certificate, and its files.
    own: Option<(Arc<Certificates>, Mutex<Pair>)>,
    /// The file with the authorities of client certificates.
    ca: Option<PathBuf>,
    endpoint: channel::Sender<Arc<Endpoint>>,
}

impl Encryption {
    /// Reads all files that the settings name.
    ///
    /// # Errors
    /// A file cannot be used. The text names the file and the reason.
    pub(crate) fn read(settings: &Settings) -> Result<Encryption, String> {
        let mut warnings = Vec::new();
        let encrypted: Vec<&BindTls> = settings.binds.iter().filter_map(Bind::tls).collect();
        let tickets::FirstSecret { secret, missed } =
            tickets::find(settings, !encrypted.is_empty(), &mut warnings)?;
        let certificates = Certificates::new();
        let mut pairs = Vec::new();
        for files in &settings.tls.certificates {
            pairs.push(open(files, &mut warnings)?);
        }
        certificates.set(CertificateSource::Files, pairs.iter().map(|pair| pair.current().clone()).collect());
        let mut addresses: Vec<EncryptedAddress> = Vec::new();
        for tls in encrypted {
            if addresses.iter().any(|known| known.tls == *tls) {
                continue;
            }
            let own = match &tls.files {
                Some(files) => {
                    let (own, pair) = (Certificates::new(), open(files, &mut warnings)?);
                    own.set(CertificateSource::Files, vec![pair.current().clone()]);
                    Some((own, Mutex::new(pair)))
                }
                None => None,
            };
            let ca = ca(settings, tls);
            let endpoint = endpoint(
                settings,
                tls,
                ca.as_ref(),
                own.as_ref().map(|(own, _)| own),
                &certificates,
                &secret,
            )?;
            addresses.push(EncryptedAddress {
                tls: tls.clone(),
                own,
                ca,
                endpoint: channel::Sender::new(Arc::new(endpoint)),
            });
        }
        // Sockets that systemd opens can ask for TLS by their names.
        let unknown = settings.binds.iter().any(|bind| matches!(bind, Bind::Systemd { .. }));
        if addresses.is_empty() && !pairs.is_empty() && !unknown {
            warnings.push(
                "tls.cert has no effect: no address begins with ssl:// (-b ssl://0.0.0.0:443)".to_owned(),
            );
        }
        Ok(Encryption {
            certificates,
            obtaining: OnceLock::new(),
            addresses,
            pairs: Mutex::new(pairs),
            secret: Mutex::new(secret),
            missed,
            port: OnceLock::new(),
            warnings,
        })
    }

    /// Watches the TLS parameters of an address, which change with its files. `None` for plain text.
    pub(crate) fn endpoint(&self, bind: &Bind) -> Option<channel::Receiver<Arc<Endpoint>>> {
        let tls = bind.tls()?;
        self.addresses.iter().find(|known| known.tls == *tls).map(|known| known.endpoint.subscribe())
    }

    pub(crate) fn is_used(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// Whether a certificate covers `name` or can be obtained for it.
    pub(crate) fn covers(&self, name: &str) -> bool {
        let own = self.addresses.iter().filter_map(|address| address.own.as_ref());
        own.map(|(own, _)| own).chain([&self.certificates]).any(|certificates| certificates.covers(name))
    }

    /// Returns the port for redirects to https; `None` until one is bound.
    pub(crate) fn port(&self) -> Option<u16> {
        self.port.get().copied()
    }

    /// Records the bound ports. The first port with TLS is the target of redirects.
    pub(crate) fn bound<'a>(&self, mut addresses: impl Iterator<Item = &'a Address>) {
        let port = addresses.find_map(|address| match address {
            Address::Tls(address) => Some(address.port()),
            _ => None,
        });
        if let Some(port) = port {
            // Ports are bound only once.
            let _ = self.port.set(port);
        }
    }

    /// Starts watching the files, and the retries for a missed ticket secret.
    pub(crate) fn follow_files(self: &Arc<Encryption>, settings: Arc<Settings>, log: Arc<ErrorLog>) {
        if self.is_used() {
            net::task::spawn_local(watch::run(self.clone(), settings.clone(), log.clone()));
        }
        if let Some(group) = self.missed.clone() {
            net::task::spawn_local(tickets::join(self.clone(), group, settings, log));
        }
    }

    fn secret(&self) -> TicketSecret {
        self.secret.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Renews the parameters of an address, after its authorities or the ticket secret have changed.
    fn renew(&self, address: &EncryptedAddress, settings: &Settings) -> Result<(), String> {
        let own = address.own.as_ref().map(|(own, _)| own);
        let new =
            endpoint(settings, &address.tls, address.ca.as_ref(), own, &self.certificates, &self.secret())?;
        address.endpoint.send_replace(Arc::new(new));
        Ok(())
    }

    fn pairs(&self) -> std::sync::MutexGuard<'_, Vec<Pair>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a pair of files, and adds warnings about it.
fn open(files: &settings::CertificateFiles, warnings: &mut Vec<String>) -> Result<Pair, String> {
    let pair = Pair::open(files.clone())?;
    let name = files.cert.display();
    for warning in pair.current().warnings(SystemTime::now()) {
        warnings.push(format!("the certificate {name}: {warning}"));
    }
    Ok(pair)
}

fn ca(settings: &Settings, tls: &BindTls) -> Option<PathBuf> {
    tls.ca.clone().or_else(|| settings.tls.client_ca.clone())
}

/// Builds the TLS parameters of an address.
fn endpoint(
    settings: &Settings,
    tls: &BindTls,
    ca: Option<&PathBuf>,
    own: Option<&Arc<Certificates>>,
    shared: &Arc<Certificates>,
    secret: &TicketSecret,
) -> Result<Endpoint, String> {
    let verify = tls.verify.unwrap_or(settings.tls.verify);
    let authorities = match ca.filter(|_| verify != Verify::Off) {
        Some(file) => ::tls::read_authorities(file)?,
        None => trust::Secret::default(),
    };
    let rules = EndpointRules {
        min_version: settings.tls.min_version,
        alpn: Alpn::Http2AndHttp1,
        verify,
        authorities,
        strict_names: settings.tls.strict_names,
    };
    Endpoint::new(&rules, own.cloned(), shared.clone(), secret).map_err(|why| match ca {
        Some(file) => format!("the authorities {} cannot be used: {why}", file.display()),
        None => why,
    })
}
