//! Opens the file of a log, or explains how to make that possible, and writes to it. Both logs use this, and
//! so does `firebrick check`, which opens nothing.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use settings::{AccessLog, ErrorLog, Settings};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;

/// The size of an atomic write to a pipe (POSIX `PIPE_BUF` on Linux), so that lines of other processes do not
/// mix in. A pipe that is ready takes this many bytes without blocking.
pub(crate) const PIPE_ATOMIC: usize = 4_096;

/// Opens the file for appending, and creates it if it is missing. `what` is the name of the log.
///
/// # Errors
/// The text names the log and the file, and a remedy.
pub(crate) fn append(what: &str, path: &Path) -> io::Result<File> {
    let opened = has_folder(path).and_then(|()| File::options().append(true).create(true).open(path));
    opened.map_err(|error| explain(what, path, &error))
}

/// Returns a file that writes to standard output or standard error.
///
/// # Errors
/// As dup(2).
pub(crate) fn standard(stream: impl AsFd) -> io::Result<File> {
    Ok(File::from(stream.as_fd().try_clone_to_owned()?))
}

/// Returns the most bytes that one write may have.
pub(crate) fn piece(file: &File) -> usize {
    // A regular file accepts any length.
    if file.metadata().is_ok_and(|found| found.is_file()) { usize::MAX } else { PIPE_ATOMIC }
}

/// Returns whether a write of a [`piece`] would not block. A file that cannot be polled is taken as ready.
pub(crate) fn is_ready(file: &File) -> bool {
    !matches!(
        poll(&mut [PollFd::new(file, PollFlags::OUT)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 })),
        Ok(0)
    )
}

/// Like [`Write::write_all`], but waits if another process has made standard output non-blocking.
pub(crate) fn write_all(mut file: &File, mut text: &[u8]) -> io::Result<()> {
    while !text.is_empty() {
        match file.write(text) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => text = &text[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                match poll(&mut [PollFd::new(file, PollFlags::OUT)], None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Checks that both logs can be written.
///
/// # Errors
/// See [`append`].
pub(crate) fn check(settings: &Settings) -> Result<(), String> {
    let access = match &settings.logs.access {
        AccessLog::File(path) => Some(path),
        AccessLog::Off | AccessLog::Stdout => None,
    };
    let errors = match &settings.logs.error {
        ErrorLog::File(path) => Some(path),
        ErrorLog::Stderr => None,
    };
    for (what, path) in [("access log", access), ("error log", errors)] {
        if let Some(path) = path {
            appendable(path).map_err(|error| explain(what, path, &error).to_string())?;
        }
    }
    Ok(())
}

/// Whether [`append`] would succeed. Creates nothing.
fn appendable(path: &Path) -> io::Result<()> {
    has_folder(path)?;
    match File::options().append(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => writable_folder(path.parent()),
        Err(error) => Err(error),
    }
}

/// Whether a file can be created in a directory. Creates nothing.
///
/// # Errors
/// The directory does not exist, is no directory, or this user cannot write to it. The text names it.
pub fn writable_folder(folder: Option<&Path>) -> io::Result<()> {
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let found = std::fs::metadata(folder)
        .map_err(|why| io::Error::new(why.kind(), format!("{}: {why}", folder.display())))?;
    if !found.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::NotADirectory,
            format!("{} is no folder", folder.display()),
        ));
    }
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(folder, access).map_err(|why| {
        io::Error::new(
            why.kind(),
            format!("no file can be made in {}: {}", folder.display(), io::Error::from(why)),
        )
    })
}

fn has_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.exists() => Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("there is no folder {}; create it, or name a file elsewhere", folder.display()),
        )),
        _ => Ok(()),
    }
}

fn explain(what: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_folder_is_named() {
        let error = append("error log", Path::new("/nonexistent/log/error.log")).unwrap_err().to_string();
        assert!(error.starts_with("error log /nonexistent/log/error.log: "), "{error}");
        assert!(error.contains("no folder /nonexistent/log; create it"), "{error}");
    }

    #[test]
    fn a_file_is_made_and_appended_to() {
        use std::io::Write;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new.log");
        append("error log", &path).unwrap().write_all(b"one\n").unwrap();
        append("error log", &path).unwrap().write_all(b"two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        assert!(append("error log", dir.path()).is_err());
    }
}
