//! Represents the directory that files come from; no path leads out of it.
//!
//! Contract:
//! 1. No path and no symbolic link leads out of the directory. A link with an absolute target counts as
//!    leading out. With [`Root::following`], links are followed wherever they lead.
//! 2. Opening a FIFO or device never blocks.
//! 3. A replaced directory (a deployment that switches a symbolic link) is noticed within
//!    [`RECHECK_PATH_AFTER`]; then [`Root::generation`] changes.
//! 4. With the top-level names cached ([`Root::with_names`]), a request whose first name is not among them
//!    costs at most one system call once the directory has not changed for two seconds, and none if there is
//!    no directory. This is for directories in front of an app, whose requests must not pay for files.

use super::beneath::{self, Opener};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// How often to look for a missing directory.
const RETRY_ABSENT_AFTER: Duration = Duration::from_secs(1);
/// Requests that arrive closer together than this share one check. Shorter than a client needs to get a
/// response, write a file and send the next request.
pub(crate) const RECHECK_AFTER: Duration = Duration::from_micros(100);
/// How often to check by path whether it is still the same directory.
pub(crate) const RECHECK_PATH_AFTER: Duration = Duration::from_millis(250);
/// The most cached names. If the directory has more, every request checks the disk.
const MAX_NAMES: usize = 4_096;
/// A file that changed this recently may change again without a new timestamp, so it is not cached.
pub(crate) const SETTLED: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Root {
    path: PathBuf,
    cache_names: bool,
    state: RefCell<State>,
    generation: Cell<u64>,
    opener: Opener,
    /// Links may lead out.
    follow: bool,
}

#[derive(Debug)]
enum State {
    Unknown,
    Absent { checked: Instant },
    Present(Directory),
}

#[derive(Debug)]
struct Directory {
    handle: File,
    version: Version,
    names: Option<HashSet<Box<[u8]>>>,
    settled: bool,
    checked: Instant,
    checked_by_path: Instant,
}

/// Identifies one state of a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Version {
    len: u64,
    identity: (u64, u64),
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The result of `stat` for a path below the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stat {
    File(Version),
    Directory,
    /// Missing, or neither a regular file nor a directory.
    Missing,
}

impl Root {
    /// Creates the root for the directory at `path`, which need not exist yet.
    pub(crate) fn new(path: PathBuf) -> Root {
        Root {
            path,
            cache_names: false,
            state: RefCell::new(State::Unknown),
            generation: Cell::new(0),
            opener: Opener::new(),
            follow: false,
        }
    }

    /// Allows links to lead out.
    pub(crate) fn following(self) -> Root {
        Root { follow: true, ..self }
    }

    /// Like `new`, with the top-level names cached.
    pub(crate) fn with_names(path: PathBuf) -> Root {
        Root { cache_names: true, ..Root::new(path) }
    }

    /// Returns whether the directory was missing a moment ago, so that there is no need to check again.
    pub(crate) fn is_absent(&self, now: Instant) -> bool {
        matches!(*self.state.borrow(), State::Absent { checked } if now.saturating_duration_since(checked) < RETRY_ABSENT_AFTER)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Refreshes the cached state of the directory. Returns `false` if it does not exist.
    pub(crate) fn refresh(&self, now: Instant) -> bool {
        let mut state = self.state.borrow_mut();
        let before = match &mut *state {
            State::Present(directory) => {
                if directory.is_current(&self.path, self.cache_names, now) {
                    return true;
                }
                Some(directory.version.identity)
            }
            State::Absent { checked } if now.saturating_duration_since(*checked) < RETRY_ABSENT_AFTER => {
                return false;
            }
            State::Absent { .. } | State::Unknown => None,
        };
        *state = Directory::open(&self.path, self.cache_names, now)
            .map_or(State::Absent { checked: now }, State::Present);
        let State::Present(directory) = &*state else { return false };
        if before != Some(directory.version.identity) {
            self.generation.set(self.generation.get() + 1);
        }
        true
    }

    /// Returns a number that changes each time another directory appears at the path.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// Returns whether the directory may contain that top-level name; always true unless names are cached.
    pub(crate) fn may_have(&self, name: &str) -> bool {
        match &*self.state.borrow() {
            State::Present(directory) => {
                directory.names.as_ref().is_none_or(|names| names.contains(name.as_bytes()))
            }
            _ => false,
        }
    }

    /// Opens a path below the root, `.` for the root itself.
    ///
    /// # Errors
    /// Any error of the system: EXDEV if the path leads out, `NotFound` if there is no root directory.
    pub(crate) fn open(&self, path: &str) -> io::Result<(File, Metadata)> {
        let state = self.state.borrow();
        let State::Present(directory) = &*state else { return Err(io::ErrorKind::NotFound.into()) };
        let file = if self.follow {
            beneath::follow(&directory.handle, path)?
        } else {
            self.opener.open(&directory.handle, path)?
        };
        let metadata = file.metadata()?;
        Ok((file, metadata))
    }

    /// Returns the current target of a path. It may lie outside the root: only compare it with the result of
    /// [`Root::open`].
    pub(crate) fn stat(&self, path: &str) -> Stat {
        let state = self.state.borrow();
        let State::Present(directory) = &*state else { return Stat::Missing };
        match rustix::fs::statat(&directory.handle, path, AtFlags::empty()) {
            Ok(stat) => match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
                rustix::fs::FileType::RegularFile => Stat::File(Version::of_stat(&stat)),
                rustix::fs::FileType::Directory => Stat::Directory,
                _ => Stat::Missing,
            },
            Err(_) => Stat::Missing,
        }
    }

