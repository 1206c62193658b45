//! The directory that files come from.
//!
//! Most requests are for the app and must not pay for files. So the names at the top of the directory are remembered,
//! and one `fstat` of the directory, which walks no path, tells whether they are still right; requests that come
//! together share it.

use super::path::{FilePath, first_name};
use rustix::fs::{Mode, OFlags};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// How often to look for a directory that was not there.
const ABSENT_FOR: Duration = Duration::from_secs(1);
/// Requests that arrive closer together than this share one look. Shorter than it takes a client to be answered, to
/// write a file and to ask again.
const TOGETHER: Duration = Duration::from_micros(100);
/// How often to look by path whether the directory is still the same one. Replacing it shows sooner where a rename
/// changes the times of what is renamed, as it does on the usual file systems.
const SAME_FOR: Duration = Duration::from_secs(1);
/// Names that are remembered at most; a directory with more is asked each time.
const MAX_NAMES: usize = 4_096;
/// A directory that changed this recently may change again without its time changing: its names are not to be trusted.
const SETTLED: Duration = Duration::from_secs(2);

/// A directory out of which no path leads.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    state: RefCell<State>,
    /// The kernel itself keeps paths inside (`openat2`).
    beneath: Cell<bool>,
}

#[derive(Debug)]
enum State {
    Unknown,
    Absent { looked: Instant },
    Present(Directory),
}

#[derive(Debug)]
struct Directory {
    handle: File,
    version: Version,
    names: Option<HashSet<Box<[u8]>>>,
    settled: bool,
    looked: Instant,
    looked_by_path: Instant,
}

/// What tells one state of a directory from another.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    identity: (u64, u64),
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Root {
    pub(super) fn new(path: PathBuf) -> Root {
        Root { path, state: RefCell::new(State::Unknown), beneath: Cell::new(cfg!(target_os = "linux")) }
    }

    /// Whether a look at the directory can be spared because it was not there a moment ago.
    pub(super) fn is_absent(&self, now: Instant) -> bool {
        matches!(*self.state.borrow(), State::Absent { looked } if now.saturating_duration_since(looked) < ABSENT_FOR)
    }

    /// The first of the path's candidates that is a regular file which may be read.
    pub(super) fn find(&self, path: &FilePath, now: Instant) -> Option<Found> {
        self.look(now);
        let state = self.state.borrow();
        let State::Present(directory) = &*state else { return None };
        if path.directory_name().is_some_and(|name| !directory.may_have(name)) {
            return None;
        }
        let mut likely = path.candidates().filter(|path| directory.may_have(first_name(path)));
        likely.find_map(|path| {
            let file = self.open(directory, &path).ok()?;
            let metadata = file.metadata().ok()?;
            metadata.is_file().then_some(Found { path, file, metadata })
        })
    }

    /// Brings what is remembered up to date.
    fn look(&self, now: Instant) {
        let mut state = self.state.borrow_mut();
        if let State::Present(directory) = &mut *state
            && directory.is_current(&self.path, now)
        {
            return;
        }
        *state = Directory::open(&self.path, now).map_or(State::Absent { looked: now }, State::Present);
    }

    fn open(&self, directory: &Directory, path: &str) -> io::Result<File> {
        #[cfg(target_os = "linux")]
        if self.beneath.get() {
            match open_beneath(&directory.handle, path) {
                // Kernels before 5.6 do not know the call, and some sandboxes forbid what they do not know.
                Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => self.beneath.set(false),
                opened => return Ok(opened?.into()),
            }
        }
        let _ = directory;
        open_checked(&self.path, path)
    }
}

/// An open file of the directory.
#[derive(Debug)]
pub(super) struct Found {
    /// Its path below the root.
    pub path: String,
    pub file: File,
    pub metadata: Metadata,
}

impl Directory {
    fn open(path: &Path, now: Instant) -> io::Result<Directory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        // The version is read before the names: a change in between shows at the next look.
        let metadata = handle.metadata()?;
        let age = SystemTime::now().duration_since(metadata.modified()?);
        Ok(Directory {
            handle,
            version: Version::of(&metadata),
            names: names(path)?,
            settled: age.is_ok_and(|age| age >= SETTLED),
            looked: now,
            looked_by_path: now,
        })
    }

    fn is_current(&mut self, path: &Path, now: Instant) -> bool {
        if now.saturating_duration_since(self.looked) < TOGETHER {
            return true;
        }
        let by_path = now.saturating_duration_since(self.looked_by_path) >= SAME_FOR;
        let found = if by_path { std::fs::metadata(path) } else { self.handle.metadata() };
        if !self.settled || !found.is_ok_and(|metadata| Version::of(&metadata) == self.version) {
            return false;
        }
        self.looked = now;
        if by_path {
            self.looked_by_path = now;
        }
        true
    }

    fn may_have(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(name.as_bytes()))
    }
}

