//! Files without a name, which disappear with the last process that has them open; and reads that do not wait
//! for a disk.

use crate::closer::Closer;
use crate::system;
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the folder for temporary files cannot be used.
static NO_FOLDER: AtomicBool = AtomicBool::new(false);

/// From now on [`unnamed`] creates all files in memory, for a machine on which this user can write to no folder.
pub fn keep_in_memory() {
    NO_FOLDER.store(true, Ordering::Relaxed);
}

/// Creates a file without a name in `dir` that only this user may read and write. Linux can create files that
/// never have a name, on most file systems. Elsewhere a file is created and its name removed at once.
///
/// # Errors
/// As open(2): the folder does not exist, is full or is not writable.
pub fn unnamed(dir: &Path) -> io::Result<UnnamedFile> {
    let keeps = NO_FOLDER.load(Ordering::Relaxed);
    let file = if keeps { in_memory("firebrick-temporary") } else { system::unnamed(dir) };
    file.map(UnnamedFile::from)
}

/// A file without a name that is closed by another thread. The file system frees its blocks inside the last
/// close(2), which takes milliseconds for large files, and much longer on a busy disk or where each free block is
/// discarded (`mount -o discard`). An event loop must not wait for that.
#[derive(Debug)]
pub struct UnnamedFile(Option<File>);

/// Returns the number of files that have been dropped and are not closed yet.
pub fn closing() -> u64 {
    Closer::pending()
}

impl From<File> for UnnamedFile {
    fn from(file: File) -> UnnamedFile {
        UnnamedFile(Some(file))
    }
}

impl Deref for UnnamedFile {
    type Target = File;

    #[inline]
    fn deref(&self) -> &File {
        self.0.as_ref().unwrap_or_else(|| unreachable!("only drop takes the file"))
    }
}

impl DerefMut for UnnamedFile {
    fn deref_mut(&mut self) -> &mut File {
        self.0.as_mut().unwrap_or_else(|| unreachable!("only drop takes the file"))
    }
}

impl AsFd for UnnamedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.deref().as_fd()
    }
}

impl Drop for UnnamedFile {
    fn drop(&mut self) {
        if let Some(file) = self.0.take() {
            Closer::close(file);
        }
    }
}

/// Creates an empty file without a name, in memory where the system supports that.
///
/// # Errors
/// As [`unnamed`], in the folder for temporary files.
pub fn in_memory(name: &str) -> io::Result<File> {
    system::in_memory(name)
}

/// Returns whether files in this folder are in memory (tmpfs). `false` if the system does not tell.
pub fn is_in_memory(dir: &Path) -> bool {
    system::is_in_memory(dir)
}

/// Returns the bytes that this user can still write to the file system of this folder. `None` if the system does not tell (statvfs(3)).
pub fn free_bytes(dir: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(dir).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Reads the part of a file that is in memory, like read_at(2). Returns fewer bytes than `buffer` holds if
/// only a part is in memory, and 0 at the end of the file. Never waits for a disk.
///
/// # Errors
/// `WouldBlock`: nothing at `offset` is in memory; read it on a blocking thread. `Unsupported`: the file
/// system or the operating system cannot tell. Others as read(2).
#[inline]
pub fn read_cached(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    system::read_cached(file, offset, buffer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Seek, Write};
    use std::os::unix::fs::MetadataExt;

    #[cfg(all(target_os = "linux", not(firebrick_portable)))]
    #[test]
    fn a_tmpfs_is_in_memory() {
        assert!(!is_in_memory(Path::new("/proc")) && !is_in_memory(Path::new("/nonexistent")));
        let shared = Path::new("/dev/shm");
        assert!(is_in_memory(shared) || !shared.exists());
    }

    #[test]
    fn a_folder_has_free_bytes() {
        let dir = tempfile::tempdir().unwrap();
        assert!(free_bytes(dir.path()).is_some_and(|free| free > 0));
        assert_eq!(free_bytes(Path::new("/nonexistent")), None);
    }

    #[test]
    fn files_have_no_name_and_one_user_whichever_way() {
        let dir = tempfile::tempdir().unwrap();
        let files = [unnamed(dir.path()), crate::unlinked::create(dir.path()).map(UnnamedFile::from)];
        for mut file in files.map(Result::unwrap) {
            file.write_all(b"text").unwrap();
            file.rewind().unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            let found = file.metadata().unwrap();
            assert_eq!((text.as_str(), found.nlink(), found.mode() & 0o777), ("text", 0, 0o600));
            assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        }
        let missing = dir.path().join("missing");
        assert!(unnamed(&missing).is_err() && crate::unlinked::create(&missing).is_err());
        assert_eq!(in_memory("firebrick-test").unwrap().metadata().unwrap().nlink(), 0);
    }

    #[test]
    fn a_dropped_file_is_closed_soon_by_another_thread() {
        let dir = tempfile::tempdir().unwrap();
        let file = unnamed(dir.path()).unwrap();
        // Reading a pipe ends when its other end is closed.
        let (mut reader, writer) = std::io::pipe().unwrap();
        drop(file);
        drop(UnnamedFile::from(File::from(std::os::fd::OwnedFd::from(writer))));
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        while closing() > 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_has_just_been_written_is_in_memory() {
        let mut file = unnamed(&std::env::temp_dir()).unwrap();
        file.write_all(b"0123456789").unwrap();
        let mut buffer = [0; 4];
        // `Unsupported` is valid: not every file system can tell.
        match read_cached(&file, 8, &mut buffer) {
            Ok(read) => assert_eq!((read, &buffer[..2]), (2, &b"89"[..])),
            Err(error) => return assert_eq!(error.kind(), ErrorKind::Unsupported),
        }
        assert_eq!(read_cached(&file, 3, &mut buffer).unwrap(), 4);
        assert_eq!(&buffer, b"3456");
        assert_eq!(read_cached(&file, 10, &mut buffer).unwrap(), 0);
        let folder = File::open(std::env::temp_dir()).unwrap();
        assert!(read_cached(&folder, 0, &mut buffer).is_err());
    }
}
