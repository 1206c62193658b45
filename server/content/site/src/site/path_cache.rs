//! Caches the results of paths, so that repeated paths skip the walk through the rules.
//!
//! Contract: a returned entry is valid: all files that were missing are still missing, and the path still
//! leads to the same file (see [`crate::files::watches`] for how that is known without a check).

use super::walk::Misses;
use crate::files::document::Document;
use crate::files::path::SitePath;
use crate::files::presentation::Presentation;
use crate::files::root::Stat;
use crate::files::store::FileStore;
use handler::Request;
use quick_cache::unsync::Cache;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Instant;

/// The most cached paths.
const PATHS: usize = 16_384;
/// Longer paths are not cached.
const MAX_PATH: usize = 512;

pub(super) struct PathCache(RefCell<Cache<Box<[u8]>, Rc<CachedPath>>>);

/// The result for one path. The fields that every request reads come first, as in a [`Document`].
#[repr(C)]
pub(super) struct CachedPath {
    misses: Box<[(Box<str>, Stat)]>,
    pub(super) target: Target,
    checked: Cell<Instant>,
    /// The watch epoch during which all of `misses` is covered.
    covered: Cell<Option<u64>>,
    /// The decoded path.
    pub(super) path: SitePath,
}

/// The destination of a path, with the fields that the rules add.
pub(super) enum Target {
    File(Weak<Document>, Presentation),
    Proxy(usize, Rc<[(String, String)]>),
    App(Rc<[(String, String)]>),
}

impl PathCache {
    /// Creates a cache for as many paths as files may be open.
    pub(super) fn new(files: usize) -> PathCache {
        PathCache(RefCell::new(Cache::new(PATHS.min(files))))
    }

    /// Returns the result for the request's path, if it is still valid.
    pub(super) fn get(&self, request: &Request, store: &FileStore) -> Option<Rc<CachedPath>> {
        let cached = self.0.borrow().get(request.path()).cloned()?;
        let there = store.refresh(request.arrived);
        (there || cached.misses.is_empty()).then_some(())?;
        cached.still_holds(store, request.arrived).then_some(cached)
    }

    pub(super) fn insert(&self, request: &Request, path: &SitePath, target: Target, misses: Misses) {
        if request.path().len() > MAX_PATH {
            return;
        }
        let cached = CachedPath {
            path: path.clone(),
            target,
            misses: misses.into(),
            checked: Cell::new(request.arrived),
            covered: Cell::new(None),
        };
        self.0.borrow_mut().insert(request.path().into(), Rc::new(cached));
    }
}

impl CachedPath {
    fn still_holds(&self, store: &FileStore, now: Instant) -> bool {
        self.file_is_current(store, now) && self.misses_hold(store, now)
    }

    fn file_is_current(&self, store: &FileStore, now: Instant) -> bool {
        match &self.target {
            Target::File(document, _) => {
                document.upgrade().is_some_and(|document| store.is_current(&document, now))
            }
            Target::Proxy(..) | Target::App(_) => true,
        }
    }

    fn misses_hold(&self, store: &FileStore, now: Instant) -> bool {
        if self.misses.is_empty() || store.is_trusted(self.covered.get(), self.checked.get(), now) {
            return true;
        }
        let covered = self.cover(store, now);
        let holds = self.misses.iter().all(|(path, was)| store.root.stat(path) == *was);
        if holds {
            self.checked.set(now);
            self.covered.set(covered);
        }
        holds
    }

    fn cover(&self, store: &FileStore, now: Instant) -> Option<u64> {
        let mut epoch = None;
        for (path, _) in &self.misses {
            epoch = Some(store.cover(path, None, now).filter(|_| !store.root.is_link(path))?);
        }
        epoch
    }
}
