//! HTTP Basic authentication (RFC 7617) against an htpasswd file.

mod htpasswd;

pub use htpasswd::{Mistake, Users};

use std::sync::Arc;

/// Decides who comes in. One for each front thread; make a new one when the users change.
pub struct Gatekeeper {
    users: Arc<Users>,
}

impl Gatekeeper {
    /// A gatekeeper for these users, who has seen nobody yet.
    pub fn new(users: Arc<Users>) -> Gatekeeper {
        Gatekeeper { users }
    }

    /// The users it knows.
    pub fn users(&self) -> &Arc<Users> {
        &self.users
    }

    /// The user whom this Authorization field proves; `None`: answer 401 with [`challenge`].
    /// Waits for a free place among the process's slow checks when the credentials are new to it.
    pub async fn admits(&self, authorization: Option<&[u8]>) -> Option<String> {
        let _ = authorization;
        unimplemented!()
    }
}

/// Name and value of the field that goes with a 401.
pub fn challenge(realm: &str) -> (&'static str, String) {
    let _ = realm;
    unimplemented!()
}
