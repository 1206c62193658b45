//! Caches files by path, open and in memory, as long as they do not change.
//!
//! Contract:
//! 1. A result is the path's target less than [`RECHECK_AFTER`] before the request, so a change is visible at once.
//! 2. The number of open files and the bytes in memory are bounded, whatever clients request.
//! 3. Bytes are kept only of files whose next change must show in their timestamps, and only while memory is not scarce. They count as
//!    [`MemoryClass::Sites`], and are given back before clients wait for memory.

use super::document::Document;
use super::root::{RECHECK_AFTER, Root, Stat};
use super::watches::Watches;
use handler::Kept;
use net::memory::{self, Level, MemoryClass, Reserved};
use quick_cache::unsync::Cache;
use quick_cache::{UnitWeighter, Weighter};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

/// Files up to this many bytes may be kept in memory and written together with the head; larger ones are sent
/// by sendfile.
pub(crate) const MAX_IN_MEMORY: u64 = 64 << 10;

/// A file is kept in memory if it was requested this soon after the previous request, twice in a row. Once
/// happens by chance to each of thousands of randomly requested files, and would fill the memory with files
/// that are not requested again for long.
const HOT_WITHIN: Duration = Duration::from_millis(2);

/// The limits of a store.
#[derive(Debug, Clone, Copy)]
pub struct CacheBounds {
    /// The most files kept open.
    pub files: usize,
    /// The most bytes of files kept in memory.
    pub bytes: u64,
}

/// The target of a path.
#[derive(Debug)]
pub(crate) enum Lookup {
    File(Rc<Document>),
    Directory,
    Missing,
    /// A symbolic link leads out of the directory.
    LeadsOut,
    /// The file exists, but the server may not read it.
    Forbidden,
    /// A system error: too many open files, out of memory, or an I/O error.
    Failed(io::Error),
}

#[derive(Debug)]
pub(crate) struct FileStore {
    pub root: Root,
    generation: Cell<u64>,
    watches: RefCell<Watches>,
    documents: RefCell<Cache<Box<str>, Rc<Document>, UnitWeighter>>,
    kept: RefCell<Cache<u64, Rc<Kept>, ByLength>>,
    /// The bytes in `kept`.
    counted: Reserved,
    next_id: Cell<u64>,
}

#[derive(Debug, Clone)]
struct ByLength;

impl Weighter<u64, Rc<Kept>> for ByLength {
    /// Counts the body, and the messages of HTTP/1.1 and HTTP/2 that hold copies of it.
    fn weight(&self, _: &u64, kept: &Rc<Kept>) -> u64 {
        3 * kept.body().len() as u64 + 768
    }
}

impl FileStore {
    pub(crate) fn new(root: Root, bounds: CacheBounds) -> FileStore {
        FileStore {
            watches: RefCell::new(Watches::new(root.path(), Instant::now())),
            root,
            generation: Cell::new(0),
            documents: RefCell::new(Cache::new(bounds.files)),
            kept: RefCell::new(Cache::with_weighter((bounds.bytes >> 12) as usize, bounds.bytes, ByLength)),
            counted: Reserved::new(MemoryClass::Sites, 0),
            next_id: Cell::new(0),
        }
    }

    /// Refreshes the root. Returns `false` if it does not exist.
    pub(crate) fn refresh(&self, now: Instant) -> bool {
        let there = self.root.refresh(now);
        if self.root.generation() != self.generation.get() {
            self.generation.set(self.root.generation());
            self.documents.borrow_mut().clear();
            self.watches.replace(Watches::new(self.root.path(), now));
        }
        there
    }

