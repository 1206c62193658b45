//! The files of a folder, as far as their changes show in their metadata.
//!
//! Contract: names that begin with a dot, `node_modules`, and everything beyond [`MOST`] files are left out. Links to files are followed, links
//! to folders are not.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The most files and folders that are looked at.
const MOST: usize = 20_000;

/// The state of a file: time, length, inode.
type FileState = (i64, i64, u64, u64);

/// The state of each file by its path, which begins with a slash.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FileTree(BTreeMap<String, FileState>);

impl FileTree {
    /// Reads a folder. Files that cannot be read count as absent.
    pub(super) fn read(root: &Path) -> FileTree {
        let mut files = BTreeMap::new();
        let (mut folders, mut left) = (vec![(root.to_owned(), String::new())], MOST);
        while let Some((folder, path)) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
                if name.starts_with('.') || name == "node_modules" || left == 0 {
                    continue;
                }
                left -= 1;
                let (file, path) = (folder.join(&name), format!("{path}/{name}"));
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push((file, path)),
                    _ => {
                        files.extend(fs::metadata(&file).ok().filter(Metadata::is_file).map(|found| {
                            (path, (found.mtime(), found.mtime_nsec(), found.len(), found.ino()))
                        }))
                    }
                }
            }
        }
        FileTree(files)
    }

    /// Returns the paths that have changed, have come, or have gone.
    pub(super) fn changes(&self, after: &FileTree) -> Vec<String> {
        let gone = self.0.keys().filter(|path| !after.0.contains_key(*path));
        let other = after.0.iter().filter(|(path, state)| self.0.get(*path) != Some(state));
        gone.chain(other.map(|(path, _)| path)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_found_and_hidden_files_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for name in ["index.html", "a/b/c.css", "gone.js", ".git/x", "node_modules/y.js"] {
            write(name, "1");
        }
        std::os::unix::fs::symlink(dir.path().join("a"), dir.path().join("linked")).unwrap();
        let before = FileTree::read(dir.path());
        assert_eq!(before.0.keys().collect::<Vec<_>>(), ["/a/b/c.css", "/gone.js", "/index.html"]);
        assert!(before.changes(&FileTree::read(dir.path())).is_empty());
        write("a/b/c.css", "22");
        write("new.html", "1");
        write(".git/x", "22");
        fs::remove_file(dir.path().join("gone.js")).unwrap();
        let changed = before.changes(&FileTree::read(dir.path()));
        assert_eq!(changed, ["/gone.js", "/a/b/c.css", "/new.html"]);
        assert_eq!(FileTree::read(&dir.path().join("absent")), FileTree::default());
    }
}
