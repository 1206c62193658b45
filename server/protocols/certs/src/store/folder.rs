//! A store in a directory, for one machine: [`Folder`].
//!
//! Contract:
//! 1. Directories are created with mode 0700, files with 0600.
//! 2. A file is replaced atomically: the new file reaches the disk before it gets the name.
//! 3. A lease is a kernel lock on a file: it ends with its process. Two servers with one directory order once.

use super::{CertificateStore, Error, Item, Lease, MAX_ITEM, Pending, place_of};
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The age at which an incomplete file, left by a crash, is removed.
const LEFTOVER: Duration = Duration::from_secs(3_600);

/// The files of one directory of a CA.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Returns the store of `directory` below `dir`. Its directory is created when something is saved.
    pub fn new(dir: &Path, directory: &str) -> Folder {
        Folder { path: dir.join(place_of(directory)) }
    }

    /// Removes incomplete files that a crash has left.
    pub fn tidy(&self) {
        let Ok(entries) = std::fs::read_dir(&self.path) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let age = entry
                .metadata()
                .and_then(|data| data.modified())
                .map(|at| SystemTime::now().duration_since(at));
            if name.starts_with('.') && name.ends_with(".tmp") && matches!(age, Ok(Ok(age)) if age > LEFTOVER)
            {
                // No process uses the file. If it cannot be removed, it is harmless.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// Returns the ids of all stored certificates.
    pub fn ids(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut ids: Vec<String> =
            names.filter_map(|name| Some(name.strip_suffix(".pem")?.to_owned())).collect();
        ids.sort_unstable();
        ids
    }

    /// Loads an item. Blocks.
    ///
    /// # Errors
    /// See [`CertificateStore::load`].
    pub fn read(&self, item: &Item) -> Result<Option<Vec<u8>>, Error> {
        let path = self.path.join(item.name());
        let mut bytes = Vec::new();
        let opened =
            File::open(&path).and_then(|file| file.take(MAX_ITEM as u64 + 1).read_to_end(&mut bytes));
        match opened {
            Ok(_) if bytes.len() > MAX_ITEM => {
                Err(Error(format!("{} is too large to be ours", path.display())))
            }
            Ok(_) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error(format!(
                "{} cannot be read: {error}; it must belong to the user that the server runs as",
                path.display()
            ))),
        }
    }

    /// Saves an item. Blocks.
    ///
    /// # Errors
    /// See [`CertificateStore::save`].
    pub fn write(&self, item: &Item, bytes: &[u8]) -> Result<(), Error> {
        self.create().map_err(|error| explain(&self.path, "created", &error))?;
        let path = self.path.join(item.name());
        let beside = self.path.join(format!(".{}.{}.tmp", item.name(), std::process::id()));
        let written = replace(&beside, &path, bytes);
        if written.is_err() {
            // An incomplete file is useless.
            let _ = std::fs::remove_file(&beside);
        }
        written.map_err(|error| explain(&path, "written", &error))
    }

    fn create(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
        let mode = std::fs::metadata(&self.path)?.permissions().mode();
        if mode & 0o077 != 0 {
            std::fs::set_permissions(&self.path, std::fs::Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    fn try_lease(&self, id: &str) -> Result<Option<Box<dyn Lease>>, Error> {
        self.create().map_err(|error| explain(&self.path, "created", &error))?;
        let path = self.path.join(format!("{id}.lock"));
        let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = opened.map_err(|error| explain(&path, "written", &error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(Locked { _file: file }))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(explain(&path, "locked", &error.into())),
        }
    }
}

/// Writes `bytes` to `beside`, syncs it, and renames it to `path`.
fn replace(beside: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    std::fs::rename(beside, path)?;
    // Syncs the name as well.
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

fn explain(path: &Path, what: &str, error: &io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; make room on the disk",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; name a folder of the server's user with --certs-dir"
        }
        _ => "",
    };
    Error(format!("{} cannot be {what}: {error}{hint}", path.display()))
}

/// A lock. It ends when the file is closed.
struct Locked {
    _file: File,
}

impl Lease for Locked {
    fn renew(&self) -> Pending<'_, Result<bool, Error>> {
        Box::pin(async { Ok(true) })
    }

    fn release(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move { drop(self) })
    }
}

/// All calls block: the files are small, and the thread has nothing else to do.
impl CertificateStore for Folder {
    fn describe(&self) -> String {
        self.path.display().to_string()
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn load<'a>(&'a self, item: &'a Item) -> Pending<'a, Result<Option<Vec<u8>>, Error>> {
        Box::pin(async move { self.read(item) })
    }

    fn save<'a>(&'a self, item: &'a Item, bytes: &'a [u8]) -> Pending<'a, Result<(), Error>> {
        Box::pin(async move { self.write(item, bytes) })
    }

    fn lease<'a>(&'a self, id: &'a str) -> Pending<'a, Result<Option<Box<dyn Lease>>, Error>> {
        Box::pin(async move { self.try_lease(id) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn folder() -> (tempfile::TempDir, Folder) {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(&dir.path().join("certs"), "https://ca.test/dir");
        (dir, folder)
    }

    fn certificate() -> Item {
        Item::Certificate("a.test".to_owned())
    }

    #[test]
    fn only_the_owner_can_read_files_and_folder() {
        let (_dir, folder) = folder();
        assert_eq!(folder.read(&certificate()), Ok(None), "nothing is there yet");
        folder.write(&certificate(), b"key").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder.path), 0o700);
        assert_eq!(mode(&folder.path.join("a.test.pem")), 0o600);
        assert_eq!(folder.read(&certificate()), Ok(Some(b"key".to_vec())));
        assert_eq!(folder.ids(), ["a.test"]);
    }

    #[test]
    fn a_reader_sees_the_old_or_the_new_whole_item() {
        let (_dir, folder) = folder();
        let (done, item) = (AtomicBool::new(false), certificate());
        folder.write(&item, &vec![b'0'; 50_000]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..60_u8 {
                    folder.write(&item, &vec![b'0' + round % 10; 50_000 + usize::from(round)]).unwrap();
                }
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                let read = folder.read(&item).unwrap().unwrap();
                assert!(read.len() >= 50_000 && read.iter().all(|byte| *byte == read[0]), "half of an item");
            }
        });
        let left: Vec<_> =
            std::fs::read_dir(&folder.path).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["a.test.pem"], "nothing is left beside it");
    }

    #[test]
    fn a_failed_write_leaves_the_old_item() {
        let (_dir, folder) = folder();
        folder.write(&certificate(), b"old").unwrap();
        // A directory in place of the temporary file makes the write fail, even for root.
        let beside = folder.path.join(format!(".a.test.pem.{}.tmp", std::process::id()));
        std::fs::create_dir(&beside).unwrap();
        let error = folder.write(&certificate(), b"new").unwrap_err();
        assert!(error.0.contains("a.test.pem cannot be written"), "{error}");
        assert_eq!(folder.read(&certificate()), Ok(Some(b"old".to_vec())));
    }

    #[test]
    fn a_lease_excludes_others_until_it_is_dropped() {
        let (_dir, folder) = folder();
        let first = folder.try_lease("a.test").unwrap();
        assert!(first.is_some());
        assert!(folder.try_lease("a.test").unwrap().is_none());
        assert!(folder.try_lease("b.test").unwrap().is_some());
        drop(first);
        assert!(folder.try_lease("a.test").unwrap().is_some());
    }
}
