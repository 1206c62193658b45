//! Checks the credentials of requests.
//!
//! Contract:
//! 1. The calling thread never blocks: slow hashes are computed on blocking threads, at most [`MAX_SLOW_CHECKS`] at a time in the
//!    whole process. A request whose client disconnects leaves the queue; a check that has started runs to its end.
//! 2. Credentials that this authenticator has verified before cost one SHA-256. Wrong ones are not cached.
//! 3. A wrong password and an unknown user take the same path through the code.

use crate::credentials::Credentials;
use crate::htpasswd::Users;
use crate::verified::{Fingerprint, VerifiedCache};
use std::cell::RefCell;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Most slow hashes that are computed at the same time, in the whole process.
const MAX_SLOW_CHECKS: usize = 4;

static SLOW_CHECKS: Semaphore = Semaphore::const_new(MAX_SLOW_CHECKS);

/// Verifies credentials against [`Users`]. One per front thread; create a new one when the users change.
pub struct Authenticator {
    users: Arc<Users>,
    verified: RefCell<VerifiedCache>,
}

impl Authenticator {
    /// An authenticator with an empty cache.
    pub fn new(users: Arc<Users>) -> Authenticator {
        Authenticator { users, verified: RefCell::default() }
    }

    /// The users it accepts.
    pub fn users(&self) -> &Arc<Users> {
        &self.users
    }

    /// The user name if the Authorization field has valid credentials; on `None` respond 401 with [`challenge`].
    /// Credentials that are not cached may wait for one of the [`MAX_SLOW_CHECKS`] permits. Needs a tokio runtime.
    pub async fn authenticate(&self, authorization: Option<&[u8]>) -> Option<String> {
        let value = authorization?;
        let fingerprint = Fingerprint::of(value);
        if let Some(user) = self.cached(fingerprint) {
            return Some(user);
        }
        let Credentials { user, password } = Credentials::parse(value)?;
        let (hash, known) = self.users.hash_for(&user)?;
        let matches = if hash.is_slow() {
            let permit = SLOW_CHECKS.acquire().await.ok()?;
            // Another request of the same page may have verified these credentials in the meantime.
            if let Some(user) = self.cached(fingerprint) {
                return Some(user);
            }
            let check = move || {
                let _permit = permit;
                hash.verify(&password)
            };
            tokio::task::spawn_blocking(check).await.unwrap_or(false)
        } else {
            hash.verify(&password)
        };
        if !(matches & known) {
            return None;
        }
        if let Some(fingerprint) = fingerprint {
            self.verified.borrow_mut().insert(fingerprint, &user);
        }
        Some(user)
    }

    fn cached(&self, fingerprint: Option<Fingerprint>) -> Option<String> {
        self.verified.borrow().get(fingerprint?).map(str::to_owned)
    }
}

/// Name and value of the header for a 401 response (RFC 7617 section 2).
pub fn challenge(realm: &str) -> (&'static str, String) {
    let mut value = String::from("Basic realm=\"");
    for character in realm.chars().filter(|character| !character.is_control()) {
        if matches!(character, '"' | '\\') {
            value.push('\\');
        }
        value.push(character);
    }
    value.push_str("\", charset=\"UTF-8\"");
    ("WWW-Authenticate", value)
}

#[cfg(test)]
#[path = "authenticator_tests.rs"]
mod tests;
