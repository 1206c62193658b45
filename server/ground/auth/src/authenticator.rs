//! Checks the credentials of requests.
//!
//! Contract:
//! 1. The calling thread never blocks: slow hashes are computed on blocking threads, a few at a time in the
//!    whole process, in an order that one client cannot monopolize (`checks`). A request whose client
//!    disconnects leaves the queue; a check that has started runs to its end.
//! 2. Credentials that this authenticator has verified before cost one SHA-256. Wrong ones are not cached.
//! 3. A wrong password and an unknown user take the same path through the code.

use crate::checks::{Checks, PasswordClient, TooManyChecks};
use crate::credentials::Credentials;
use crate::htpasswd::Users;
use crate::verified::{Fingerprint, VerifiedCache};
use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

/// The slow checks of the process.
static CHECKS: LazyLock<Arc<Checks>> = LazyLock::new(Checks::new);

/// Verifies credentials against [`Users`]. One per front thread; create a new one when the users change.
pub struct Authenticator {
    users: Arc<Users>,
    verified: RefCell<VerifiedCache>,
    checks: Arc<Checks>,
}

impl Authenticator {
    /// Creates an authenticator with an empty cache.
    pub fn new(users: Arc<Users>) -> Authenticator {
        Authenticator { users, verified: RefCell::default(), checks: CHECKS.clone() }
    }

    pub fn users(&self) -> &Arc<Users> {
        &self.users
    }

    /// Returns the user name if the Authorization field has valid credentials; on `None` respond 401 with
    /// [`challenge`]. Credentials that are not cached may wait for their turn. Needs a tokio runtime.
    ///
    /// # Errors
    /// Too many checks wait: respond 429 or 503.
    pub async fn authenticate(
        &self,
        authorization: Option<&[u8]>,
        client: impl FnOnce() -> PasswordClient,
    ) -> Result<Option<String>, TooManyChecks> {
        let Some(value) = authorization else { return Ok(None) };
        let fingerprint = Fingerprint::of(value);
        if let Some(user) = self.cached(fingerprint) {
            return Ok(Some(user));
        }
        let Some(Credentials { user, password }) = Credentials::parse(value) else { return Ok(None) };
        let Some((hash, known)) = self.users.hash_for(&user) else { return Ok(None) };
        let matches = if hash.is_slow() {
            let client = client();
            let turn = self.checks.turn(client).await?;
            // Another request of the same page may have verified these credentials in the meantime.
            if let Some(user) = self.cached(fingerprint) {
                return Ok(Some(user));
            }
            let checks = self.checks.clone();
            let check = move || {
                let matches = hash.verify(&password);
                checks.checked(client, matches & known);
                drop(turn);
                matches
            };
            tokio::task::spawn_blocking(check).await.unwrap_or(false)
        } else {
            hash.verify(&password)
        };
        if !(matches & known) {
            return Ok(None);
        }
        if let Some(fingerprint) = fingerprint {
            self.verified.borrow_mut().insert(fingerprint, &user);
        }
        Ok(Some(user))
    }

    fn cached(&self, fingerprint: Option<Fingerprint>) -> Option<String> {
        self.verified.borrow().get(fingerprint?).map(str::to_owned)
    }
}

/// Returns the name and value of the header field for a 401 response (RFC 7617 section 2).
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
