//! Password files for `Htpasswd`. Each file is read once, and again when it changes; then the front thread's
//! cache of verified credentials is discarded as well.

use auth::{Authenticator, PasswordClient, TooManyChecks, Users};
use mruby::Tape;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The interval between checks of a file for changes.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Modification time and size of a file when it was read.
type Version = (Option<SystemTime>, u64);

struct CachedPasswords {
    authenticator: Rc<Authenticator>,
    version: Version,
    checked: Instant,
}

#[derive(Default)]
pub(crate) struct Passwords {
    known: RefCell<HashMap<PathBuf, CachedPasswords>>,
}

impl Passwords {
    /// Returns the authenticator for a file.
    ///
    /// # Errors
    /// The file is invalid; the message has its name and lines. A file that becomes invalid rejects all credentials.
    pub(crate) fn authenticator(&self, file: &Path) -> Result<Rc<Authenticator>, String> {
        let now = Instant::now();
        let mut all = self.known.borrow_mut();
        if let Some(known) = all.get_mut(file) {
            if now.duration_since(known.checked) < CHECK_EVERY {
                return Ok(known.authenticator.clone());
            }
            known.checked = now;
            if version(file)? == known.version {
                return Ok(known.authenticator.clone());
            }
        }
        all.remove(file);
        // Before reading, so that the next check finds a change in between.
        let version = version(file)?;
        let text = std::fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
        let users = Users::parse(&file.display().to_string(), &text)
            .map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
        let authenticator = Rc::new(Authenticator::new(Arc::new(users)));
        all.insert(
            file.to_owned(),
            CachedPasswords { authenticator: authenticator.clone(), version, checked: now },
        );
        Ok(authenticator)
    }
}

fn version(file: &Path) -> Result<Version, String> {
    let found = std::fs::metadata(file).map_err(|error| unreadable(file, &error))?;
    Ok((found.modified().ok(), found.len()))
}

fn unreadable(file: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}; `htpasswd -cB {0} USER` creates one", file.display())
}

/// Returns the user's name, nil, or false if too many passwords wait to be checked.
pub(crate) async fn authenticated(
    authenticator: Rc<Authenticator>,
    authorization: Vec<u8>,
    client: PasswordClient,
) -> Tape {
    let mut tape = Tape::new();
    match authenticator.authenticate(Some(&authorization), || client).await {
        Ok(Some(user)) => tape.str(user),
        Ok(None) => tape.nil(),
        Err(TooManyChecks::Client | TooManyChecks::Server) => tape.bool(false),
    };
    tape
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_again_when_it_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("people");
        std::fs::write(&file, "ann:{PLAIN}a\n").unwrap();
        let passwords = Passwords::default();
        assert_eq!(passwords.authenticator(&file).unwrap().users().len(), 1);
        std::fs::write(&file, "ann:{PLAIN}a\nbob:{PLAIN}b\n").unwrap();
        assert_eq!(
            passwords.authenticator(&file).unwrap().users().len(),
            1,
            "it is not checked for each request"
        );
        passwords.known.borrow_mut().get_mut(&file).unwrap().checked -= CHECK_EVERY;
        assert_eq!(passwords.authenticator(&file).unwrap().users().len(), 2);
    }

    #[test]
    fn an_invalid_file_is_reported_and_rejects_everybody() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("people");
        let passwords = Passwords::default();
        let error = |passwords: &Passwords| passwords.authenticator(&file).err().unwrap_or_default();
        assert!(error(&passwords).contains("people: No such file"), "{}", error(&passwords));
        std::fs::write(&file, "ann:{PLAIN}a\n").unwrap();
        assert!(passwords.authenticator(&file).is_ok());
        std::fs::write(&file, "ann:{PLAIN}a\nbob:secret\n").unwrap();
        passwords.known.borrow_mut().get_mut(&file).unwrap().checked -= CHECK_EVERY;
        assert!((0..2).all(|_| error(&passwords).contains("people:2: ")));
    }
}
