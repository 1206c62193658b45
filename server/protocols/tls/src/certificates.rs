//! All certificates of a server by name, shared by the sources that obtain them and the threads that serve them.
//!
//! Contract:
//! 1. [`Certificates::set`] replaces all certificates of a source atomically: no handshake sees a part of them.
//! 2. The first certificate of [`CertificateSource::Files`] is the default, for clients that request no host
//!    or an unknown one. Certificates of other sources serve clients that request no host, but never an
//!    unknown one: that handshake fails with an alert.
//! 3. Of several certificates for a name, the first is chosen whose signature the client supports.
//! 4. A reader waits for a writer only as long as it takes to swap a pointer.

use crate::Certificate;
use crate::names::{Names, normal};
use rustls::SignatureScheme;
use rustls::sign::CertifiedKey;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The source of a certificate. Earlier variants take precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CertificateSource {
    /// Files in the settings.
    Files,
    /// A CA, by ACME.
    Acme,
    /// The development authority of this user.
    Local,
}

/// Creates certificates when a client requests a name that has none.
pub trait OnDemandHook: Send + Sync {
    /// Returns the certificate for `name`, a host name in lower case; `None` if there will be none. `client`
    /// is the client's address. Its handshake waits for the future, but may drop it at any time. The same
    /// name can be requested many times at once.
    fn certificate(
        &self,
        name: String,
        client: Option<IpAddr>,
    ) -> Pin<Box<dyn Future<Output = Option<Arc<Certificate>>> + Send>>;
}

#[derive(Default)]
pub struct Certificates {
    current: RwLock<Arc<Current>>,
    /// Held while the next version is built, which takes some time with thousands of names.
    changing: Mutex<()>,
    hooks: RwLock<Arc<[Arc<dyn OnDemandHook>]>>,
    challenges: RwLock<HashMap<Box<str>, Arc<CertifiedKey>>>,
    expected: RwLock<HashSet<Box<str>>>,
}

#[derive(Default)]
struct Current {
    sources: BTreeMap<CertificateSource, Vec<Arc<Certificate>>>,
    names: Names<Arc<Certificate>>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.list().iter().map(|certificate| certificate.facts().names.clone()).collect();
        f.debug_tuple("Certificates").field(&names).finish()
    }
}

/// A client's request for a certificate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted<'a> {
    /// The host name (SNI).
    pub(crate) name: Option<&'a str>,
    /// The address that the client connected to, which counts if it requests no host.
    pub(crate) address: Option<IpAddr>,
    /// The signatures that the client supports; empty if unknown.
    pub(crate) signatures: &'a [SignatureScheme],
}

impl Certificates {
    pub fn new() -> Arc<Certificates> {
        Arc::default()
    }

    pub fn set(&self, source: CertificateSource, certificates: Vec<Arc<Certificate>>) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sources = self.current().sources.clone();
        sources.insert(source, certificates);
        let mut names = Names::default();
        for certificate in sources.values().flatten() {
            certificate.facts().names.iter().for_each(|name| names.add(name, certificate.clone()));
        }
        let next = Arc::new(Current { sources, names });
        let before =
            std::mem::replace(&mut *self.current.write().unwrap_or_else(PoisonError::into_inner), next);
        // Freed after the lock is released.
        drop(before);
    }

    pub fn of(&self, source: CertificateSource) -> Vec<Arc<Certificate>> {
        self.current().sources.get(&source).cloned().unwrap_or_default()
    }

    pub fn list(&self) -> Vec<Arc<Certificate>> {
        self.current().sources.values().flatten().cloned().collect()
    }

    /// Returns all certificates with their sources.
    pub fn by_source(&self) -> Vec<(CertificateSource, Arc<Certificate>)> {
        let with = |(source, all): (&CertificateSource, &Vec<Arc<Certificate>>)| {
            let source = *source;
            all.iter().map(move |certificate| (source, certificate.clone())).collect::<Vec<_>>()
        };
        self.current().sources.iter().flat_map(with).collect()
    }

    /// Whether there is a certificate for `name`, exact or by a wildcard.
    pub fn covers(&self, name: &str) -> bool {
        self.current().names.find(name).next().is_some()
    }

    /// Serves `key` to the CA's TLS-ALPN-01 validation of `name` (RFC 8737).
    pub fn set_challenge(&self, name: &str, key: Arc<CertifiedKey>) {
        self.challenges.write().unwrap_or_else(PoisonError::into_inner).insert(normal(name).into(), key);
    }

    /// Reverts [`Certificates::set_challenge`].
    pub fn remove_challenge(&self, name: &str) {
        self.challenges.write().unwrap_or_else(PoisonError::into_inner).remove(&*normal(name));
    }

    /// Sets the names whose first certificate is still being obtained, and replaces the earlier set. Until
    /// then, such names are served without TLS, even if https is required.
    pub fn set_expected<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let names = names.into_iter().map(|name| normal(name).into()).collect();
        *self.expected.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// Whether the first certificate of `name` is still being obtained.
    pub fn is_expected(&self, name: &str) -> bool {
        self.expected.read().unwrap_or_else(PoisonError::into_inner).contains(&*normal(name))
    }

    /// Adds a hook that creates certificates for names without one. Hooks are called in the order in which
    /// they were added.
    pub fn add_on_demand(&self, hook: Arc<dyn OnDemandHook>) {
        let mut hooks = self.hooks.write().unwrap_or_else(PoisonError::into_inner);
        *hooks = hooks.iter().cloned().chain([hook]).collect();
    }

    /// Returns the certificate of the challenge for `name`.
    pub(crate) fn challenge(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.challenges.read().unwrap_or_else(PoisonError::into_inner).get(&*normal(name)).cloned()
    }

    /// Returns the hooks for names without a certificate.
    pub(crate) fn hooks(&self) -> Arc<[Arc<dyn OnDemandHook>]> {
        self.hooks.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a certificate that matches the request; never the default.
    pub(crate) fn find(&self, wanted: Wanted<'_>) -> Option<Arc<Certificate>> {
        let current = self.current();
        match (wanted.name, wanted.address) {
            (Some(name), _) => best(current.names.find(name), wanted),
            (None, Some(address)) => best(current.names.find(&address.to_canonical().to_string()), wanted),
            (None, None) => None,
        }
    }

    /// Returns the certificate for clients whose request matches none.
    pub(crate) fn default_for(&self, wanted: Wanted<'_>) -> Option<Arc<Certificate>> {
        let current = self.current();
        let of = |source| current.sources.get(&source).into_iter().flatten();
        match wanted.name {
            // A certificate with another key type may serve, but only with the names of the first one.
            Some(_) => {
                let first = of(CertificateSource::Files).next()?;
                best(
                    of(CertificateSource::Files).filter(|other| other.facts().names == first.facts().names),
                    wanted,
                )
            }
            None => best(current.sources.values().flatten(), wanted),
        }
    }

    fn current(&self) -> Arc<Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns the first certificate whose signature the client supports, or else the first: the handshake then
/// fails with the right alert.
fn best<'a>(
    all: impl Iterator<Item = &'a Arc<Certificate>> + Clone,
    wanted: Wanted<'_>,
) -> Option<Arc<Certificate>> {
    let fits = |certificate: &&Arc<Certificate>| {
        wanted.signatures.is_empty()
            || certificate.certified_key().key.choose_scheme(wanted.signatures).is_some()
    };
    all.clone().find(fits).or_else(|| all.clone().next()).cloned()
}
