//! Keeps accounts and certificates, so that a restart needs no orders: [`CertificateStore`].
//!
//! Contract:
//! 1. A saved item is loaded whole or not at all: a reader never sees half of a certificate, or a key without
//!    its chain.
//! 2. Items of different directories of a CA (staging and production) are separate: a store is opened for one
//!    directory.
//! 3. Only the holder of a [`Lease`] orders a certificate. A lease ends with its holder, or at the latest
//!    when it expires.
//! 4. A store does not check the items that it loads; see [`crate::record`].

mod folder;
mod redis;
mod secret;

pub use folder::Folder;
pub use redis::Redis;
pub use secret::{request_shared_secret, shared_secret};

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// A future on the thread that orders certificates.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// How often a lease is renewed while an order is in progress.
pub const RENEW_EVERY: Duration = Duration::from_secs(8);
/// When a lease expires without a renewal.
pub const LEASE: Duration = Duration::from_secs(30);
/// The largest item, in bytes. A chain and its key have a few KiB.
pub const MAX_ITEM: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The account at the CA, with its key.
    Account,
    /// Key and chain of the certificate with this id.
    Certificate(String),
    /// Further facts about the certificate with this id: [`crate::record::Note`].
    Note(String),
    /// TLS-ALPN-01 challenges of the order in progress, which other machines answer as well.
    Challenges(String),
}

impl Item {
    /// Returns the name of the file or key.
    fn name(&self) -> String {
        match self {
            Item::Account => "account.json".to_owned(),
            Item::Certificate(id) => format!("{id}.pem"),
            Item::Note(id) => format!("{id}.json"),
            Item::Challenges(id) => format!("{id}.challenges"),
        }
    }
}

/// Why an item could not be saved or loaded: a sentence that names the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// A place for the account and the certificates of one directory of a CA.
pub trait CertificateStore {
    /// Describes the place, for people.
    fn describe(&self) -> String;

    /// Whether other machines may use the store.
    fn is_shared(&self) -> bool;

    /// Loads an item; `None` if it was never saved, or is gone.
    ///
    /// # Errors
    /// The place cannot be read.
    fn load<'a>(&'a self, item: &'a Item) -> Pending<'a, Result<Option<Vec<u8>>, Error>>;

    /// Saves an item, and replaces the one before.
    ///
    /// # Errors
    /// The place cannot be written. The item before is intact.
    fn save<'a>(&'a self, item: &'a Item, bytes: &'a [u8]) -> Pending<'a, Result<(), Error>>;

    /// Returns the right to order the certificate with this id; `None` if another server has it.
    ///
    /// # Errors
    /// The place cannot be used.
    fn lease<'a>(&'a self, id: &'a str) -> Pending<'a, Result<Option<Box<dyn Lease>>, Error>>;
}

/// The right to order one certificate.
pub trait Lease {
    /// Extends the lease by another [`LEASE`]; `false` if it was lost.
    ///
    /// # Errors
    /// The place cannot be used.
    fn renew(&self) -> Pending<'_, Result<bool, Error>>;

    fn release(self: Box<Self>) -> Pending<'static, ()>;
}

/// Returns a file or key name for a directory of a CA: readable, and different for different addresses.
pub fn place_of(directory: &str) -> String {
    let readable: String = directory
        .trim_start_matches("https://")
        .trim_start_matches("http://")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' })
        .take(80)
        .collect();
    format!("{}-{:08x}", readable.trim_matches(['.', '_']), short_hash(directory))
}

/// Returns the id of a certificate: its first name, and a hash of all names if there are several.
pub fn id_of(names: &[String]) -> String {
    let first = names.first().map_or("", String::as_str);
    let readable: String = first
        .replace("*.", "wildcard.")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' })
        .take(200)
        .collect();
    match names {
        [_] => readable,
        _ => {
            let mut sorted: Vec<&str> = names.iter().map(String::as_str).collect();
            sorted.sort_unstable();
            format!("{readable}-{:08x}", short_hash(&sorted.join(",")))
        }
    }
}

/// Folds the hash to 32 bits.
fn short_hash(text: &str) -> u32 {
    let hash = text::fnv1a(text.as_bytes());
    (hash ^ (hash >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_and_production_have_different_places() {
        let production = place_of("https://acme-v02.api.letsencrypt.org/directory");
        assert!(production.starts_with("acme-v02.api.letsencrypt.org_directory-"), "{production}");
        assert_ne!(production, place_of("https://acme-staging-v02.api.letsencrypt.org/directory"));
        assert!(!place_of("https://../../etc").contains('/'));
        assert!(!place_of("https://../../etc").starts_with('.'));
    }

    #[test]
    fn ids_name_all_names_in_any_order() {
        let id = |names: &[&str]| id_of(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(id(&["example.com"]), "example.com");
        assert_eq!(id(&["*.example.com"]), "wildcard.example.com");
        assert_eq!(id(&["::1"]), "__1");
        assert_ne!(id(&["a.test", "b.test"]), id(&["a.test", "c.test"]));
        let (one, other) = (id(&["a.test", "b.test", "c.test"]), id(&["a.test", "c.test", "b.test"]));
        assert_eq!(one, other);
    }
}