impl Version {
    fn of(metadata: &Metadata) -> Version {
        Version {
            identity: (metadata.dev(), metadata.ino()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
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

/// Without NONBLOCK, opening a FIFO would wait for a writer. To a regular file it means nothing.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

#[cfg(target_os = "linux")]
fn open_beneath(directory: &File, path: &str) -> rustix::io::Result<std::os::fd::OwnedFd> {
    use rustix::fs::{ResolveFlags, openat2};
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    // Somebody renames directories at this moment: the kernel cannot vouch for the path and says EAGAIN.
    for _ in 0..3 {
        match openat2(directory, path, FILE, Mode::empty(), resolve) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            opened => return opened,
        }
    }
    Err(rustix::io::Errno::AGAIN)
}

/// The slow twin: follows all links first, checks where they lead, and opens what was checked.
fn open_checked(root: &Path, path: &str) -> io::Result<File> {
    let root = root.canonicalize()?;
    let file = root.join(path).canonicalize()?;
    if !file.starts_with(&root) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(rustix::fs::open(&file, FILE | OFlags::NOFOLLOW, Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    fn read(root: &Root, path: &str, now: Instant) -> Option<String> {
        let mut text = String::new();
        root.find(&FilePath::decode(format!("/{path}").as_bytes())?, now)?
            .file
            .read_to_string(&mut text)
            .unwrap();
        Some(text)
    }

    /// A tree with good and bad links, and a root for it that does or does not use `openat2`.
    fn tree(beneath: bool) -> (tempfile::TempDir, Root) {
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
        let root = Root::new(public);
        root.beneath.set(beneath && root.beneath.get());
        (dir, root)
    }

    #[test]
    fn files_are_found_and_links_stay_inside() {
        for beneath in [true, false] {
            let (_dir, root) = tree(beneath);
            let read = |path| read(&root, path, Instant::now());
            let inside = [("a", "a"), ("sub/b", "b"), ("in", "b"), ("sub/up", "a")];
            assert!(inside.iter().all(|(path, text)| read(path).as_deref() == Some(text)), "{beneath}");
            let outside = [
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
            ];
            assert!(outside.iter().all(|path| read(path).is_none()), "{beneath}");
        }
    }

    #[test]
    fn a_directory_that_comes_goes_and_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let public = dir.path().join("public");
        let root = Root::new(public.clone());
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
        let (_dir, root) = tree(true);
        let start = Instant::now();
        for (second, name) in ["new1", "new2", "new3"].into_iter().enumerate() {
            let now = start + Duration::from_secs(second as u64);
            if second == 2 {
                settle(&root.path);
            }
            assert_eq!(read(&root, name, now), None);
            std::fs::write(root.path.join(name), "new").unwrap();
            assert_eq!(read(&root, name, now + TOGETHER).as_deref(), Some("new"));
        }
    }

    #[test]
    fn a_settled_directory_that_is_replaced() {
        let (dir, root) = tree(true);
        let start = Instant::now();
        settle(&root.path);
        assert_eq!(read(&root, "a", start).as_deref(), Some("a"));
        std::fs::rename(&root.path, dir.path().join("old")).unwrap();
        std::fs::create_dir(&root.path).unwrap();
        std::fs::write(root.path.join("b"), "b").unwrap();
        settle(&root.path);
        let later = start + SAME_FOR;
        assert_eq!(read(&root, "a", later), None);
        assert_eq!(read(&root, "b", later).as_deref(), Some("b"));
    }

    #[test]
    fn a_directory_with_more_names_than_are_remembered() {
        let (_dir, root) = tree(true);
        (0..=MAX_NAMES).for_each(|n| std::fs::write(root.path.join(format!("n{n}")), "n").unwrap());
        let now = Instant::now();
        assert_eq!(read(&root, &format!("n{MAX_NAMES}"), now).as_deref(), Some("n"));
        assert_eq!(read(&root, "missing", now), None);
    }

    /// Makes a directory look as if it had not changed for some time.
    fn settle(path: &Path) {
        let times = std::fs::FileTimes::new().set_modified(SystemTime::now() - 2 * SETTLED);
        File::open(path).unwrap().set_times(times).unwrap();
    }

    #[test]
    fn a_root_that_is_no_directory_is_absent() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("public");
        std::fs::write(&file, "text").unwrap();
        let root = Root::new(file);
        let now = Instant::now();
        assert_eq!(read(&root, "a", now), None);
        assert!(root.is_absent(now));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn both_ways_of_opening_agree_and_show_nothing_secret(
            names in prop::collection::vec(prop::sample::select(vec!["a", "sub", "b", "up", "in", "out", "sibling", "x", "loop", "deep"]), 1..4)
        ) {
            let path = names.join("/");
            let [fast, slow] = [true, false].map(|beneath| read(&tree(beneath).1, &path, Instant::now()));
            prop_assert_ne!(fast.as_deref(), Some("secret"));
            prop_assert_eq!(fast, slow);
        }
    }
}
