//! Watches directories with inotify.

use super::super::root::RECHECK_AFTER;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// After a change, nothing is covered for this long, because more changes often follow.
const UNCOVERED_AFTER_CHANGE: Duration = Duration::from_millis(50);

/// File systems on which all changes go through this kernel.
const LOCAL: [i64; 7] =
    [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630, 0x2FC1_2FC1, 0xF2F5_2010];
/// The most watched directories.
const MAX_DIRECTORIES: usize = 4_096;

/// The watches below one root.
pub(crate) struct Watches {
    queue: Option<OwnedFd>,
    root: PathBuf,
    device: u64,
    covered: RefCell<HashSet<Box<str>>>,
    epoch: Cell<u64>,
    polled: Cell<Instant>,
    changed: Cell<Option<Instant>>,
}

impl Watches {
    /// Watches nothing yet.
    pub(crate) fn new(root: &Path, now: Instant) -> Watches {
        let local = rustix::fs::statfs(root).is_ok_and(|found| {
            #[allow(clippy::unnecessary_cast)] // The type differs between machines.
            LOCAL.contains(&(found.f_type as i64))
        });
        let queue = local.then(|| inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()).flatten();
        Watches {
            queue,
            root: root.to_owned(),
            device: std::fs::metadata(root).map_or(0, |found| found.dev()),
            covered: RefCell::default(),
            epoch: Cell::new(0),
            polled: Cell::new(now),
            changed: Cell::new(None),
        }
    }

    /// Returns a number that changes whenever a covered path changes.
    pub(crate) fn epoch(&self, now: Instant) -> u64 {
        if now.saturating_duration_since(self.polled.get()) >= RECHECK_AFTER {
            self.polled.set(now);
            self.poll(now);
        }
        self.epoch.get()
    }

    fn poll(&self, now: Instant) {
        let Some(queue) = &self.queue else { return };
        let mut events = [0u8; 4096];
        let mut any = false;
        // The events' content does not matter; a full buffer means that there may be more.
        while let Ok(n) = rustix::io::read(queue, &mut events) {
            any = true;
            if n < events.len() / 2 {
                break;
            }
        }
        if any {
            self.epoch.set(self.epoch.get() + 1);
            self.changed.set(Some(now));
            // The watches of removed directories are gone.
            self.covered.borrow_mut().clear();
        }
    }

    /// Watches every directory that determines the target of `path`, whether it exists or not. Returns
    /// `false` if that is not possible. Call this before the path is checked. `device`: the device of the
    /// file, if known.
    pub(crate) fn cover(&self, path: &str, device: Option<u64>, now: Instant) -> bool {
        let unsettled = self
            .changed
            .get()
            .is_some_and(|changed| now.saturating_duration_since(changed) < UNCOVERED_AFTER_CHANGE);
        if self.queue.is_none() || unsettled || device.is_some_and(|device| device != self.device) {
            return false;
        }
        let mut ends = path.match_indices('/').map(|(at, _)| &path[..at]);
        self.watch("") && ends.all(|directory| self.watch(directory))
    }

    /// Watches a directory. A missing one is covered by its parent.
    fn watch(&self, directory: &str) -> bool {
        if self.covered.borrow().contains(directory) {
            return true;
        }
        let Some(queue) = &self.queue else { return false };
        if self.covered.borrow().len() >= MAX_DIRECTORIES {
            return false;
        }
        let what = WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVE
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        // The root may be a symbolic link; links below it are not covered.
        let what = if directory.is_empty() { what } else { what | WatchFlags::DONT_FOLLOW };
        match inotify::add_watch(queue, self.root.join(directory), what) {
            Ok(_) => {
                self.covered.borrow_mut().insert(directory.into());
                true
            }
            Err(rustix::io::Errno::NOENT) => true,
            Err(_) => false,
        }
    }

    pub(crate) fn device(&self) -> u64 {
        self.device
    }

    /// How long a covered path may go without a check.
    pub(crate) const TRUSTED_FOR: Duration = Duration::from_secs(5);
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watches")
            .field("root", &self.root)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_change_starts_a_new_epoch() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(path("a/b")).unwrap();
        std::fs::write(path("a/b/c"), "1").unwrap();
        let start = Instant::now();
        let watches = Watches::new(dir.path(), start);
        type Change<'a> = (&'a str, &'a dyn Fn() -> std::io::Result<()>);
        let changes: [Change<'_>; 7] = [
            ("written in place", &|| std::fs::write(path("a/b/c"), "2")),
            ("replaced", &|| {
                std::fs::write(path("new"), "3").and_then(|()| std::fs::rename(path("new"), path("a/b/c")))
            }),
            ("times", &|| {
                std::fs::File::open(path("a/b/c"))?.set_modified(std::time::SystemTime::UNIX_EPOCH)
            }),
            ("a parent directory is renamed", &|| std::fs::rename(path("a"), path("z"))),
            ("and renamed back", &|| std::fs::rename(path("z"), path("a"))),
            ("removed", &|| std::fs::remove_file(path("a/b/c"))),
            ("created", &|| std::fs::write(path("a/b/c"), "4")),
        ];
        for (step, (what, change)) in changes.iter().enumerate() {
            let now = start + Duration::from_secs(step as u64 + 1);
            let before = watches.epoch(now);
            assert!(watches.cover("a/b/c", None, now), "{what}");
            assert_eq!(watches.epoch(now + RECHECK_AFTER), before, "{what}: nothing has changed yet");
            change().unwrap();
            assert_ne!(watches.epoch(now + 2 * RECHECK_AFTER), before, "{what}");
        }
    }

    #[test]
    fn missing_paths_are_covered_and_links_are_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
        let now = Instant::now();
        let watches = Watches::new(dir.path(), now);
        assert!(watches.cover("not/there/yet", None, now) && !watches.cover("link/file", None, now));
        assert!(!watches.cover("file", Some(u64::MAX), now), "on another device");
        let before = watches.epoch(now + RECHECK_AFTER);
        std::fs::create_dir(dir.path().join("not")).unwrap();
        let later = now + 2 * RECHECK_AFTER;
        assert_ne!(watches.epoch(later), before);
        assert!(!watches.cover("file", None, later), "more changes may follow at once");
        assert!(watches.cover("file", None, later + UNCOVERED_AFTER_CHANGE));
    }
}
