//! Session tickets (RFC 5077, RFC 8446 section 4.6.1) that need no memory and outlive the process.
//!
//! A ticket consists of the name of its key (4 bytes), a random nonce (12), the encrypted session and its tag
//! (AES-256-GCM).
//!
//! Contract:
//! 1. Keys are derived from the secret, the rules under which sessions began, and the time period
//!    ([`EPOCH`]). Machines with the same secret accept each other's tickets, also across restarts.
//! 2. A ticket is valid until the end of the period after its own. Tickets of the next period are accepted as
//!    well, for machines whose clocks are ahead.
//! 3. A foreign, outdated or damaged ticket is ignored: the handshake is a full one.

use crate::TicketSecret;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use rustls::server::ProducesTickets;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a key is used for encryption.
const EPOCH: Duration = Duration::from_secs(12 * 3_600);
/// The length of a key's name, in bytes.
const NAME: usize = 4;

/// Encrypts and decrypts tickets.
pub struct Tickets {
    prk: Prk,
    keys: RwLock<Arc<Keys>>,
    clock: fn() -> SystemTime,
}

/// The keys of the last, the current and the next period.
struct Keys {
    epoch: u64,
    all: [Key; 3],
}

struct Key {
    name: [u8; NAME],
    key: LessSafeKey,
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tickets(keys not shown)")
    }
}

/// A length of key material, in bytes.
struct Bytes(usize);

impl KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

impl Tickets {
    /// Creates tickets for sessions under `rules`: bytes that must differ if a session under one set of rules
    /// must not be resumed under the other.
    pub fn new(secret: &TicketSecret, rules: &[u8]) -> Tickets {
        Tickets::with_clock(secret, rules, SystemTime::now)
    }

    fn with_clock(secret: &TicketSecret, rules: &[u8], clock: fn() -> SystemTime) -> Tickets {
        let prk = Salt::new(HKDF_SHA256, rules).extract(secret.bytes());
        let keys = RwLock::new(Arc::new(Keys::at(&prk, epoch(clock()))));
        Tickets { prk, keys, clock }
    }

    fn keys(&self) -> Arc<Keys> {
        let now = epoch((self.clock)());
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner).clone();
        if keys.epoch == now {
            return keys;
        }
        let keys = Arc::new(Keys::at(&self.prk, now));
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys.clone();
        keys
    }
}

fn epoch(now: SystemTime) -> u64 {
    now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / EPOCH.as_secs()
}

impl Keys {
    fn at(prk: &Prk, epoch: u64) -> Keys {
        let all =
            [epoch.saturating_sub(1), epoch, epoch.saturating_add(1)].map(|epoch| Key::derived(prk, epoch));
        Keys { epoch, all }
    }
}

impl Key {
    fn derived(prk: &Prk, epoch: u64) -> Key {
        let epoch = epoch.to_be_bytes();
        let mut bytes = [0; NAME + 32];
        let info = [b"firebrick session tickets 1".as_slice(), &epoch];
        let okm = prk.expand(&info, Bytes(NAME + 32)).and_then(|okm| okm.fill(&mut bytes));
        let (name, key) = bytes.split_at(NAME);
        let key = okm.and_then(|()| UnboundKey::new(&AES_256_GCM, key));
        let mut short = [0; NAME];
        short.copy_from_slice(name);
        Key { name: short, key: LessSafeKey::new(key.expect("the lengths are those of AES-256 and HKDF")) }
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        EPOCH.as_secs() as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let keys = self.keys();
        let current = &keys.all[1];
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut ticket = Vec::with_capacity(NAME + NONCE_LEN + plain.len() + AES_256_GCM.tag_len());
        ticket.extend(current.name);
        ticket.extend(nonce);
        ticket.extend(plain);
        let (head, body) = ticket.split_at_mut(NAME + NONCE_LEN);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = current.key.seal_in_place_separate_tag(nonce, Aad::from(&*head), body).ok()?;
        ticket.extend(tag.as_ref());
        Some(ticket)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (head, body) = ticket.split_at_checked(NAME + NONCE_LEN)?;
        let (name, nonce) = head.split_at(NAME);
        let keys = self.keys();
        let key = keys.all.iter().find(|key| key.name == name)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut plain = body.to_vec();
        let length = key.key.open_in_place(nonce, Aad::from(head), &mut plain).ok()?.len();
        plain.truncate(length);
        Some(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: u64 = 1_800_000_000;

    fn tickets(secret: &str, rules: &[u8], clock: fn() -> SystemTime) -> Tickets {
        Tickets::with_clock(&TicketSecret::new(secret), rules, clock)
    }

    fn at(periods: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(START) + EPOCH * periods as u32
    }

    fn now() -> SystemTime {
        at(5)
    }

    #[test]
    fn a_ticket_is_good_for_two_periods_and_for_clocks_that_differ() {
        let ticket = tickets("secret", b"", now).encrypt(b"session").unwrap();
        let read = |clock| tickets("secret", b"", clock).decrypt(&ticket);
        assert_eq!(read(now).as_deref(), Some(&b"session"[..]), "after a restart");
        assert_eq!(read(|| at(6)).as_deref(), Some(&b"session"[..]), "the period after");
        assert_eq!(read(|| at(4)).as_deref(), Some(&b"session"[..]), "a clock that is behind");
        assert_eq!(read(|| at(7)), None, "two periods later");
        assert_eq!(read(|| at(3)), None);
    }

    #[test]
    fn keys_change_while_the_server_runs() {
        use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
        static PERIOD: AtomicU64 = AtomicU64::new(0);
        let tickets = tickets("secret", b"", || at(PERIOD.load(Relaxed)));
        let first = tickets.encrypt(b"session").unwrap();
        PERIOD.store(1, Relaxed);
        let second = tickets.encrypt(b"session").unwrap();
        assert_ne!(first[..NAME], second[..NAME]);
        assert!(tickets.decrypt(&first).is_some() && tickets.decrypt(&second).is_some());
        PERIOD.store(2, Relaxed);
        assert!(tickets.decrypt(&first).is_none() && tickets.decrypt(&second).is_some());
    }

    #[test]
    fn other_secrets_and_other_rules_do_not_fit() {
        let ticket = tickets("secret", b"rules", now).encrypt(b"session").unwrap();
        assert!(tickets("other", b"rules", now).decrypt(&ticket).is_none());
        assert!(tickets("secret", b"others", now).decrypt(&ticket).is_none());
        assert_ne!(
            ticket,
            tickets("secret", b"rules", now).encrypt(b"session").unwrap(),
            "the nonce is random"
        );
    }

    proptest! {
        #[test]
        fn what_was_encrypted_is_read(plain in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let tickets = tickets("secret", b"", now);
            let ticket = tickets.encrypt(&plain).unwrap();
            prop_assert_eq!(tickets.decrypt(&ticket), Some(plain));
        }

        #[test]
        fn one_changed_bit_is_noticed(place in 0usize..10_000, bit in 0u8..8) {
            let tickets = tickets("secret", b"", now);
            let mut ticket = tickets.encrypt(&[7; 100]).unwrap();
            let place = place % ticket.len();
            ticket[place] ^= 1 << bit;
            prop_assert_eq!(tickets.decrypt(&ticket), None);
        }

        #[test]
        fn any_bytes_are_survived(ticket in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(tickets("secret", b"", now).decrypt(&ticket), None);
        }
    }
}
