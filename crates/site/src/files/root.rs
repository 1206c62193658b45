//! The directory that files come from, out of which no path leads.
//!
//! Contract:
//! 1. No path, and no symbolic link, leads out of the directory. A link with an absolute target counts as leading out.
//! 2. FIFOs and devices are never waited for.
//! 3. A directory that is replaced (a deployment that switches a link) is noticed within [`SAME_FOR`]; then its
//!    [`Root::generation`] is another.
//! 4. With names remembered ([`Root::with_names`]) a request whose first name is not in the directory costs at most one
//!    system call once the directory has not changed for two seconds, and none when there is no directory. That is for
//!    directories in front of an app, whose requests must not pay for files.

use rustix::fs::{AtFlags, Mode, OFlags};
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
pub(crate) const TOGETHER: Duration = Duration::from_micros(100);
/// How often to look by path whether the directory is still the same one.
pub(crate) const SAME_FOR: Duration = Duration::from_millis(250);
/// Names that are remembered at most; a directory with more is asked each time.
const MAX_NAMES: usize = 4_096;
/// What changed this recently may change again without its time changing: it is not to be trusted.
pub(crate) const SETTLED: Duration = Duration::from_secs(2);

/// A directory out of which no path leads.
#[derive(Debug)]
pub(crate) struct Root {
    path: PathBuf,
    remember_names: bool,
    state: RefCell<State>,
    generation: Cell<u64>,
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

/// What tells one state of a file or directory from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Version {
    len: u64,
    identity: (u64, u64),
    modified: (i64, i64),
    changed: (i64, i64),
}

/// What a path below the root is, as far as its name tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Glance {
    File(Version),
    Directory,
    /// Not there, or nothing that is served.
    Missing,
}

impl Root {
    /// The directory at `path`, which need not exist (yet).
    pub(crate) fn new(path: PathBuf) -> Root {
        Root {
            path,
            remember_names: false,
            state: RefCell::new(State::Unknown),
            generation: Cell::new(0),
            beneath: Cell::new(cfg!(target_os = "linux")),
        }
    }

    /// The same, remembering the names at its top.
    pub(crate) fn with_names(path: PathBuf) -> Root {
        Root { remember_names: true, ..Root::new(path) }
    }

    /// Whether a look at the directory can be spared because it was not there a moment ago.
    pub(crate) fn is_absent(&self, now: Instant) -> bool {
        matches!(*self.state.borrow(), State::Absent { looked } if now.saturating_duration_since(looked) < ABSENT_FOR)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Brings what is remembered up to date; `false` when there is no directory.
    pub(crate) fn look(&self, now: Instant) -> bool {
        let mut state = self.state.borrow_mut();
        let before = match &mut *state {
            State::Present(directory) => {
                if directory.is_current(&self.path, self.remember_names, now) {
                    return true;
                }
                Some(directory.version.identity)
            }
            State::Absent { looked } if now.saturating_duration_since(*looked) < ABSENT_FOR => return false,
            State::Absent { .. } | State::Unknown => None,
        };
        *state = Directory::open(&self.path, self.remember_names, now)
            .map_or(State::Absent { looked: now }, State::Present);
        let State::Present(directory) = &*state else { return false };
        if before != Some(directory.version.identity) {
            self.generation.set(self.generation.get() + 1);
        }
        true
    }

    /// Another number each time another directory stands at the path.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// Whether the directory may have that name at its top; always, unless names are remembered.
    pub(crate) fn may_have(&self, name: &str) -> bool {
        match &*self.state.borrow() {
            State::Present(directory) => {
                directory.names.as_ref().is_none_or(|names| names.contains(name.as_bytes()))
            }
            _ => false,
        }
    }

    /// Opens what is at a path below the root, `.` for the root itself.
    ///
    /// # Errors
    /// Whatever keeps it from being opened; `NotFound` when the path leads out or there is no root.
    pub(crate) fn open(&self, path: &str) -> io::Result<(File, Metadata)> {
        let state = self.state.borrow();
        let State::Present(directory) = &*state else { return Err(io::ErrorKind::NotFound.into()) };
        let file = self.open_in(directory, path)?;
        let metadata = file.metadata()?;
        Ok((file, metadata))
    }

    /// What a path leads to now. It may lead out of the root: to compare with what [`Root::open`] found, not to trust.
    pub(crate) fn glance(&self, path: &str) -> Glance {
        let state = self.state.borrow();
        let State::Present(directory) = &*state else { return Glance::Missing };
        match rustix::fs::statat(&directory.handle, path, AtFlags::empty()) {
            Ok(stat) => match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
                rustix::fs::FileType::RegularFile => Glance::File(Version::of_stat(&stat)),
                rustix::fs::FileType::Directory => Glance::Directory,
                _ => Glance::Missing,
            },
            Err(_) => Glance::Missing,
        }
    }

    /// Whether the last name of a path is a symbolic link's.
    pub(crate) fn is_link(&self, path: &str) -> bool {
        let state = self.state.borrow();
        let State::Present(directory) = &*state else { return false };
        rustix::fs::statat(&directory.handle, path, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink())
    }

