//! Opens files below a folder; no path and no symbolic link leads out of it.
//!
//! Contract:
//! 1. A path that leads out gives `EXDEV`, also through a link, and also while another process moves folders.
//!    A link with an absolute target counts as leading out.
//! 2. Opening a FIFO or a device never blocks.
//! 3. Both implementations find the same files and give the same errors, with one exception: the one without
//!    `openat2` cannot pass through folders that may be searched but not read.

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod linux;
mod portable;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
pub(super) use linux::Opener;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
pub(super) use portable::Opener;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io;

/// Without NONBLOCK, opening a FIFO would wait for a writer. For a regular file it has no effect.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Opens a path without `..` below a folder, and follows links wherever they lead.
pub(super) fn follow(folder: &File, path: &str) -> io::Result<File> {
    loop {
        match openat(folder, path, FILE, Mode::empty()) {
            Err(Errno::INTR) => {}
            opened => return Ok(opened?.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::portable::Opener as Portable;
    use super::*;
    use proptest::prelude::*;
    use rustix::fs::FileType;
    use std::io::Read;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};

    type Open<'a> = &'a dyn Fn(&File, &str) -> io::Result<File>;

    fn both(check: impl Fn(Open<'_>)) {
        let (one, other) = (Opener::new(), Portable::new());
        check(&|root, path| one.open(root, path));
        check(&|root, path| other.open(root, path));
    }

    /// Returns the file's identity, or the error.
    fn found(opened: io::Result<File>) -> Result<(u64, u64), Option<Errno>> {
        let identity = |file: File| file.metadata().map(|found| (found.dev(), found.ino())).unwrap();
        opened.map(identity).map_err(|error| Errno::from_io_error(&error))
    }

    #[test]
    fn what_leads_out_is_refused_and_what_stays_inside_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("sub/deep")).unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        std::fs::write(root.join("a"), "a").unwrap();
        std::fs::write(root.join("sub/b"), "b").unwrap();
        for (target, name) in [
            ("../secret", "out"),
            ("..", "parent"),
            ("/etc/passwd", "absolute"),
            ("sub/b", "in"),
            ("../a", "sub/up"),
            ("deep/../../a", "sub/around"),
            ("loop", "loop"),
            ("a/", "file-as-folder"),
            ("sub", "folder"),
        ] {
            symlink(target, root.join(name)).unwrap();
        }
        rustix::fs::mknodat(rustix::fs::CWD, root.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let handle = File::open(&root).unwrap();
        both(|open| {
            let read = |path: &str| {
                let mut text = String::new();
                open(&handle, path).unwrap().read_to_string(&mut text).map(|_| text)
            };
            for (path, text) in [
                ("a", "a"),
                ("sub/b", "b"),
                ("in", "b"),
                ("sub/up", "a"),
                ("sub/around", "a"),
                ("folder/up", "a"),
                ("./sub//b", "b"),
                ("sub/deep/../b", "b"),
            ] {
                assert_eq!(read(path).unwrap(), text, "{path}");
            }
            for path in [".", "sub", "sub/", "sub/.", "folder/", "fifo", "sub/deep/../.."] {
                assert!(open(&handle, path).is_ok(), "{path}");
            }
            for (path, error) in [
                ("out", Errno::XDEV),
                ("..", Errno::XDEV),
                ("sub/../..", Errno::XDEV),
                ("parent/secret", Errno::XDEV),
                ("absolute", Errno::XDEV),
                ("/a", Errno::XDEV),
                ("loop", Errno::LOOP),
                ("loop/a", Errno::LOOP),
                ("file-as-folder", Errno::NOTDIR),
                ("a/", Errno::NOTDIR),
                ("a/.", Errno::NOTDIR),
                ("a/b", Errno::NOTDIR),
                ("fifo/b", Errno::NOTDIR),
                ("missing", Errno::NOENT),
                ("missing/..", Errno::NOENT),
                ("", Errno::NOENT),
            ] {
                assert_eq!(found(open(&handle, path)), Err(Some(error)), "{path}");
            }
        });
    }

    #[test]
    fn a_folder_that_becomes_a_link_meanwhile_does_not_lead_out() {
        let dir = tempfile::tempdir().unwrap();
        let [root, outside] = ["root", "outside"].map(|name| dir.path().join(name));
        for folder in [&root, &outside, &root.join("x")] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("file"), folder.file_name().unwrap().as_encoded_bytes()).unwrap();
        }
        symlink(&outside, root.join("absolute")).unwrap();
        symlink("../outside", root.join("relative")).unwrap();
        let handle = File::open(&root).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // `x` is in turn the folder, a link, and the other link.
                let path = |name: &str| root.join(name);
                let rename = |from: &str, to: &str| std::fs::rename(path(from), path(to)).unwrap();
                while !done.load(Ordering::Relaxed) {
                    for link in ["absolute", "relative"] {
                        rename("x", "folder");
                        rename(link, "x");
                        rename("x", link);
                        rename("folder", "x");
                    }
                }
            });
            // The thread ends also when this one panics.
            let _done = Finally(|| done.store(true, Ordering::Relaxed));
            both(|open| {
                let (mut inside, mut tries) = (0, 0);
                // On few processors the folder may be away for long.
                while tries < 20_000 || (inside == 0 && tries < 5_000_000) {
                    tries += 1;
                    let opened = open(&handle, "x/../x/file");
                    let is_busy = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
                    assert!(!opened.as_ref().is_err_and(is_busy), "renames fail no request");
                    let Ok(mut file) = opened else { continue };
                    let mut text = String::new();
                    file.read_to_string(&mut text).unwrap();
                    assert_eq!(text, "x");
                    inside += 1;
                }
                assert!(inside > 0, "the folder was there some of the time");
            });
        });
    }

    struct Finally<F: Fn()>(F);

    impl<F: Fn()> Drop for Finally<F> {
        fn drop(&mut self) {
            self.0();
        }
    }

    #[derive(Debug, Clone)]
    enum Entry {
        File,
        Folder(Vec<(&'static str, Entry)>),
        Link(String),
    }

    fn path() -> impl Strategy<Value = String> {
        let name = prop::sample::select(vec!["a", "b", "c", "a", "b", "c", ".", "..", "", "d"]);
        prop::collection::vec(name, 1..6).prop_map(|names| names.join("/"))
    }

    fn entry() -> impl Strategy<Value = Entry> {
        // A link needs a target.
        let link = path().prop_filter("empty", |path| !path.is_empty()).prop_map(Entry::Link);
        let leaf = prop_oneof![Just(Entry::File), link];
        leaf.prop_recursive(3, 24, 3, |inner| entries(inner).prop_map(Entry::Folder))
    }

    fn entries(inner: impl Strategy<Value = Entry>) -> impl Strategy<Value = Vec<(&'static str, Entry)>> {
        let name = prop::sample::select(vec!["a", "b", "c"]);
        prop::collection::vec((name, inner), 1..4)
    }

    fn make(entries: &[(&'static str, Entry)], dir: &Path) {
        for (name, entry) in entries {
            let path = dir.join(name);
            // The first entry of a name counts.
            if path.symlink_metadata().is_ok() {
                continue;
            }
            match entry {
                Entry::File => std::fs::write(path, "").unwrap(),
                Entry::Link(target) => symlink(target, path).unwrap(),
                Entry::Folder(inner) => {
                    std::fs::create_dir(&path).unwrap();
                    make(inner, &path);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn both_ways_find_the_same_and_stay_inside(tree in entries(entry()), paths in prop::collection::vec(path(), 1..8)) {
            let dir = tempfile::tempdir().unwrap();
            // The files outside have the names that paths ask for.
            let root = dir.path().join("a/b");
            std::fs::create_dir_all(&root).unwrap();
            std::fs::write(dir.path().join("c"), "").unwrap();
            make(&tree, &root);
            let handle = File::open(&root).unwrap();
            let (one, other) = (Opener::new(), Portable::new());
            for path in paths {
                let opened = other.open(&handle, &path);
                if let Ok(file) = &opened {
                    let real = std::fs::canonicalize(root.join(&path)).unwrap();
                    prop_assert!(real.starts_with(root.canonicalize().unwrap()), "{path}");
                    let (real, file) = (real.metadata().unwrap(), file.metadata().unwrap());
                    prop_assert_eq!((real.dev(), real.ino()), (file.dev(), file.ino()), "{}", &path);
                }
                prop_assert_eq!(found(one.open(&handle, &path)), found(opened), "{}", &path);
            }
        }
    }
}
