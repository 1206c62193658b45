//! Being told of changes instead of looking for them (inotify).
//!
//! Why: looking whether each file is still what it was costs a system call that walks its whole path, for each request. The
//! kernel puts an event into our queue before the call that changes something returns; so one look at an empty queue
//! says that nothing has changed, for all files at once.
//!
//! Contract:
//! 1. What is [covered](Watches::cover) has not changed as long as [`Watches::epoch`] stays the same.
//! 2. Covered is only what the kernel tells us everything about: paths without symbolic links, on a local file system,
//!    of directories that could be watched. Whatever is not covered has to be looked at.
//! 3. A directory that changes all the time costs no more than having no watches.

use super::root::TOGETHER;
use std::path::Path;
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
pub(crate) use linux::Watches;
#[cfg(not(target_os = "linux"))]
pub(crate) use nowhere::Watches;

/// After a change nothing is covered for this long: another one will often follow.
const RESTLESS: Duration = Duration::from_millis(50);

#[cfg(target_os = "linux")]
mod linux {
    use super::{Duration, Instant, Path, RESTLESS, TOGETHER};
    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
    use std::cell::{Cell, RefCell};
    use std::collections::HashSet;
    use std::fmt;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;

    /// File systems whose changes all come through this kernel.
    const LOCAL: [i64; 7] =
        [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630, 0x2FC1_2FC1, 0xF2F5_2010];
    /// Directories that are watched at most.
    const MAX_DIRECTORIES: usize = 4_096;

    /// The watches below one root.
    pub(crate) struct Watches {
        queue: Option<OwnedFd>,
        root: PathBuf,
        device: u64,
        covered: RefCell<HashSet<Box<str>>>,
        epoch: Cell<u64>,
        looked: Cell<Instant>,
        changed: Cell<Option<Instant>>,
    }

    impl Watches {
        /// Watches nothing yet.
        pub(crate) fn new(root: &Path, now: Instant) -> Watches {
            let local = rustix::fs::statfs(root).is_ok_and(|found| {
                #[allow(clippy::unnecessary_cast)] // The type differs between machines.
                LOCAL.contains(&(found.f_type as i64))
            });
            let queue =
                local.then(|| inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()).flatten();
            Watches {
                queue,
                root: root.to_owned(),
                device: std::fs::metadata(root).map_or(0, |found| found.dev()),
                covered: RefCell::default(),
                epoch: Cell::new(0),
                looked: Cell::new(now),
                changed: Cell::new(None),
            }
        }

        /// A number that is another one after each change of something covered.
        pub(crate) fn epoch(&self, now: Instant) -> u64 {
            if now.saturating_duration_since(self.looked.get()) >= TOGETHER {
                self.looked.set(now);
                self.look(now);
            }
            self.epoch.get()
        }

        fn look(&self, now: Instant) {
            let Some(queue) = &self.queue else { return };
            let mut events = [0u8; 4096];
            let mut any = false;
            // What the events say does not matter; a full buffer means that there may be more.
            while let Ok(n) = rustix::io::read(queue, &mut events) {
                any = true;
                if n < events.len() / 2 {
                    break;
                }
            }
            if any {
                self.epoch.set(self.epoch.get() + 1);
                self.changed.set(Some(now));
                // Directories that went away have taken their watches with them.
                self.covered.borrow_mut().clear();
            }
        }

        /// Watches everything that decides what `path` leads to, whether it is there or not; `false` when that cannot be.
        /// To be called before the path is looked at. `device`: where the file is, if it is known.
        pub(crate) fn cover(&self, path: &str, device: Option<u64>, now: Instant) -> bool {
            let restless =
                self.changed.get().is_some_and(|changed| now.saturating_duration_since(changed) < RESTLESS);
            if self.queue.is_none() || restless || device.is_some_and(|device| device != self.device) {
                return false;
            }
            let mut ends = path.match_indices('/').map(|(at, _)| &path[..at]);
            self.watch("") && ends.all(|directory| self.watch(directory))
        }

        /// Watches a directory; one that is not there is covered by the one that it would be in.
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
            // The root may be a link; below it a link is not covered.
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

        /// Number of the device that the root is on.
        pub(crate) fn device(&self) -> u64 {
            self.device
        }

        /// How long what is covered may go unseen.
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
}

#[cfg(not(target_os = "linux"))]
mod nowhere {
    use super::{Duration, Instant, Path};

    /// No watches: everything is looked at.
    #[derive(Debug)]
    pub(crate) struct Watches;

    impl Watches {
        pub(crate) fn new(_: &Path, _: Instant) -> Watches {
            Watches
        }

        pub(crate) fn epoch(&self, _: Instant) -> u64 {
            0
        }

        pub(crate) fn cover(&self, _: &str, _: Option<u64>, _: Instant) -> bool {
            false
        }

        pub(crate) fn device(&self) -> u64 {
            0
        }

        pub(crate) const TRUSTED_FOR: Duration = Duration::ZERO;
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_change_is_another_epoch() {
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
            ("a directory on the way is renamed", &|| std::fs::rename(path("a"), path("z"))),
            ("and comes back", &|| std::fs::rename(path("z"), path("a"))),
            ("removed", &|| std::fs::remove_file(path("a/b/c"))),
            ("made", &|| std::fs::write(path("a/b/c"), "4")),
        ];
        for (step, (what, change)) in changes.iter().enumerate() {
            let now = start + Duration::from_secs(step as u64 + 1);
            let before = watches.epoch(now);
            assert!(watches.cover("a/b/c", None, now), "{what}");
            assert_eq!(watches.epoch(now + TOGETHER), before, "{what}: nothing has changed yet");
            change().unwrap();
            assert_ne!(watches.epoch(now + 2 * TOGETHER), before, "{what}");
        }
    }

    #[test]
    fn what_is_missing_is_covered_and_links_are_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
        let now = Instant::now();
        let watches = Watches::new(dir.path(), now);
        assert!(watches.cover("not/there/yet", None, now) && !watches.cover("link/file", None, now));
        assert!(!watches.cover("file", Some(u64::MAX), now), "on another device");
        let before = watches.epoch(now + TOGETHER);
        std::fs::create_dir(dir.path().join("not")).unwrap();
        let later = now + 2 * TOGETHER;
        assert_ne!(watches.epoch(later), before);
        assert!(!watches.cover("file", None, later), "another change may follow at once");
        assert!(watches.cover("file", None, later + RESTLESS));
    }
}