    /// The names in a directory below the root with what they are; at most `limit`.
    ///
    /// # Errors
    /// It cannot be opened or read.
    pub(crate) fn list(&self, path: &str, limit: usize) -> io::Result<Vec<(String, Metadata)>> {
        let (directory, _) = self.open(path)?;
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::read_from(&directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if found.len() > limit {
                break;
            }
            if name.starts_with('.') {
                continue;
            }
            // What leads out of the root, or has gone, is not listed.
            let below = if path == "." { name.clone() } else { format!("{path}/{name}") };
            if let Ok((_, metadata)) = self.open(&below)
                && (metadata.is_file() || metadata.is_dir())
            {
                found.push((name, metadata));
            }
        }
        Ok(found)
    }

    fn open_in(&self, directory: &Directory, path: &str) -> io::Result<File> {
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

impl Directory {
    fn open(path: &Path, remember_names: bool, now: Instant) -> io::Result<Directory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        // The version is read before the names: a change in between shows at the next look.
        let metadata = handle.metadata()?;
        let age = SystemTime::now().duration_since(metadata.modified()?);
        Ok(Directory {
            handle,
            version: Version::of(&metadata),
            names: if remember_names { names(path)? } else { None },
            settled: age.is_ok_and(|age| age >= SETTLED),
            looked: now,
            looked_by_path: now,
        })
    }

    fn is_current(&mut self, path: &Path, remember_names: bool, now: Instant) -> bool {
        let by_path = now.saturating_duration_since(self.looked_by_path) >= SAME_FOR;
        if !by_path && (!remember_names || now.saturating_duration_since(self.looked) < TOGETHER) {
            return true;
        }
        let found = if by_path { std::fs::metadata(path) } else { self.handle.metadata() };
        let same = found.is_ok_and(|metadata| {
            let version = Version::of(&metadata);
            if remember_names {
                self.settled && version == self.version
            } else {
                version.identity == self.version.identity
            }
        });
        if same {
            self.looked = now;
            if by_path {
                self.looked_by_path = now;
            }
        }
        same
    }
}

impl Version {
    /// Of an open file.
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

    /// Seconds and nanoseconds of its last change.
    pub(crate) fn modified(&self) -> (i64, i64) {
        self.modified
    }

    /// Number of the device that it is on.
    pub(crate) fn device(&self) -> u64 {
        self.identity.0
    }

    /// Length in bytes.
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

/// Without NONBLOCK, opening a FIFO would wait for a writer. To a regular file it means nothing.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

#[cfg(target_os = "linux")]
fn open_beneath(directory: &File, path: &str) -> rustix::io::Result<std::os::fd::OwnedFd> {
    use rustix::fs::{ResolveFlags, openat2};
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    // Somebody renames directories at this moment: the kernel cannot vouch for the path and says EAGAIN.
    // Only an owner may leave the time of access as it is; that saves a little with each read.
    let mut flags = FILE | OFlags::NOATIME;
    for _ in 0..4 {
        match openat2(directory, path, flags, Mode::empty(), resolve) {
            Err(rustix::io::Errno::PERM) if flags != FILE => flags = FILE,
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
        let name = path.split('/').next().unwrap_or_default();
        if !root.look(now) || !root.may_have(name) {
            return None;
        }
        let (mut file, metadata) = root.open(path).ok()?;
        let mut text = String::new();
        metadata.is_file().then(|| file.read_to_string(&mut text).unwrap())?;
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
        let root = Root::with_names(public);
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
    fn a_root_that_another_takes_the_place_of_has_another_generation() {
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
        assert_eq!(read(&root, "a", start + SAME_FOR).as_deref(), Some("new"));
        assert_ne!(root.generation(), before);
    }

    #[test]
    fn a_glance_tells_kinds_and_versions_apart() {
        let (_dir, root) = tree(true);
        root.look(Instant::now());
        let (_, metadata) = root.open("a").unwrap();
        assert_eq!(root.glance("a"), Glance::File(Version::of(&metadata)));
        std::fs::write(root.path.join("a"), "longer").unwrap();
        assert_ne!(root.glance("a"), Glance::File(Version::of(&metadata)));
        assert_eq!(
            (root.glance("sub"), root.glance("fifo"), root.glance("no")),
            (Glance::Directory, Glance::Missing, Glance::Missing)
        );
    }

    #[test]
    fn a_listing_shows_what_may_be_opened() {
        let (_dir, root) = tree(true);
        std::fs::write(root.path.join(".hidden"), "").unwrap();
        root.look(Instant::now());
        let mut names: Vec<String> = root.list(".", 100).unwrap().into_iter().map(|(name, _)| name).collect();
        names.sort();
        assert_eq!(names, ["a", "in", "sub"]);
    }

    #[test]
    fn a_root_that_is_no_directory_is_absent() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("public");
        std::fs::write(&file, "text").unwrap();
        let root = Root::with_names(file);
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
