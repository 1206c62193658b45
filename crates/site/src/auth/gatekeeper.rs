//! Who comes in, and what the others are told.
//!
//! Contract:
//! 1. A front thread is never held up: slow hashes are computed on other threads, at most [`AT_ONCE`] in the whole process.
//!    A request whose client has gone gives up its place in the queue; what is being computed is finished.
//! 2. Credentials that this gatekeeper has verified cost a SHA-256. Wrong ones are not remembered.
//! 3. A wrong password and an unknown user take the same way through the code.

use super::credentials::Credentials;
use super::htpasswd::Users;
use super::memory::{Fingerprint, Memory};
use std::cell::RefCell;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Slow hashes that are computed at the same time.
const AT_ONCE: usize = 4;

static PLACES: Semaphore = Semaphore::const_new(AT_ONCE);

/// Decides who comes in. One for each front thread; make a new one when the users change.
pub struct Gatekeeper {
    users: Arc<Users>,
    memory: RefCell<Memory>,
}

impl Gatekeeper {
    /// A gatekeeper for these users, who has seen nobody yet.
    pub fn new(users: Arc<Users>) -> Gatekeeper {
        Gatekeeper { users, memory: RefCell::default() }
    }

    /// The users it knows.
    pub fn users(&self) -> &Arc<Users> {
        &self.users
    }

    /// The user whom this Authorization field proves; `None`: answer 401 with [`challenge`].
    /// Waits for a free place among the process's slow checks when the credentials are new to it.
    /// Needs a tokio runtime around it.
    pub async fn admits(&self, authorization: Option<&[u8]>) -> Option<String> {
        let value = authorization?;
        let fingerprint = Fingerprint::of(value);
        if let Some(user) = self.recall(fingerprint) {
            return Some(user);
        }
        let Credentials { user, password } = Credentials::read(value)?;
        let (hash, known) = self.users.hash_for(&user)?;
        let right = if hash.is_slow() {
            let place = PLACES.acquire().await.ok()?;
            // The page's other requests came with the same credentials, and one of them may have been faster.
            if let Some(user) = self.recall(fingerprint) {
                return Some(user);
            }
            let check = move || {
                let _place = place;
                hash.admits(&password)
            };
            tokio::task::spawn_blocking(check).await.unwrap_or(false)
        } else {
            hash.admits(&password)
        };
        if !(right & known) {
            return None;
        }
        if let Some(fingerprint) = fingerprint {
            self.memory.borrow_mut().keep(fingerprint, &user);
        }
        Some(user)
    }

    fn recall(&self, fingerprint: Option<Fingerprint>) -> Option<String> {
        self.memory.borrow().recall(fingerprint?).map(str::to_owned)
    }
}

/// Name and value of the field that goes with a 401 (RFC 7617 section 2).
pub fn challenge(realm: &str) -> (&'static str, String) {
    let mut value = String::from("Basic realm=\"");
    for letter in realm.chars().filter(|letter| !letter.is_control()) {
        if matches!(letter, '"' | '\\') {
            value.push('\\');
        }
        value.push(letter);
    }
    value.push_str("\", charset=\"UTF-8\"");
    ("WWW-Authenticate", value)
}

#[cfg(test)]
#[path = "gatekeeper_tests.rs"]
mod tests;
