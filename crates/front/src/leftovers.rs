//! Files that must not outlive the server: socket files and the pid file.
//!
//! In an upgrade they belong to the old program until the new one serves, and to the new one from then on.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Files that are removed when this is dropped. (Should the front be killed, the template removes them.)
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    files: Vec<PathBuf>,
    /// Those of an old program.
    borrowed: Vec<PathBuf>,
    /// The pid file to write when the old program hands over.
    pidfile: Option<PathBuf>,
}

impl Leftovers {
    /// One more file to remove at the end.
    pub(crate) fn add(&mut self, file: &Path) {
        self.files.push(file.to_owned());
    }

    /// A file that an old program still has.
    pub(crate) fn borrow(&mut self, file: &Path) {
        self.borrowed.push(file.to_owned());
    }

    /// All that was borrowed is ours from now on, and the pid file names this process.
    ///
    /// # Errors
    /// The pid file cannot be written.
    pub(crate) fn take_over(&mut self) -> Result<(), String> {
        if let Some(path) = self.pidfile.take() {
            // At once: who reads it meanwhile must not find it empty.
            let name = |e: std::io::Error| format!("cannot write the pid file {}: {e}", path.display());
            let beside = path.with_extension(format!("{}.tmp", std::process::id()));
            fs::write(&beside, format!("{}\n", std::process::id())).map_err(name)?;
            if let Err(e) = fs::rename(&beside, &path) {
                let _ = fs::remove_file(&beside);
                return Err(name(e));
            }
            self.files.push(path);
        }
        self.files.append(&mut self.borrowed);
        Ok(())
    }

    /// These are another program's now.
    pub(crate) fn forget(&mut self, files: &[PathBuf]) {
        self.files.retain(|file| !files.contains(file));
    }

    /// All of them.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.files.clone()
    }

    /// Writes our process id into a file of our own; in an upgrade from process `old`, when that hands over.
    ///
    /// # Errors
    /// The file names another living process, or cannot be written.
    pub(crate) fn write_pidfile(&mut self, path: &Path, old: Option<i32>) -> Result<(), String> {
        if let Some(pid) = living(path).filter(|pid| Some(*pid) != old) {
            return Err(format!(
                "a server is already running: the pid file {} names process {pid}",
                path.display()
            ));
        }
        if old.is_some() {
            self.pidfile = Some(path.to_owned());
            return Ok(());
        }
        let name = |e: std::io::Error| format!("cannot write the pid file {}: {e}", path.display());
        let mut file = fs::File::create(path).map_err(name)?;
        writeln!(file, "{}", std::process::id()).map_err(name)?;
        self.add(path);
        Ok(())
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        for file in &self.files {
            match fs::remove_file(file) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    eprintln!("cannot remove {}: {e}", file.display())
                }
                _ => {}
            }
        }
    }
}

/// The living process that a pid file names; a stale or garbled file counts as none.
fn living(path: &Path) -> Option<i32> {
    let pid =
        fs::read_to_string(path).ok()?.trim().parse().ok().filter(|&pid| pid != std::process::id() as i32)?;
    rustix::process::test_kill_process(rustix::process::Pid::from_raw(pid)?).is_ok().then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_file_of_a_living_process_is_respected_and_a_stale_one_is_not() {
        let path = std::env::temp_dir().join(format!("firebrick-pid-{}", std::process::id()));
        fs::write(&path, std::os::unix::process::parent_id().to_string()).unwrap();
        assert!(Leftovers::default().write_pidfile(&path, None).unwrap_err().contains("already running"));
        fs::write(&path, "999999999").unwrap();
        let mut leftovers = Leftovers::default();
        leftovers.write_pidfile(&path, None).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap().trim(), std::process::id().to_string());
        drop(leftovers);
        assert!(!path.exists());
    }

    #[test]
    fn a_new_program_leaves_files_alone_until_it_takes_over() {
        let dir = tempfile::tempdir().unwrap();
        let (pidfile, socket) = (dir.path().join("server.pid"), dir.path().join("app.sock"));
        let old = std::os::unix::process::parent_id() as i32;
        fs::write(&pidfile, old.to_string()).unwrap();
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
