//! All certificates of a server, by name: shared by those who obtain them and all threads that serve them.
//!
//! Contract:
//! 1. [`Certificates::set`] replaces everything that a source gave before, at once: no handshake sees half of it.
//! 2. The first certificate of [`Source::Files`] is the default, for clients that name no host or an unknown one. Those of
//!    other sources serve clients that name no host, but never an unknown one: there the handshake fails with an alert.
//! 3. Of several certificates for a name, the first is chosen whose key the client can verify.
//! 4. A reader never waits for a writer that does more than swap a pointer.

use crate::Certificate;
use crate::names::{Names, normal};
use rustls::SignatureScheme;
use rustls::sign::CertifiedKey;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Who gave a certificate. Earlier ones win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Files that the user named.
    Files,
    /// An authority, by ACME.
    Acme,
    /// The development authority of this user.
    Local,
}

/// Makes certificates when a client asks for a name that has none.
pub trait OnDemand: Send + Sync {
    /// The certificate for `name`, a host name in lower case; `None` if there will be none. The handshake of the client at
    /// `client` waits for it, but not for ever: the future may be dropped at any time. The same name may be asked for many
    /// times at once.
    fn certificate(
        &self,
        name: String,
        client: Option<IpAddr>,
    ) -> Pin<Box<dyn Future<Output = Option<Arc<Certificate>>> + Send>>;
}

/// Certificates by name.
#[derive(Default)]
pub struct Certificates {
    current: RwLock<Arc<Current>>,
    /// Held while the next version is made: with thousands of names that takes a while.
    changing: Mutex<()>,
    hooks: RwLock<Arc<[Arc<dyn OnDemand>]>>,
    challenges: RwLock<HashMap<Box<str>, Arc<CertifiedKey>>>,
    expected: RwLock<HashSet<Box<str>>>,
}

#[derive(Default)]
struct Current {
    sources: BTreeMap<Source, Vec<Arc<Certificate>>>,
    names: Names<Arc<Certificate>>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.list().iter().map(|certificate| certificate.facts().names.clone()).collect();
        f.debug_tuple("Certificates").field(&names).finish()
    }
}

/// What a client asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted<'a> {
    /// The host name (SNI).
    pub(crate) name: Option<&'a str>,
    /// The address that it connected to: what it means when it names no host.
    pub(crate) address: Option<IpAddr>,
    /// The signatures that it can verify; empty if that is not known.
    pub(crate) signatures: &'a [SignatureScheme],
}

impl Certificates {
    /// None yet.
    pub fn new() -> Arc<Certificates> {
        Arc::default()
    }

    /// Replaces what `source` gave before.
    pub fn set(&self, source: Source, certificates: Vec<Arc<Certificate>>) {
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
        // Freed when nobody waits for the lock.
        drop(before);
    }

    /// What `source` has given.
    pub fn of(&self, source: Source) -> Vec<Arc<Certificate>> {
        self.current().sources.get(&source).cloned().unwrap_or_default()
    }

    /// All of them.
    pub fn list(&self) -> Vec<Arc<Certificate>> {
        self.current().sources.values().flatten().cloned().collect()
    }

    /// All of them with their sources.
    pub fn by_source(&self) -> Vec<(Source, Arc<Certificate>)> {
        let with = |(source, all): (&Source, &Vec<Arc<Certificate>>)| {
            let source = *source;
            all.iter().map(move |certificate| (source, certificate.clone())).collect::<Vec<_>>()
        };
        self.current().sources.iter().flat_map(with).collect()
    }

    /// Whether there is a certificate for `name`, exactly or by a wildcard.
    pub fn covers(&self, name: &str) -> bool {
        self.current().names.find(name).next().is_some()
    }

    /// Serves `key` to those who validate the control of `name` by TLS-ALPN-01 (RFC 8737).
    pub fn set_challenge(&self, name: &str, key: Arc<CertifiedKey>) {
        self.challenges.write().unwrap_or_else(PoisonError::into_inner).insert(normal(name).into(), key);
    }

    /// No longer does.
    pub fn remove_challenge(&self, name: &str) {
        self.challenges.write().unwrap_or_else(PoisonError::into_inner).remove(&*normal(name));
    }

    /// Names whose first certificate is still to come, instead of those that were set before. Until it comes they are served
    /// without encryption, also where https is required.
    pub fn set_expected<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let names = names.into_iter().map(|name| normal(name).into()).collect();
        *self.expected.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// Whether the first certificate of `name` is still to come.
    pub fn is_expected(&self, name: &str) -> bool {
        self.expected.read().unwrap_or_else(PoisonError::into_inner).contains(&*normal(name))
    }

    /// Adds one who is asked for names that have no certificate, after those that were added before.
    pub fn add_on_demand(&self, hook: Arc<dyn OnDemand>) {
        let mut hooks = self.hooks.write().unwrap_or_else(PoisonError::into_inner);
        *hooks = hooks.iter().cloned().chain([hook]).collect();
    }

    /// The certificate of the challenge for `name`.
    pub(crate) fn challenge(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.challenges.read().unwrap_or_else(PoisonError::into_inner).get(&*normal(name)).cloned()
    }

    /// Those who are asked for names that have none.
    pub(crate) fn hooks(&self) -> Arc<[Arc<dyn OnDemand>]> {
        self.hooks.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The certificate that is for what was asked for, not the default.
    pub(crate) fn find(&self, wanted: Wanted<'_>) -> Option<Arc<Certificate>> {
        let current = self.current();
        match (wanted.name, wanted.address) {
            (Some(name), _) => best(current.names.find(name), wanted),
            (None, Some(address)) => best(current.names.find(&address.to_canonical().to_string()), wanted),
            (None, None) => None,
        }
    }

    /// The certificate for those who ask for nothing that there is.
    pub(crate) fn default_for(&self, wanted: Wanted<'_>) -> Option<Arc<Certificate>> {
        let current = self.current();
        let of = |source| current.sources.get(&source).into_iter().flatten();
        match wanted.name {
            // Another key type may serve, but not another name: the first certificate stands for all with its names.
            Some(_) => {
                let first = of(Source::Files).next()?;
                best(of(Source::Files).filter(|other| other.facts().names == first.facts().names), wanted)
            }
            None => best(current.sources.values().flatten(), wanted),
        }
    }

    fn current(&self) -> Arc<Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The first whose key the client can verify, or else the first: the handshake then says what is missing.
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
