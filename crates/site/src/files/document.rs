//! One version of one file, and its metadata.

use super::conditions;
use super::root::{SETTLED, Version};
use std::cell::Cell;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The clock of file timestamps is behind by less than this.
const TICK: Duration = Duration::from_millis(20);

/// One version of one file. When the file changes, another document replaces it.
///
/// Fields are in order of use: those that each request reads come first, because with many files every cache line that is
/// fetched costs as much as a small function.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Document {
    /// When its path was last known to lead to this version.
    pub checked: Cell<Instant>,
    /// The watch epoch during which inotify covers it; `None` when it is not covered.
    pub covered: Cell<Option<u64>>,
    /// When its bytes were last requested.
    pub last_requested: Cell<Instant>,
    /// That was soon after the request before.
    pub soon: Cell<bool>,
    /// Identifies this version; never reused.
    pub id: u64,
    pub file: Rc<File>,
    pub version: Version,
    /// It has not changed for a while, so the next change will show in its timestamps.
    pub settled: Cell<bool>,
    /// When that will be so, unless it changes before; `None` when its timestamps lie in the future.
    pub settles_at: Option<Instant>,
    /// One hard link and no symbolic link on its path: inotify can watch it.
    pub coverable: bool,
    /// Its path below the root.
    pub path: Box<str>,
    /// Last modification in whole seconds.
    pub modified: SystemTime,
}

impl Document {
    pub(crate) fn new(
        id: u64,
        path: &str,
        file: File,
        metadata: &Metadata,
        now: Instant,
        wall: SystemTime,
    ) -> Document {
        let version = Version::of(metadata);
        let (seconds, _) = version.modified();
        let changed = UNIX_EPOCH + Duration::new(u64::try_from(seconds).unwrap_or(0), 0);
        let age = wall.duration_since(changed).ok();
        Document {
            id,
            path: path.into(),
            file: Rc::new(file),
            version,
            modified: conditions::modified(seconds, wall),
            covered: Cell::new(None),
            coverable: false,
            checked: Cell::new(now),
            last_requested: Cell::new(now.checked_sub(Duration::from_secs(1)).unwrap_or(now)),
            soon: Cell::new(false),
            settled: Cell::new(age.is_some_and(|age| age > SETTLED)),
            settles_at: age.map(|age| now + (SETTLED + TICK).saturating_sub(age)),
        }
    }

    /// The opaque part of the entity tag, with quotes.
    pub(crate) fn tag(&self) -> String {
        let (seconds, nanos) = self.version.modified();
        conditions::tag(self.len(), seconds, nanos)
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.version.len()
    }

    /// Reads all of it.
    ///
    /// # Errors
    /// `UnexpectedEof` when its length has changed: it is another version now.
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        read(&self.file, self.len())
    }
}

/// Reads all `len` bytes of a file.
///
/// # Errors
/// `UnexpectedEof` when the file has another length.
pub(crate) fn read(file: &File, len: u64) -> io::Result<Vec<u8>> {
    let len = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
    // One byte more detects a file that has grown.
    let mut bytes = vec![0; len + 1];
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], read as u64) {
            Ok(0) => break,
            Ok(n) => {
                read += n;
                // The usual case: saves a second call just to see the end.
                if read == len {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if read != len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.truncate(len);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_length_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "0123456789").unwrap();
        let file = File::open(&path).unwrap();
        assert_eq!(read(&file, 10).unwrap(), b"0123456789");
        assert!(read(&file, 9).is_err() && read(&file, 11).is_err());
        assert_eq!(read(&File::open("/dev/null").unwrap(), 0).unwrap(), b"");
    }
}
