//! An open file whose bytes are sent: [`OpenFile`].

use super::Hold;
use net::descriptors::Held;
use std::fs::File;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// An open file, counted as one of the process's descriptors; of a response alone also as something that its client makes the server hold.
#[derive(Debug)]
pub struct OpenFile {
    file: Arc<File>,
    hold: Option<Hold>,
    _counted: Held,
}

impl OpenFile {
    /// A file that is open for one response. Without a `hold` it is counted for the process only.
    pub fn of_response(file: File, hold: Option<Hold>) -> OpenFile {
        OpenFile { file: Arc::new(file), hold, _counted: Held::begin() }
    }

    /// What is held with it, if it is open for one response.
    pub fn hold(&self) -> Option<&Hold> {
        self.hold.as_ref()
    }

    /// The file for another thread, without another descriptor.
    pub fn shared(&self) -> Arc<File> {
        self.file.clone()
    }
}

impl From<File> for OpenFile {
    /// A file that is open anyway, for any number of responses.
    fn from(file: File) -> OpenFile {
        OpenFile::of_response(file, None)
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
