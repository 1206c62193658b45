//! An open file whose bytes are sent.

use super::{Amount, Hold};
use net::descriptors::CountedDescriptor;
use net::memory::{MemoryClass, Reserved};
use std::cell::RefCell;
use std::fs::File;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use sys::file::UnnamedFile;

/// An open file, counted as a descriptor of the process. If it is open for a single response, it also counts
/// as a resource held for that client.
#[derive(Debug)]
pub struct OpenFile {
    file: RefCell<Arc<SharedFile>>,
    hold: Option<Hold>,
    made: bool,
    /// Counts the file in memory that a copy still reads after this has been dropped.
    late: RefCell<Option<Rc<Reserved>>>,
    _counted: CountedDescriptor,
}

/// The descriptor of an [`OpenFile`], also for other threads.
#[derive(Debug)]
pub enum SharedFile {
    /// The file has a name, or is in memory.
    Plain(File),
    /// Closing the file may wait for a disk.
    Unnamed(UnnamedFile),
}

impl OpenFile {
    /// Creates a file that is open for one response. Without a `hold`, it is counted for the process only.
    pub fn of_response(file: impl Into<SharedFile>, hold: Option<Hold>) -> OpenFile {
        let file = RefCell::new(Arc::new(file.into()));
        let late = RefCell::default();
        OpenFile { file, hold, made: false, late, _counted: CountedDescriptor::begin() }
    }

    /// Notes whether the server has made the file for the response. Otherwise the app has named it.
    #[must_use]
    pub fn made(mut self, made: bool) -> OpenFile {
        self.made = made;
        self
    }

    pub fn is_made(&self) -> bool {
        self.made
    }

    /// Returns the hold of a file that is open for one response.
    pub fn hold(&self) -> Option<&Hold> {
        self.hold.as_ref()
    }

    /// Returns the file as it is now, without another descriptor, also for another thread. See [`OpenFile::replace`].
    #[inline]
    pub fn shared(&self) -> Arc<SharedFile> {
        self.file.borrow().clone()
    }

    /// Begins a copy of the file, which is in memory, to a disk. Returns the file, and what must be kept as long as the file is
    /// read: it counts the file's memory if this is dropped meanwhile.
    pub fn begin_copy(&self) -> (Arc<SharedFile>, Rc<Reserved>) {
        let late = Rc::new(Reserved::new(MemoryClass::Files, 0));
        self.late.replace(Some(late.clone()));
        (self.shared(), late)
    }

    /// Puts the copy in the place of the file: `copy` has the same bytes at the same offsets, `disk` of them. Reads that have begun
    /// end with the file with which they began.
    pub fn replace(&self, copy: UnnamedFile, disk: u64) {
        self.file.replace(Arc::new(copy.into()));
        self.late.take();
        if let Some(hold) = &self.hold {
            hold.set(Amount { disk, ..Amount::FILE });
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if let Some(late) = self.late.get_mut() {
            late.set(self.hold.as_ref().map_or(0, |hold| hold.amount().memory));
        }
    }
}

impl<F: Into<SharedFile>> From<F> for OpenFile {
    /// Wraps a file that stays open anyway, for any number of responses.
    fn from(file: F) -> OpenFile {
        OpenFile::of_response(file, None)
    }
}

impl From<File> for SharedFile {
    fn from(file: File) -> SharedFile {
        SharedFile::Plain(file)
    }
}

impl From<UnnamedFile> for SharedFile {
    fn from(file: UnnamedFile) -> SharedFile {
        SharedFile::Unnamed(file)
    }
}

impl Deref for SharedFile {
    type Target = File;

    #[inline]
    fn deref(&self) -> &File {
        match self {
            SharedFile::Plain(file) => file,
            SharedFile::Unnamed(file) => file,
        }
    }
}
