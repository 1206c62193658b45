//! Caches verified credentials.
//!
//! Contract: no password is kept, only the SHA-256 of a random key and the Authorization header. The key is
//! made once per process and never leaves it. There are at most [`CAPACITY`] entries; a new one replaces the
//! oldest.

use sha2::{Digest, Sha256};
use std::collections::{HashMap, VecDeque};
use std::sync::OnceLock;

/// The most entries per front thread; about 30 KiB.
const CAPACITY: usize = 256;

/// Stands for an Authorization header without revealing it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Returns the fingerprint of an Authorization header; `None` if the system has no random bytes for the key.
    pub(super) fn of(authorization: &[u8]) -> Option<Fingerprint> {
        static KEY: OnceLock<Option<[u8; 32]>> = OnceLock::new();
        let key = KEY.get_or_init(|| {
            let mut key = [0; 32];
            getrandom::fill(&mut key).ok().map(|()| key)
        });
        Some(Fingerprint(
            Sha256::new().chain_update(key.as_ref()?).chain_update(authorization).finalize().into(),
        ))
    }
}

/// User names by the fingerprint of their verified credentials.
#[derive(Default)]
pub(super) struct VerifiedCache {
    users: HashMap<Fingerprint, String>,
    /// Oldest first.
    order: VecDeque<Fingerprint>,
}

impl VerifiedCache {
    /// Returns the user of these credentials.
    pub(super) fn get(&self, fingerprint: Fingerprint) -> Option<&str> {
        self.users.get(&fingerprint).map(String::as_str)
    }

    pub(super) fn insert(&mut self, fingerprint: Fingerprint, user: &str) {
        if self.users.insert(fingerprint, user.to_owned()).is_some() {
            return;
        }
        self.order.push_back(fingerprint);
        if self.order.len() > CAPACITY
            && let Some(oldest) = self.order.pop_front()
        {
            self.users.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entry_is_replaced() {
        let fingerprint = |n: usize| Fingerprint::of(&n.to_le_bytes()).unwrap();
        let mut cache = VerifiedCache::default();
        for n in 0..=CAPACITY {
            cache.insert(fingerprint(n), &format!("user{n}"));
            cache.insert(fingerprint(n), &format!("user{n}"));
        }
        assert_eq!((cache.users.len(), cache.order.len()), (CAPACITY, CAPACITY));
        assert_eq!(cache.get(fingerprint(0)), None);
        assert_eq!(cache.get(fingerprint(1)), Some("user1"));
        assert_eq!(cache.get(fingerprint(CAPACITY)), Some(format!("user{CAPACITY}").as_str()));
    }

    #[test]
    fn a_fingerprint_is_keyed() {
        let fingerprint = Fingerprint::of(b"Basic QQ==").unwrap();
        assert!(
            fingerprint == Fingerprint::of(b"Basic QQ==").unwrap()
                && fingerprint != Fingerprint::of(b"Basic Qg==").unwrap()
        );
        assert_ne!(fingerprint.0[..], Sha256::digest(b"Basic QQ==")[..]);
    }
}
