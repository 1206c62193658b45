//! Encryption of clients' connections: what is shared by all threads ([`Encryption`]), and how a thread accepts
//! ([`handshakes`], [`shake`]).
//!
//! Contract:
//! 1. Mistakes in files show before the app is loaded, each with the name of its file.
//! 2. Files are read again while the server runs; what cannot be used changes nothing.

pub(crate) mod development;
pub(crate) mod handshakes;
pub(crate) mod obtain;
mod report;
pub(crate) mod shake;
mod tickets;
pub(crate) mod variables;
mod watch;

use crate::error_log::ErrorLog;
use crate::listen::Address;
use ::tls::{Alpn, Certificates, Endpoint, Pair, Rules, Source, TicketSecret};
use settings::{Bind, BindTls, Settings, Verify};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;
use tokio::sync::watch as channel;

pub(crate) use report::{certificates, check};

/// What encrypts the connections of a server, shared by all threads.
#[derive(Debug)]
pub(crate) struct Encryption {
    /// The certificates of all addresses; `certs` and others add theirs.
    pub(crate) certificates: Arc<Certificates>,
    /// What obtains certificates, if any are to be obtained.
    pub(crate) obtaining: OnceLock<certs::Service>,
    addresses: Vec<EncryptedAddress>,
    /// The files of `[tls]`.
    pairs: Mutex<Vec<Pair>>,
    secret: Mutex<TicketSecret>,
    /// The group whose secret this should be, and is not: its Redis was away.
    missed: Option<tickets::Group>,
    port: OnceLock<u16>,
    /// What is allowed but probably not meant; for the error log.
    pub(crate) warnings: Vec<String>,
}

/// An address that speaks TLS.
#[derive(Debug)]
struct EncryptedAddress {
    /// As it was configured.
    tls: BindTls,
    /// Its own certificate, and the file's.
    own: Option<(Arc<Certificates>, Mutex<Pair>)>,
    /// Where the authorities of clients' certificates are.
    ca: Option<PathBuf>,
    endpoint: channel::Sender<Arc<Endpoint>>,
}

impl Encryption {
    /// Reads everything that the settings name.
    ///
    /// # Errors
    /// A file cannot be used; the text names it and says why.
    pub(crate) fn read(settings: &Settings) -> Result<Encryption, String> {
        let mut warnings = Vec::new();
        let encrypted: Vec<&BindTls> = settings.binds.iter().filter_map(Bind::tls).collect();
        let tickets::Found { secret, missed } =
            tickets::find(settings, !encrypted.is_empty(), &mut warnings)?;
        let certificates = Certificates::new();
        let mut pairs = Vec::new();
        for files in &settings.tls.certificates {
            pairs.push(open(files, &mut warnings)?);
        }
        certificates.set(Source::Files, pairs.iter().map(|pair| pair.current().clone()).collect());
        let mut addresses: Vec<EncryptedAddress> = Vec::new();
        for tls in encrypted {
            if addresses.iter().any(|known| known.tls == *tls) {
                continue;
            }
            let own = match &tls.files {
                Some(files) => {
                    let (own, pair) = (Certificates::new(), open(files, &mut warnings)?);
                    own.set(Source::Files, vec![pair.current().clone()]);
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
        // Names of sockets that systemd opens may say more.
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

    /// How connections of an address are encrypted, now and whenever its files change; `None` for plain text.
    pub(crate) fn endpoint(&self, bind: &Bind) -> Option<channel::Receiver<Arc<Endpoint>>> {
        let tls = bind.tls()?;
        self.addresses.iter().find(|known| known.tls == *tls).map(|known| known.endpoint.subscribe())
    }

    /// Whether any address speaks TLS.
    pub(crate) fn is_used(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// Whether a certificate is for `name`, or may be made for it.
    pub(crate) fn covers(&self, name: &str) -> bool {
        let own = self.addresses.iter().filter_map(|address| address.own.as_ref());
        own.map(|(own, _)| own).chain([&self.certificates]).any(|certificates| certificates.covers(name))
    }

    /// The port that redirects to https name; `None` as long as none is bound.
    pub(crate) fn port(&self) -> Option<u16> {
        self.port.get().copied()
    }

    /// Notes the ports that were bound: the first that speaks TLS is the one of redirects.
    pub(crate) fn bound<'a>(&self, mut addresses: impl Iterator<Item = &'a Address>) {
        let port = addresses.find_map(|address| match address {
            Address::Tls(address) => Some(address.port()),
            _ => None,
        });
        if let Some(port) = port {
            // Ports are bound once.
            let _ = self.port.set(port);
        }
    }

    /// From now on reads files again when they change, and asks for the secret that was missed.
    pub(crate) fn follow_files(self: &Arc<Encryption>, settings: Arc<Settings>, log: Arc<ErrorLog>) {
        if self.is_used() {
            tokio::task::spawn_local(watch::run(self.clone(), settings.clone(), log.clone()));
        }
        if let Some(group) = self.missed.clone() {
            tokio::task::spawn_local(tickets::join(self.clone(), group, settings, log));
        }
    }

    fn secret(&self) -> TicketSecret {
        self.secret.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// New rules for an address: the files of authorities, or the secret of tickets, have changed.
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

/// Reads a pair of files, noting what is odd about it.
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

/// What an address may negotiate.
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
    let rules = Rules {
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