    /// Returns whether the last name of a path is a symbolic link.
    pub(crate) fn is_link(&self, path: &str) -> bool {
        let state = self.state.borrow();
        let State::Present(directory) = &*state else { return false };
        rustix::fs::statat(&directory.handle, path, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink())
    }

    /// Returns the first `limit` entries of a directory below the root, in the order of a listing, and the
    /// number of all others. Names that begin with a dot and `hidden` names are left out.
    ///
    /// # Errors
    /// The directory cannot be opened or read.
    pub(crate) fn list(
        &self,
        path: &str,
        limit: usize,
        hidden: impl Fn(&str) -> bool,
    ) -> io::Result<(Vec<(String, Metadata)>, usize)> {
        use rustix::fs::FileType;
        let (directory, _) = self.open(path)?;
        // Entries that lead out of the root, or have disappeared, are not listed.
        let look = |name: &str| {
            let below = if path == "." { name.to_owned() } else { format!("{path}/{name}") };
            let metadata = self.open(&below).ok()?.1;
            (metadata.is_file() || metadata.is_dir()).then_some(metadata)
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') || hidden(&name) {
                continue;
            }
            match entry.file_type() {
                FileType::Directory => names.push((Reverse(true), name, None)),
                FileType::RegularFile => names.push((Reverse(false), name, None)),
                // The type of these shows only when they are opened.
                FileType::Symlink | FileType::Unknown => {
                    if let Some(metadata) = look(&name) {
                        names.push((Reverse(metadata.is_dir()), name, Some(metadata)));
                    }
                }
                _ => {}
            }
        }
        names.sort_by_cached_key(|(directory, name, _)| (*directory, name.to_lowercase(), name.clone()));
        let mut left = names.into_iter();
        let mut found = Vec::new();
        for (_, name, known) in left.by_ref() {
            if let Some(metadata) = known.or_else(|| look(&name)) {
                found.push((name, metadata));
            }
            if found.len() == limit {
                break;
            }
        }
        Ok((found, left.len()))
    }
}

impl Directory {
    fn open(path: &Path, cache_names: bool, now: Instant) -> io::Result<Directory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        // The version is read before the names, so that a change in between shows at the next check.
        let metadata = handle.metadata()?;
        let age = SystemTime::now().duration_since(metadata.modified()?);
        Ok(Directory {
            handle,
            version: Version::of(&metadata),
            names: if cache_names { names(path)? } else { None },
            settled: age.is_ok_and(|age| age >= SETTLED),
            checked: now,
            checked_by_path: now,
        })
    }

    fn is_current(&mut self, path: &Path, cache_names: bool, now: Instant) -> bool {
        let by_path = now.saturating_duration_since(self.checked_by_path) >= RECHECK_PATH_AFTER;
        if !by_path && (!cache_names || now.saturating_duration_since(self.checked) < RECHECK_AFTER) {
            return true;
        }
        let found = if by_path { std::fs::metadata(path) } else { self.handle.metadata() };
        let same = found.is_ok_and(|metadata| {
            let version = Version::of(&metadata);
            if cache_names {
                self.settled && version == self.version
            } else {
                version.identity == self.version.identity
            }
        });
        if same {
            self.checked = now;
            if by_path {
                self.checked_by_path = now;
            }
        }
        same
    }
}

