//! Password files for `Htpasswd`: each is read once and again when it changes; a front thread's memory of who was verified goes
//! with it.

use mruby::Tape;
use site::auth::{Gatekeeper, Users};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// A changed file counts after so long at the latest.
const LOOK: Duration = Duration::from_secs(1);

/// Where a file stood when it was read.
type Mark = (Option<SystemTime>, u64);

struct Known {
    gatekeeper: Rc<Gatekeeper>,
    mark: Mark,
    looked: Instant,
}

/// The files of one VM.
#[derive(Default)]
pub(crate) struct Passwords {
    known: RefCell<HashMap<PathBuf, Known>>,
}

impl Passwords {
    /// Whoever decides for a file.
    ///
    /// # Errors
    /// What is wrong with the file, with its name and lines. A file that has become wrong lets nobody in.
    pub(crate) fn gatekeeper(&self, file: &Path) -> Result<Rc<Gatekeeper>, String> {
        let now = Instant::now();
        let mut all = self.known.borrow_mut();
        if let Some(known) = all.get_mut(file) {
            if now.duration_since(known.looked) < LOOK {
                return Ok(known.gatekeeper.clone());
            }
            known.looked = now;
            if mark(file)? == known.mark {
                return Ok(known.gatekeeper.clone());
            }
        }
        all.remove(file);
        // Taken before reading: what is written meanwhile is seen the next time.
        let mark = mark(file)?;
        let text = std::fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
        let users = Users::parse(&file.display().to_string(), &text)
            .map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
        let gatekeeper = Rc::new(Gatekeeper::new(Arc::new(users)));
        all.insert(file.to_owned(), Known { gatekeeper: gatekeeper.clone(), mark, looked: now });
        Ok(gatekeeper)
    }
}

fn mark(file: &Path) -> Result<Mark, String> {
    let found = std::fs::metadata(file).map_err(|error| unreadable(file, &error))?;
    Ok((found.modified().ok(), found.len()))
}

fn unreadable(file: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}; `htpasswd -cB {0} USER` makes one", file.display())
}

/// The user's name, or nil.
pub(crate) async fn admitted(gatekeeper: Rc<Gatekeeper>, authorization: Vec<u8>) -> Tape {
    let mut tape = Tape::new();
    match gatekeeper.admits(Some(&authorization)).await {
        Some(user) => tape.str(user),
        None => tape.nil(),
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
        assert_eq!(passwords.gatekeeper(&file).unwrap().users().len(), 1);
        std::fs::write(&file, "ann:{PLAIN}a\nbob:{PLAIN}b\n").unwrap();
        assert_eq!(passwords.gatekeeper(&file).unwrap().users().len(), 1, "not looked at for each request");
        passwords.known.borrow_mut().get_mut(&file).unwrap().looked -= LOOK;
        assert_eq!(passwords.gatekeeper(&file).unwrap().users().len(), 2);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_and_nobody_comes_in() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("people");
        let passwords = Passwords::default();
        let told = |passwords: &Passwords| passwords.gatekeeper(&file).err().unwrap_or_default();
        assert!(told(&passwords).contains("people: No such file"), "{}", told(&passwords));
        std::fs::write(&file, "ann:{PLAIN}a\n").unwrap();
        assert!(passwords.gatekeeper(&file).is_ok());
        std::fs::write(&file, "ann:{PLAIN}a\nbob:secret\n").unwrap();
        passwords.known.borrow_mut().get_mut(&file).unwrap().looked -= LOOK;
        assert!((0..2).all(|_| told(&passwords).contains("people:2: ")));
    }
}
