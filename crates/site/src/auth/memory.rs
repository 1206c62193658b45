//! Credentials that were verified not long ago.
//!
//! Contract: no password is kept, only SHA-256 of a key and the field that carried it; the key is made at random when the process
//! first needs one and is never shown. At most [`ROOM`] are remembered; a new one takes the place of the oldest.

use sha2::{Digest, Sha256};
use std::collections::{HashMap, VecDeque};
use std::sync::OnceLock;

/// How many are remembered by a front thread: some 30 KiB.
const ROOM: usize = 256;

/// What is remembered instead of a field's value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of an Authorization field; `None` when the system has no random bytes for a key.
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

/// Who was verified with what.
#[derive(Default)]
pub(super) struct Memory {
    users: HashMap<Fingerprint, String>,
    /// The oldest first.
    order: VecDeque<Fingerprint>,
}

impl Memory {
    /// The user who was verified with it.
    pub(super) fn recall(&self, fingerprint: Fingerprint) -> Option<&str> {
        self.users.get(&fingerprint).map(String::as_str)
    }

    /// Remembers a success.
    pub(super) fn keep(&mut self, fingerprint: Fingerprint, user: &str) {
        if self.users.insert(fingerprint, user.to_owned()).is_some() {
            return;
        }
        self.order.push_back(fingerprint);
        if self.order.len() > ROOM
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
    fn the_oldest_makes_room() {
        let print = |n: usize| Fingerprint::of(&n.to_le_bytes()).unwrap();
        let mut memory = Memory::default();
        for n in 0..=ROOM {
            memory.keep(print(n), &format!("user{n}"));
            memory.keep(print(n), &format!("user{n}"));
        }
        assert_eq!((memory.users.len(), memory.order.len()), (ROOM, ROOM));
        assert_eq!(memory.recall(print(0)), None);
        assert_eq!(memory.recall(print(1)), Some("user1"));
        assert_eq!(memory.recall(print(ROOM)), Some(format!("user{ROOM}").as_str()));
    }

    #[test]
    fn a_fingerprint_is_keyed() {
        let print = Fingerprint::of(b"Basic QQ==").unwrap();
        assert!(
            print == Fingerprint::of(b"Basic QQ==").unwrap()
                && print != Fingerprint::of(b"Basic Qg==").unwrap()
        );
        assert_ne!(print.0[..], Sha256::digest(b"Basic QQ==")[..]);
    }
}