impl Version {
    pub(crate) fn of(metadata: &Metadata) -> Version {
        Version {
            identity: (metadata.dev(), metadata.ino()),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    #[allow(clippy::unnecessary_cast)] // The types differ between systems.
    fn of_stat(stat: &rustix::fs::Stat) -> Version {
        Version {
            identity: (stat.st_dev as u64, stat.st_ino as u64),
            len: stat.st_size as u64,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }

    /// Returns whether the modification time is that of the last change and not set by a tool: then no other
    /// content has the same time.
    pub(crate) fn is_genuine(&self) -> bool {
        self.modified == self.changed
    }

    /// Returns a text that differs, on this machine, whenever the file does.
    pub(crate) fn local(&self) -> String {
        format!("{:x}.{:x}.{:x}", self.identity.1, self.changed.0, self.changed.1)
    }

    /// Seconds and nanoseconds of the last modification.
    pub(crate) fn modified(&self) -> (i64, i64) {
        self.modified
    }

    pub(crate) fn device(&self) -> u64 {
        self.identity.0
    }

    /// In bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}

fn names(path: &Path) -> io::Result<Option<HashSet<Box<[u8]>>>> {
    let mut names = HashSet::new();
    for entry in std::fs::read_dir(path)? {
        if names.len() == MAX_NAMES {
            return Ok(None);
        }
        names.insert(entry?.file_name().as_bytes().into());
    }
    Ok(Some(names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    fn read(root: &Root, path: &str, now: Instant) -> Option<String> {
        let name = path.split('/').next().unwrap_or_default();
        if !root.refresh(now) || !root.may_have(name) {
            return None;
        }
        let (mut file, metadata) = root.open(path).ok()?;
        let mut text = String::new();
        metadata.is_file().then(|| file.read_to_string(&mut text).unwrap())?;
        Some(text)
    }

    /// A tree with good and bad links, and a root for it.
    fn tree() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let public = dir.path().join("public");
        std::fs::create_dir_all(public.join("sub/deep")).unwrap();
        std::fs::create_dir(dir.path().join("public-secret")).unwrap();
        for (name, text) in
            [("secret", "secret"), ("public-secret/x", "secret"), ("public/a", "a"), ("public/sub/b", "b")]
        {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        symlink("../secret", public.join("out")).unwrap();
        symlink("../public-secret", public.join("sibling")).unwrap();
        symlink("/etc/passwd", public.join("absolute")).unwrap();
        symlink("sub/b", public.join("in")).unwrap();
        symlink("../a", public.join("sub/up")).unwrap();
        symlink("loop", public.join("loop")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            public.join("fifo"),
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        (dir, Root::with_names(public))
    }

    #[test]
    fn files_are_found_and_links_stay_inside() {
        let (_dir, root) = tree();
        let read = |path| read(&root, path, Instant::now());
        for (path, text) in [("a", "a"), ("sub/b", "b"), ("in", "b"), ("sub/up", "a")] {
            assert_eq!(read(path).as_deref(), Some(text), "{path}");
        }
        for path in [
            "out",
            "sibling/x",
            "absolute",
            "loop",
            "fifo",
            "sub",
            "sub/deep",
            "missing",
            "a/b",
            "sub/missing",
        ] {
            assert_eq!(read(path), None, "{path}");
        }
    }

    #[test]
    fn a_directory_that_appears_disappears_and_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let public = dir.path().join("public");
        let root = Root::with_names(public.clone());
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(read(&root, "a", start), None);
        assert!(root.is_absent(start) && !root.is_absent(later(1)));
        std::fs::create_dir(&public).unwrap();
        std::fs::write(public.join("a"), "first").unwrap();
        assert_eq!(read(&root, "a", later(2)).as_deref(), Some("first"));
        std::fs::rename(&public, dir.path().join("old")).unwrap();
        assert_eq!(read(&root, "a", later(3)), None);
        std::fs::create_dir(&public).unwrap();
        std::fs::write(public.join("a"), "second").unwrap();
        assert_eq!(read(&root, "a", later(5)).as_deref(), Some("second"));
    }

    #[test]
    fn new_files_are_seen_whether_the_directory_is_settled_or_not() {
        let (_dir, root) = tree();
        let start = Instant::now();
        for (second, name) in ["new1", "new2", "new3"].into_iter().enumerate() {
            let now = start + Duration::from_secs(second as u64);
            if second == 2 {
                settle(&root.path);
            }
            assert_eq!(read(&root, name, now), None);
            std::fs::write(root.path.join(name), "new").unwrap();
            assert_eq!(read(&root, name, now + RECHECK_AFTER).as_deref(), Some("new"));
        }
    }

    #[test]
    fn a_settled_directory_that_is_replaced() {
        let (dir, root) = tree();
        let start = Instant::now();
        settle(&root.path);
        assert_eq!(read(&root, "a", start).as_deref(), Some("a"));
        std::fs::rename(&root.path, dir.path().join("old")).unwrap();
        std::fs::create_dir(&root.path).unwrap();
        std::fs::write(root.path.join("b"), "b").unwrap();
        settle(&root.path);
        let later = start + RECHECK_PATH_AFTER;
        assert_eq!(read(&root, "a", later), None);
        assert_eq!(read(&root, "b", later).as_deref(), Some("b"));
    }

    #[test]
    fn a_directory_with_more_names_than_are_cached() {
        let (_dir, root) = tree();
        (0..=MAX_NAMES).for_each(|n| std::fs::write(root.path.join(format!("n{n}")), "n").unwrap());
        let now = Instant::now();
        assert_eq!(read(&root, &format!("n{MAX_NAMES}"), now).as_deref(), Some("n"));
        assert_eq!(read(&root, "missing", now), None);
    }

    /// Makes a directory look unchanged for some time.
    fn settle(path: &Path) {
        let times = std::fs::FileTimes::new().set_modified(SystemTime::now() - 2 * SETTLED);
        File::open(path).unwrap().set_times(times).unwrap();
    }

    #[test]
    fn a_replaced_root_has_a_new_generation() {
        let dir = tempfile::tempdir().unwrap();
        let [old, new, current] = ["old", "new", "current"].map(|name| dir.path().join(name));
        for release in [&old, &new] {
            std::fs::create_dir(release).unwrap();
            std::fs::write(release.join("a"), release.file_name().unwrap().as_bytes()).unwrap();
        }
        symlink(&old, &current).unwrap();
        let root = Root::new(current.clone());
        let start = Instant::now();
        assert_eq!(read(&root, "a", start).as_deref(), Some("old"));
        let before = root.generation();
        symlink(&new, dir.path().join("next")).unwrap();
        std::fs::rename(dir.path().join("next"), &current).unwrap();
        assert_eq!(read(&root, "a", start + RECHECK_PATH_AFTER).as_deref(), Some("new"));
        assert_ne!(root.generation(), before);
    }

    #[test]
    fn stat_distinguishes_kinds_and_versions() {
        let (_dir, root) = tree();
        root.refresh(Instant::now());
        let (_, metadata) = root.open("a").unwrap();
        assert_eq!(root.stat("a"), Stat::File(Version::of(&metadata)));
        std::fs::write(root.path.join("a"), "longer").unwrap();
        assert_ne!(root.stat("a"), Stat::File(Version::of(&metadata)));
        assert_eq!(
            (root.stat("sub"), root.stat("fifo"), root.stat("no")),
            (Stat::Directory, Stat::Missing, Stat::Missing)
        );
    }

    #[test]
    fn a_listing_shows_entries_that_can_be_opened() {
        let (_dir, root) = tree();
        std::fs::write(root.path.join(".hidden"), "").unwrap();
        root.refresh(Instant::now());
        let list = |limit| {
            let (found, more) = root.list(".", limit, |name| name == "private").unwrap();
            (found.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), more)
        };
        std::fs::write(root.path.join("private"), "").unwrap();
        assert_eq!(list(100), (vec!["sub".to_owned(), "a".to_owned(), "in".to_owned()], 0));
        assert_eq!(list(2), (vec!["sub".to_owned(), "a".to_owned()], 1));
        (0..12_345).for_each(|n| std::fs::write(root.path.join(format!("n{n}")), "").unwrap());
        let (found, more) = list(10_000);
        assert_eq!((found.len(), more), (10_000, 12_345 + 3 - 10_000));
    }

    #[test]
    fn a_root_that_follows_links_finds_what_is_elsewhere() {
        let (dir, root) = tree();
        let shared = dir.path().join("shared");
        std::fs::create_dir(&shared).unwrap();
        std::fs::write(shared.join("app.css"), "a{}").unwrap();
        symlink(&shared, root.path.join("assets")).unwrap();
        let root = root.following();
        let read = |path| read(&root, path, Instant::now());
        for (path, text) in
            [("assets/app.css", "a{}"), ("out", "secret"), ("sibling/x", "secret"), ("in", "b")]
        {
            assert_eq!(read(path).as_deref(), Some(text), "{path}");
        }
        for path in ["loop", "fifo", "missing", "assets/missing", "assets"] {
            assert_eq!(read(path), None, "{path}");
        }
    }

    #[test]
    fn a_root_that_is_not_a_directory_is_absent() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("public");
        std::fs::write(&file, "text").unwrap();
        let root = Root::with_names(file);
        let now = Instant::now();
        assert_eq!(read(&root, "a", now), None);
        assert!(root.is_absent(now));
    }
}
