//! An open file whose bytes are sent.

use super::Hold;
use net::descriptors::CountedDescriptor;
use std::fs::File;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use sys::file::UnnamedFile;

/// An open file, counted as a descriptor of the process. If it is open for a single response, it also counts
/// as a resource held for that client.
#[derive(Debug)]
pub struct OpenFile {
    file: Arc<SharedFile>,
    hold: Option<Hold>,
    made: bool,
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
        OpenFile { file: Arc::new(file.into()), hold, made: false, _counted: CountedDescriptor::begin() }
    }

    /// Notes whether the server has made the file for the response. Otherwise the app has named it.
    #[must_use]
    pub fn made(self, made: bool) -> OpenFile {
        OpenFile { made, ..self }
    }

    pub fn is_made(&self) -> bool {
        self.made
    }

    /// Returns the hold of a file that is open for one response.
    pub fn hold(&self) -> Option<&Hold> {
        self.hold.as_ref()
    }

    /// Returns the file for use by another thread, without another descriptor.
    pub fn shared(&self) -> Arc<SharedFile> {
        self.file.clone()
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

impl Deref for OpenFile {
    type Target = File;

    #[inline]
    fn deref(&self) -> &File {
        &self.file
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
