//! Files that must not outlive the server: socket files, the pid file and Puma's state file.
//!
//! Devices and pipes are never removed: a pid file may be /dev/null.
//!
//! In an upgrade, the files belong to the old program until the new one serves, then to the new one.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Removes its files when dropped. (If the front is killed, the template removes them.)
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    files: Vec<PathBuf>,
    /// Files that belong to an old program.
    borrowed: Vec<PathBuf>,
    /// Files to write when the old program hands over.
    waiting: Vec<OwnFile>,
}

/// A file about this process, for other programs.
#[derive(Debug, Clone)]
pub(crate) struct OwnFile {
    /// The name of the file's kind, for messages.
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// Its permissions; `None`: those of the process's umask.
    pub(crate) mode: Option<u32>,
}

impl OwnFile {
    /// Writes the file: atomically where its folder is writable, so that no reader finds it empty. A link stays one.
    fn write(&self) -> io::Result<()> {
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let mut beside = path.clone().into_os_string();
        beside.push(format!(".{}.tmp", std::process::id()));
        match self.write_to(Path::new(&beside)).and_then(|()| fs::rename(&beside, &path)) {
            Ok(()) => Ok(()),
            Err(_) => {
                let _ = fs::remove_file(&beside);
                self.write_to(&path)
            }
        }
    }

    fn write_to(&self, path: &Path) -> io::Result<()> {
        let mut options = fs::File::options();
        options.write(true).create(true).truncate(true).mode(self.mode.unwrap_or(0o666));
        let mut file = options.open(path)?;
        if let Some(mode) = self.mode {
            file.set_permissions(fs::Permissions::from_mode(mode))?;
        }
        file.write_all(self.text.as_bytes())
    }
}

/// Returns whether a path is something that is not replaced, such as /dev/null.
fn is_no_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

impl Leftovers {
    /// Adds a file to remove at the end.
    pub(crate) fn add(&mut self, file: &Path) {
        self.files.push(file.to_owned());
    }

    /// Adds a file that still belongs to an old program.
    pub(crate) fn borrow(&mut self, file: &Path) {
        self.borrowed.push(file.to_owned());
    }

    /// Takes ownership of the borrowed files, and writes those about this process.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn take_over(&mut self) -> Result<(), String> {
        for file in std::mem::take(&mut self.waiting) {
            self.replace(file)?;
        }
        self.files.append(&mut self.borrowed);
        Ok(())
    }

    /// Keeps files that now belong to another program.
    pub(crate) fn forget(&mut self, files: &[PathBuf]) {
        self.files.retain(|file| !files.contains(file));
    }

    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.files.clone()
    }

    /// Writes the process id to a new pid file. In an upgrade from process `old`, this waits until that
    /// program hands over. A path that is not a regular file, such as /dev/null, is left alone.
    ///
    /// # Errors
    /// The file names a running server, or cannot be written.
    pub(crate) fn write_pidfile(&mut self, path: &Path, old: Option<i32>) -> Result<(), String> {
        if is_no_file(path) {
            return Ok(());
        }
        if let Some(pid) = control::owner::living(path).filter(|pid| Some(*pid) != old) {
            return Err(format!(
                "a server is already running: the pid file {} names process {pid}; stop that one, or give this one a --pidfile of its own",
                path.display()
            ));
        }
        let text = format!("{}\n", std::process::id());
        self.write(OwnFile { name: "pid file", path: path.to_owned(), text, mode: None }, old.is_some())
    }

    /// Writes a file, in an upgrade when the old program hands over. A path that is not a regular file is left alone.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&mut self, file: OwnFile, upgrades: bool) -> Result<(), String> {
        match upgrades {
            _ if is_no_file(&file.path) => Ok(()),
            true => {
                self.waiting.push(file);
                Ok(())
            }
            false => self.replace(file),
        }
    }

    fn replace(&mut self, file: OwnFile) -> Result<(), String> {
        let why = |e| {
            let path = file.path.display();
            format!("cannot write the {} {path}: {e}; create the folder, or name a file elsewhere", file.name)
        };
        file.write().map_err(why)?;
        self.add(&file.path);
        Ok(())
    }
}

/// Whether missing parent directories of a pid file are created: only below the app's directory, because a
/// fresh checkout has no tmp/pids. Elsewhere a missing directory may be a mistake.
pub(crate) fn makes_folders(pidfile: &Path, app: &Path) -> bool {
    pidfile.starts_with(app)
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        for file in &self.files {
            match fs::remove_file(file) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    output::complain(format_args!("cannot remove {}: {e}", file.display()))
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;

    #[test]
    fn a_stale_pid_file_is_replaced_and_removed_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.pid");
        for stale in ["999999999", "", "garbled", "0", "-1", "1 2"] {
            fs::write(&path, stale).unwrap();
            let mut leftovers = Leftovers::default();
            leftovers.write_pidfile(&path, None).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap().trim(), std::process::id().to_string());
            drop(leftovers);
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_device_in_place_of_a_pid_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("server.pid");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        for path in [Path::new("/dev/null"), &link] {
            for old in [None, Some(1)] {
                let mut leftovers = Leftovers::default();
                leftovers.write_pidfile(path, old).unwrap();
                leftovers.take_over().unwrap();
                assert_eq!(leftovers.files(), Vec::<PathBuf>::new());
            }
        }
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn a_new_program_leaves_files_alone_until_it_takes_over() {
        let dir = tempfile::tempdir().unwrap();
        let (pidfile, socket) = (dir.path().join("server.pid"), dir.path().join("app.sock"));
        let mut server = std::process::Command::new("sleep").arg0("firebrick").arg("60").spawn().unwrap();
        let old = server.id().cast_signed();
        fs::write(&pidfile, old.to_string()).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while control::owner::living(&pidfile).is_none() && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        fs::write(&socket, "").unwrap();
        let borrow = |leftovers: &mut Leftovers| {
            leftovers.borrow(&socket);
            leftovers.write_pidfile(&pidfile, Some(old)).unwrap();
        };
        let mut failed = Leftovers::default();
        borrow(&mut failed);
        assert_eq!(failed.files(), Vec::<PathBuf>::new());
        drop(failed);
        assert_eq!(fs::read_to_string(&pidfile).unwrap(), old.to_string());
        let mut new = Leftovers::default();
        borrow(&mut new);
        assert!(
            new.write_pidfile(&pidfile, Some(1)).unwrap_err().contains("already running"),
            "another server"
        );
        let _ = (server.kill(), server.wait());
        new.take_over().unwrap();
        assert_eq!(fs::read_to_string(&pidfile).unwrap().trim(), std::process::id().to_string());
        let mut theirs = Leftovers::default();
        theirs.add(&pidfile);
        theirs.forget(&new.files());
        drop(theirs);
        assert!(pidfile.exists());
        drop(new);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