    /// Looks up a path below the root; `.` is the root itself.
    pub(crate) fn find(&self, path: &str, now: Instant, wall: SystemTime) -> Lookup {
        let known = self.documents.borrow().get(path).cloned();
        if let Some(document) = known {
            if self.is_current(&document, now) {
                return Lookup::File(document);
            }
            self.documents.borrow_mut().remove(path);
        }
        let covered = self.cover(path, None, now);
        match self.root.open(path) {
            Ok((file, metadata)) if metadata.is_file() => {
                let mut document = Document::new(self.next_id(), path, file, &metadata, now, wall);
                document.coverable = metadata.nlink() == 1 && !self.root.is_link(path);
                document
                    .covered
                    .set(covered.filter(|_| document.coverable && self.is_on_root_device(&document)));
                let document = Rc::new(document);
                self.documents.borrow_mut().insert(path.into(), document.clone());
                Lookup::File(document)
            }
            Ok((_, metadata)) if metadata.is_dir() => Lookup::Directory,
            Ok(_) => Lookup::Missing,
            Err(error) => match error.kind() {
                io::ErrorKind::PermissionDenied => Lookup::Forbidden,
                io::ErrorKind::OutOfMemory => Lookup::Failed(error),
                _ if matches!(
                    rustix::io::Errno::from_io_error(&error),
                    Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE | rustix::io::Errno::IO)
                ) =>
                {
                    Lookup::Failed(error)
                }
                _ if rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::XDEV) => {
                    Lookup::LeadsOut
                }
                _ => Lookup::Missing,
            },
        }
    }

    /// Returns whether the path still leads to this document.
    pub(crate) fn is_current(&self, document: &Document, now: Instant) -> bool {
        if self.is_trusted(document.covered.get(), document.checked.get(), now) {
            return true;
        }
        let device = Some(document.version.device());
        let covered = document.coverable.then(|| self.cover(&document.path, device, now)).flatten();
        let current = self.root.stat(&document.path) == Stat::File(document.version);
        if current {
            document.checked.set(now);
            document.covered.set(covered);
        }
        current
    }

    /// Returns whether an entry can be used without another check. `checked`: its last check. `covered`: its
    /// inotify epoch.
    pub(crate) fn is_trusted(&self, covered: Option<u64>, checked: Instant, now: Instant) -> bool {
        let age = now.saturating_duration_since(checked);
        if age < RECHECK_AFTER {
            return true;
        }
        age < Watches::TRUSTED_FOR && covered.is_some_and(|epoch| self.watches.borrow().epoch(now) == epoch)
    }

    /// Adds watches for a path; call this before the path is checked. Returns the epoch during which nothing changes.
    pub(crate) fn cover(&self, path: &str, device: Option<u64>, now: Instant) -> Option<u64> {
        let watches = self.watches.borrow();
        let epoch = watches.epoch(now);
        watches.cover(path, device, now).then_some(epoch)
    }

    fn is_on_root_device(&self, document: &Document) -> bool {
        self.watches.borrow().device() == document.version.device()
    }

    /// Returns a new number each time, to identify cached entries.
    pub(crate) fn next_id(&self) -> u64 {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        id
    }

    /// Gives back the bytes of all files. They are read again once they are requested often.
    pub(crate) fn give_back(&self) {
        self.kept.borrow_mut().clear();
        self.counted.set(0);
    }

    /// Returns whether the document's next change must show in its timestamps.
    fn has_settled(&self, document: &Document, now: Instant) -> bool {
        if !document.settled.get() && document.settles_at.is_some_and(|at| at <= now) {
            document.settled.set(self.root.stat(&document.path) == Stat::File(document.version));
        }
        document.settled.get()
    }

    /// Returns all bytes of a document of at most [`MAX_IN_MEMORY`], cached under `id`, if they are in memory
    /// or requested often enough to be. Other files are better sent from the file, which costs no memory.
    ///
    /// # Errors
    /// The file cannot be read, or has changed.
    pub(crate) fn hot(&self, id: u64, document: &Document, now: Instant) -> io::Result<Option<Rc<Kept>>> {
        let before = document.last_requested.replace(now);
        if let Some(kept) = self.kept.borrow().get(&id) {
            return Ok(Some(kept.clone()));
        }
        let soon = now.saturating_duration_since(before) < HOT_WITHIN;
        let may = document.soon.replace(soon) && soon && memory::level() < Level::Files;
        if !(may && self.has_settled(document, now)) {
            return Ok(None);
        }
        let kept = Rc::new(Kept::new(document.read()?.into()));
        let mut all = self.kept.borrow_mut();
        all.insert(id, kept.clone());
        self.counted.set(all.weight());
        Ok(Some(kept))
    }
}

#[cfg(test)]
mod tests {
    use super::super::root::SETTLED;
    use super::*;

    /// Returns a folder with the file `new`, just written, and a store that has looked it up.
    fn with_a_new_file(now: Instant) -> (tempfile::TempDir, FileStore, Rc<Document>) {
        let dir = tempfile::tempdir().unwrap();
        let store =
            FileStore::new(Root::new(dir.path().to_owned()), CacheBounds { files: 8, bytes: 1 << 20 });
        std::fs::write(dir.path().join("new"), "first").unwrap();
        store.refresh(now);
        let Lookup::File(document) = store.find("new", now, SystemTime::now()) else { panic!("it is there") };
        (dir, store, document)
    }

    #[test]
    fn a_new_file_is_kept_in_memory_once_it_has_not_changed_for_a_while() {
        let now = Instant::now();
        let (_dir, store, document) = with_a_new_file(now);
        let hot = |at: Instant| {
            let _ = (store.hot(0, &document, at).unwrap(), store.hot(0, &document, at).unwrap());
            store.hot(0, &document, at).unwrap().map(|kept| kept.body().to_vec())
        };
        assert_eq!(hot(now), None, "it may change again without a new timestamp");
        let later = now + 2 * SETTLED;
        assert_eq!(hot(later).as_deref(), Some(&b"first"[..]));
    }

    #[test]
    fn a_new_file_that_has_changed_is_not_kept_in_memory() {
        let now = Instant::now();
        let (dir, store, document) = with_a_new_file(now);
        std::fs::write(dir.path().join("new"), "another one").unwrap();
        let later = now + 2 * SETTLED;
        let _ = (store.hot(0, &document, later).unwrap(), store.hot(0, &document, later).unwrap());
        assert!(store.hot(0, &document, later).unwrap().is_none());
    }
}
