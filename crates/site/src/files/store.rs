//! Files by their path, kept open and in memory as long as they stay what they are.
//!
//! Contract:
//! 1. What is given out is what the path led to less than [`TOGETHER`] before the request: a change is seen at once.
//! 2. Open files and bytes are bounded, whatever is asked for.
//! 3. Bytes are kept only of files whose next change must show in their times.

use super::document::Document;
use super::root::{Glance, Root, TOGETHER};
use super::watches::Watches;
use handler::Kept;
use quick_cache::unsync::Cache;
use quick_cache::{UnitWeighter, Weighter};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

/// Files up to this many bytes are read and written with their head in one call; larger ones go by sendfile.
pub(crate) const READ_BELOW: u64 = 64 << 10;

/// A file that was asked for this long ago is worth memory.
const OFTEN: Duration = Duration::from_millis(10);

/// Bounds of a store.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Files kept open.
    pub files: usize,
    /// Bytes of files kept in memory.
    pub bytes: u64,
}

/// What a path leads to.
#[derive(Debug)]
pub(crate) enum Found {
    File(Rc<Document>),
    Directory,
    Missing,
    /// It is there, but we may not read it.
    Forbidden,
    /// The system fails us.
    Trouble(io::Error),
}

/// The files of one directory.
#[derive(Debug)]
pub(crate) struct Store {
    pub root: Root,
    generation: Cell<u64>,
    watches: RefCell<Watches>,
    documents: RefCell<Cache<Box<str>, Rc<Document>, UnitWeighter>>,
    kept: RefCell<Cache<u64, Rc<Kept>, ByLength>>,
    next_id: Cell<u64>,
}

#[derive(Debug, Clone)]
struct ByLength;

impl Weighter<u64, Rc<Kept>> for ByLength {
    /// The body, and the message that it was written in.
    fn weight(&self, _: &u64, kept: &Rc<Kept>) -> u64 {
        2 * kept.body().len() as u64 + 512
    }
}

impl Store {
    pub(crate) fn new(root: Root, bounds: Bounds) -> Store {
        Store {
            watches: RefCell::new(Watches::new(root.path(), Instant::now())),
            root,
            generation: Cell::new(0),
            documents: RefCell::new(Cache::new(bounds.files)),
            kept: RefCell::new(Cache::with_weighter((bounds.bytes >> 12) as usize, bounds.bytes, ByLength)),
            next_id: Cell::new(0),
        }
    }

    /// Brings the root up to date; `false` when it is not there.
    pub(crate) fn look(&self, now: Instant) -> bool {
        let there = self.root.look(now);
        if self.root.generation() != self.generation.get() {
            self.generation.set(self.root.generation());
            self.documents.borrow_mut().clear();
            self.watches.replace(Watches::new(self.root.path(), now));
        }
        there
    }

    /// What a path below the root leads to; `.` is the root itself.
    pub(crate) fn find(&self, path: &str, now: Instant, wall: SystemTime) -> Found {
        let known = self.documents.borrow().get(path).cloned();
        if let Some(document) = known {
            if self.is_current(&document, now) {
                return Found::File(document);
            }
            self.documents.borrow_mut().remove(path);
        }
        let covered = self.cover(path, None, now);
        match self.root.open(path) {
            Ok((file, metadata)) if metadata.is_file() => {
                let mut document = Document::new(self.next_id(), path, file, &metadata, now, wall);
                document.coverable = metadata.nlink() == 1 && !self.root.is_link(path);
                document.covered.set(covered.filter(|_| document.coverable && self.is_here(&document)));
                let document = Rc::new(document);
                self.documents.borrow_mut().insert(path.into(), document.clone());
                Found::File(document)
            }
            Ok((_, metadata)) if metadata.is_dir() => Found::Directory,
            Ok(_) => Found::Missing,
            Err(error) => match error.kind() {
                io::ErrorKind::PermissionDenied => Found::Forbidden,
                io::ErrorKind::OutOfMemory => Found::Trouble(error),
                _ if matches!(
                    rustix::io::Errno::from_io_error(&error),
                    Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE | rustix::io::Errno::IO)
                ) =>
                {
                    Found::Trouble(error)
                }
                _ => Found::Missing,
            },
        }
    }

    /// Whether a document is still what its path leads to.
    pub(crate) fn is_current(&self, document: &Document, now: Instant) -> bool {
        if self.is_trusted(document.covered.get(), document.checked.get(), now) {
            return true;
        }
        let device = Some(document.version.device());
        let covered = document.coverable.then(|| self.cover(&document.path, device, now)).flatten();
        let current = self.root.glance(&document.path) == Glance::File(document.version);
        if current {
            document.checked.set(now);
            document.covered.set(covered);
        }
        current
    }

    /// Whether what was `checked` then, and is `covered`, needs no other look.
    pub(crate) fn is_trusted(&self, covered: Option<u64>, checked: Instant, now: Instant) -> bool {
        let age = now.saturating_duration_since(checked);
        if age < TOGETHER {
            return true;
        }
        age < Watches::TRUSTED_FOR && covered.is_some_and(|epoch| self.watches.borrow().epoch(now) == epoch)
    }

    /// Has the watches cover a path, before it is looked at: the epoch as long as which nothing changes.
    pub(crate) fn cover(&self, path: &str, device: Option<u64>, now: Instant) -> Option<u64> {
        let watches = self.watches.borrow();
        let epoch = watches.epoch(now);
        watches.cover(path, device, now).then_some(epoch)
    }

    fn is_here(&self, document: &Document) -> bool {
        self.watches.borrow().device() == document.version.device()
    }

    /// Another number each time: for what is kept.
    pub(crate) fn next_id(&self) -> u64 {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        id
    }

    /// All bytes of a document of at most [`READ_BELOW`] as they are kept under `id`, if they are in memory or are worth
    /// being there: it is asked for often. Others are better sent from the file, which costs no memory.
    ///
    /// # Errors
    /// It cannot be read, or is another version by now.
    pub(crate) fn hot(&self, id: u64, document: &Document, now: Instant) -> io::Result<Option<Rc<Kept>>> {
        let before = document.asked.replace(now);
        if let Some(kept) = self.kept.borrow().get(&id) {
            return Ok(Some(kept.clone()));
        }
        if !document.settled || now.saturating_duration_since(before) >= OFTEN {
            return Ok(None);
        }
        let kept = Rc::new(Kept::new(document.read()?.into()));
        self.kept.borrow_mut().insert(id, kept.clone());
        Ok(Some(kept))
    }
}
