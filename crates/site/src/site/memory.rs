//! What paths led to, so that a path that is asked for again is not walked again.
//!
//! Contract: what is given out still holds: everything that was looked for in vain is still not there, and a file is
//! still the one that its path leads to (see [`crate::files::watches`] for how that is known without looking).

use super::walk::Before;
use crate::files::document::Document;
use crate::files::path::SitePath;
use crate::files::presentation::Presentation;
use crate::files::root::Glance;
use crate::files::store::Store;
use handler::Request;
use quick_cache::unsync::Cache;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Instant;

/// Paths that are remembered at most.
const PATHS: usize = 16_384;
/// Longer paths are not remembered.
const MAX_PATH: usize = 512;

/// What paths led to.
pub(super) struct Memory(RefCell<Cache<Box<[u8]>, Rc<Remembered>>>);

/// What one path led to. What each request looks at comes first, as in a [`Document`].
#[repr(C)]
pub(super) struct Remembered {
    before: Box<[(Box<str>, Glance)]>,
    pub(super) what: What,
    checked: Cell<Instant>,
    /// The epoch of the watches in which all of `before` is covered.
    covered: Cell<Option<u64>>,
    /// The path, decoded.
    pub(super) path: SitePath,
}

/// Who answers, with the fields that the rules add.
pub(super) enum What {
    File(Weak<Document>, Presentation),
    Proxy(usize, Rc<[(String, String)]>),
    App(Rc<[(String, String)]>),
}

impl Memory {
    /// Room for as many paths as files may be kept open.
    pub(super) fn new(files: usize) -> Memory {
        Memory(RefCell::new(Cache::new(PATHS.min(files))))
    }

    /// What the request's path led to before, if that still holds.
    pub(super) fn recall(&self, request: &Request, store: &Store) -> Option<Rc<Remembered>> {
        let remembered = self.0.borrow().get(request.path()).cloned()?;
        let there = store.look(request.arrived);
        (there || remembered.before.is_empty()).then_some(())?;
        remembered.still_holds(store, request.arrived).then_some(remembered)
    }

    pub(super) fn keep(&self, request: &Request, path: &SitePath, what: What, before: Before) {
        if request.path().len() > MAX_PATH {
            return;
        }
        let remembered = Remembered {
            path: path.clone(),
            what,
            before: before.into(),
            checked: Cell::new(request.arrived),
            covered: Cell::new(None),
        };
        self.0.borrow_mut().insert(request.path().into(), Rc::new(remembered));
    }
}

impl Remembered {
    fn still_holds(&self, store: &Store, now: Instant) -> bool {
        self.file_is_current(store, now) && self.before_holds(store, now)
    }

    fn file_is_current(&self, store: &Store, now: Instant) -> bool {
        match &self.what {
            What::File(document, _) => {
                document.upgrade().is_some_and(|document| store.is_current(&document, now))
            }
            What::Proxy(..) | What::App(_) => true,
        }
    }

    fn before_holds(&self, store: &Store, now: Instant) -> bool {
        if self.before.is_empty() || store.is_trusted(self.covered.get(), self.checked.get(), now) {
            return true;
        }
        let covered = self.cover(store, now);
        let holds = self.before.iter().all(|(path, was)| store.root.glance(path) == *was);
        if holds {
            self.checked.set(now);
            self.covered.set(covered);
        }
        holds
    }

    fn cover(&self, store: &Store, now: Instant) -> Option<u64> {
        let mut epoch = None;
        for (path, _) in &self.before {
            epoch = Some(store.cover(path, None, now).filter(|_| !store.root.is_link(path))?);
        }
        epoch
    }
}
