//! Takes over a path for a Unix socket, and removes its file at the end.

use crate::socket::{connect_to, listen_on};
use rustix::fs::FlockOperation;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time-out for a running server to accept. A server that takes longer counts as running all the same.
const PROBE: Duration = Duration::from_millis(200);

/// The file of a listening socket. Dropping this removes the file, unless another server has replaced it.
#[derive(Debug)]
pub struct LocalSocketFile {
    path: PathBuf,
    /// The name of the socket for people.
    what: &'static str,
    created: Created,
    /// Whether the file belongs to this program.
    own: bool,
    /// Whether the file belongs to systemd, for good.
    kept: bool,
}

/// The creation time of a socket's file: seconds and nanoseconds. Connections do not change it. It identifies
/// a file better than an inode number, which a file system may reuse at once, or (overlayfs over several file
/// systems) change under memory pressure.
type Created = (i64, i64);

impl LocalSocketFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Describes the file of a socket on which another program listens, until [`LocalSocketFile::take_over`].
    /// `kept`: the file belongs to systemd and stays so.
    pub(crate) fn borrowed(path: &Path, kept: bool) -> io::Result<LocalSocketFile> {
        Ok(LocalSocketFile {
            path: path.to_owned(),
            created: created(path)?,
            own: false,
            kept,
            what: "control socket",
        })
    }

    /// Whether the file belongs to this program.
    pub(crate) fn is_own(&self) -> bool {
        self.own
    }

    /// Whether the file belongs to systemd.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept
    }

    /// Takes ownership of the file, unless it belongs to systemd.
    pub(crate) fn take_over(&mut self) {
        self.own = !self.kept;
    }

    /// Gives up the file, which belongs to another program now.
    pub(crate) fn forget(mut self) {
        self.own = false;
    }
}

impl Drop for LocalSocketFile {
    fn drop(&mut self) {
        if self.own
            && created(&self.path).is_ok_and(|found| found == self.created)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            // The next server replaces it.
            output::complain(format_args!(
                "cannot remove the {} {}: {error}",
                self.what,
                self.path.display()
            ));
        }
    }
}

/// Listens on `path` for the control server.
pub(crate) fn bind(path: &Path) -> io::Result<(UnixListener, LocalSocketFile)> {
    bind_local(path, "control socket", "control")
}

/// Listens on `path`, where only this user can connect. A missing directory is created (0700). `what` is the socket's name for people,
/// `setting` the option with its path.
///
/// # Errors
/// `AddrInUse` if a running server listens there; `AlreadyExists` if a file is there that is not a socket; `InvalidInput` if the path is
/// too long for a socket; or another error of the system. The text names socket and path.
pub fn bind_local(
    path: &Path,
    what: &'static str,
    setting: &str,
) -> io::Result<(UnixListener, LocalSocketFile)> {
    take(path, what, setting)
        .map_err(|error| io::Error::new(error.kind(), format!("{what} {}: {error}", path.display())))
}

fn take(path: &Path, what: &'static str, setting: &str) -> io::Result<(UnixListener, LocalSocketFile)> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let lock = File::open(dir)?;
    // Of two servers that start together, each could find a stale file and remove the other's new one. On a
    // file system without locks that race stays; it must not prevent the start.
    let _ = rustix::fs::flock(&lock, FlockOperation::LockExclusive);
    clear(path, setting)?;
    let listener = listen_on(path)?;
    let created = created(path)?;
    Ok((listener, LocalSocketFile { path: path.to_owned(), created, own: true, kept: false, what }))
}

/// Removes a socket file on which no server listens.
fn clear(path: &Path, setting: &str) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if found.file_type().is_socket() => {}
        Ok(_) => {
            let message = format!(
                "something that is not a socket is in the way; remove it or set `{setting}` to another path"
            );
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
    }
    match connect_to(path, PROBE) {
        Ok(_) => Err(alive(setting)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(alive(setting)),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) => Err(error),
    }
}

fn alive(setting: &str) -> io::Error {
    let message = format!("another server listens there; stop it or set `{setting}` to another path");
    io::Error::new(io::ErrorKind::AddrInUse, message)
}

fn created(path: &Path) -> io::Result<Created> {
    std::fs::symlink_metadata(path).map(|found| (found.mtime(), found.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn only_the_owner_may_use_it_and_it_goes_with_us() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/control.sock");
        let (listener, file) = bind(&path).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        drop((listener, file));
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_socket_is_replaced_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let (_listener, _file) = bind(&path).unwrap();
        let error = bind(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(path.to_str().unwrap()));
        assert!(path.exists());
    }

    #[test]
    fn a_live_one_that_does_not_accept_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let (_listener, _file) = bind(&path).unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = connect_to(&path, Duration::from_millis(10)) {
            waiting.push(stream);
        }
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn other_files_are_never_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.ru");
        std::fs::write(&path, "run App").unwrap();
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "run App");
    }

    #[test]
    fn a_successors_socket_survives_our_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let ours = bind(&path).unwrap();
        std::fs::rename(&path, dir.path().join("old.sock")).unwrap();
        // File times advance with the kernel's tick.
        std::thread::sleep(Duration::from_millis(50));
        let _theirs = UnixListener::bind(&path).unwrap();
        drop(ours);
        assert!(path.exists());
    }

    #[test]
    fn what_another_program_has_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        assert_eq!(LocalSocketFile::borrowed(&path, false).unwrap_err().kind(), io::ErrorKind::NotFound);
        let (_listener, ours) = bind(&path).unwrap();
        drop(LocalSocketFile::borrowed(&path, false).unwrap());
        assert!(path.exists(), "only borrowed");
        let mut systemds = LocalSocketFile::borrowed(&path, true).unwrap();
        systemds.take_over();
        drop(systemds);
        assert!(path.exists(), "kept by systemd");
        let mut theirs = LocalSocketFile::borrowed(&path, false).unwrap();
        theirs.take_over();
        ours.forget();
        assert!(path.exists(), "taken over");
        drop(theirs);
        assert!(!path.exists());
    }

    #[test]
    fn it_goes_although_its_inode_number_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let ours = bind(&path).unwrap();
        let before = std::fs::symlink_metadata(&path).unwrap();
        let times =
            std::process::Command::new("cp").arg("-a").arg(&path).arg(dir.path().join("copy")).status();
        assert!(times.unwrap().success());
        std::fs::rename(dir.path().join("copy"), &path).unwrap();
        assert_ne!(std::fs::symlink_metadata(&path).unwrap().ino(), before.ino());
        drop(ours);
        assert!(!path.exists());
    }

    #[test]
    fn a_path_that_is_too_long_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let error = bind(&dir.path().join("x".repeat(120))).unwrap_err().to_string();
        assert!(error.contains("too long"), "{error}");
    }
}
