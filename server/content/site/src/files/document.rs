//! Holds one version of one file, and its metadata.

use super::root::{SETTLED, Version};
use super::validators;
use handler::held::OpenFile;
use sha2::{Digest, Sha256};
use std::cell::{Cell, OnceCell};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The clock of file timestamps lags by less than this.
const TICK: Duration = Duration::from_millis(20);

/// In seconds since 1970. Earlier times are set by tools for reproducible builds: 1 (Nix, Paketo), 1980, 1985 (npm).
const PLAUSIBLE_FROM: i64 = 631_152_000;

/// Larger files are not read for their tags.
const DIGESTED: u64 = 256 << 10;

/// One version of one file. When the file changes, another document replaces it.
///
/// Fields are in order of use, those that every request reads first: with many files, every fetched cache
/// line costs as much as a small function.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Document {
    /// When the path was last known to lead to this version.
    pub checked: Cell<Instant>,
    /// The watch epoch during which inotify covers the file; `None` if it is not covered.
    pub covered: Cell<Option<u64>>,
    /// When the bytes were last requested.
    pub last_requested: Cell<Instant>,
    /// The last request came soon after the one before.
    pub soon: Cell<bool>,
    /// Identifies this version; never reused.
    pub id: u64,
    pub file: Rc<OpenFile>,
    pub version: Version,
    /// The file has not changed for a while, so the next change will show in its timestamps.
    pub settled: Cell<bool>,
    /// When the file counts as settled if it does not change; `None` if its timestamps lie in the future.
    pub settles_at: Option<Instant>,
    /// The file has one hard link, and its last name is not a symbolic link: inotify can watch it.
    pub coverable: bool,
    /// The path below the root.
    pub path: Box<str>,
    /// The last modification in whole seconds; `None` if a tool has set it to an implausible time.
    pub modified: Option<SystemTime>,
    tag: OnceCell<Box<str>>,
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
            file: Rc::new(OpenFile::from(file)),
            version,
            modified: (seconds >= PLAUSIBLE_FROM).then(|| validators::modified(seconds, wall)),
            tag: OnceCell::new(),
            covered: Cell::new(None),
            coverable: false,
            checked: Cell::new(now),
            last_requested: Cell::new(now.checked_sub(Duration::from_secs(1)).unwrap_or(now)),
            soon: Cell::new(false),
            settled: Cell::new(age.is_some_and(|age| age > SETTLED)),
            settles_at: age.map(|age| now + (SETTLED + TICK).saturating_sub(age)),
        }
    }

    /// Returns the opaque part of the entity tag, with quotes. If the file's time is that of its last change,
    /// length and time are enough. Tools that copy files set the time (rsync, tar, container images), some of
    /// them to the same value for all files (Nix, Paketo); then the content is hashed, so machines with the
    /// same files give the same tags. For a file that is too large to hash, inode and change time are added.
    pub(crate) fn tag(&self) -> &str {
        self.tag.get_or_init(|| {
            let (seconds, nanos) = self.version.modified();
            let tag = if self.version.is_genuine() {
                validators::tag(self.len(), seconds, nanos)
            } else if let Some(digest) = self.digest() {
                format!("\"{digest}-{:x}\"", self.len())
            } else {
                let tag = validators::tag(self.len(), seconds, nanos);
                format!("{}-{}\"", tag.trim_end_matches('"'), self.version.local())
            };
            tag.into()
        })
    }

    /// Returns a hash of the content; `None` if the file is too large or cannot be read.
    fn digest(&self) -> Option<String> {
        let content = (self.len() <= DIGESTED).then(|| self.read().ok()).flatten()?;
        Some(text::hex(&Sha256::digest(content)[..12]))
    }

    /// In bytes.
    pub(crate) fn len(&self) -> u64 {
        self.version.len()
    }

    /// Reads the whole file.
    ///
    /// # Errors
    /// `UnexpectedEof` if the length has changed: the file is another version now.
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        read(&self.file.shared(), self.len())
    }
}

/// Reads all `len` bytes of a file.
///
/// # Errors
/// `UnexpectedEof` if the file has another length.
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
                // The usual case: saves a second call that would only see the end.
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
    fn tags_differ_with_the_content_although_length_and_time_are_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let set = UNIX_EPOCH + Duration::from_secs(1);
        let document = |name: &str, len: usize, content: u8, time: SystemTime| {
            let path = dir.path().join(name);
            std::fs::write(&path, vec![content; len]).unwrap();
            File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            let file = File::open(&path).unwrap();
            let metadata = file.metadata().unwrap();
            Document::new(1, name, file, &metadata, Instant::now(), SystemTime::now())
        };
        for len in [1000, DIGESTED as usize + 1] {
            let [one, other] =
                [b'a', b'b'].map(|byte| document(&format!("{len}-{byte}"), len, byte, set).tag().to_owned());
            assert_ne!(one, other, "{len}");
        }
        let copies = ["one", "two"].map(|name| document(name, 1000, b'a', set).tag().to_owned());
        assert_eq!(copies[0], copies[1], "two machines with the same file");
        assert_eq!(document("old", 10, b'a', set).modified, None);
        let then = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        assert_eq!(document("new", 10, b'a', then).modified, Some(then));
    }

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
