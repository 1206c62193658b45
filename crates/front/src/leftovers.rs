//! Files that must not outlive the server: socket files and the pid file.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Files that are removed when this is dropped. (Should the front be killed, the template removes them.)
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    files: Vec<PathBuf>,
}

impl Leftovers {
    /// One more file to remove at the end.
    pub(crate) fn add(&mut self, file: &Path) {
        self.files.push(file.to_owned());
    }

    /// All of them.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.files.clone()
    }

    /// Writes our process id into a file of our own.
    ///
    /// # Errors
    /// The file names a living process, or cannot be written.
    pub(crate) fn write_pidfile(&mut self, path: &Path) -> Result<(), String> {
        if let Some(pid) = living(path) {
            return Err(format!(
                "a server is already running: the pid file {} names process {pid}",
                path.display()
            ));
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
        assert!(Leftovers::default().write_pidfile(&path).unwrap_err().contains("already running"));
        fs::write(&path, "999999999").unwrap();
        let mut leftovers = Leftovers::default();
        leftovers.write_pidfile(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap().trim(), std::process::id().to_string());
        drop(leftovers);
        assert!(!path.exists());
    }
}
