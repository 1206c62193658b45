//! The default path of the control socket.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::environment::Environment;
use sys::socket::LONGEST_PATH;
use text::fnv1a;

/// Returns the `auto` path of the control socket of the app in `dir` (canonical). The server and `stats`
/// compute the same path.
///
/// The socket is in `$XDG_RUNTIME_DIR/firebrick`, or in `/tmp/firebrick-UID` if that variable is not an
/// absolute path or the path is too long for a socket. The server creates the directory for its user alone.
pub fn control_path(dir: &Path, environment: &dyn Environment, uid: u32) -> PathBuf {
    let name = format!("{:016x}.sock", fnv1a(dir.as_os_str().as_bytes()));
    let runtime = environment.var("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    runtime
        .map(|runtime| runtime.join("firebrick").join(&name))
        .filter(|path| path.as_os_str().len() <= LONGEST_PATH)
        .unwrap_or_else(|| PathBuf::from(format!("/tmp/firebrick-{uid}")).join(&name))
}

/// The folder of the shipped systemd service's control sockets (`RuntimeDirectory=firebrick`).
const OF_SERVICES: &str = "/run/firebrick";

/// Returns the control socket of a server of `dirs` (one directory in its spellings) that does not use this
/// user's folders: one under the shipped systemd unit, or one of the directory's owner. `None` if there is
/// none. With `typed` the user named the directory; without it, the only service of this machine is meant,
/// whatever the current directory.
pub(crate) fn control_elsewhere(dirs: &[&Path], typed: bool, uid: u32) -> Option<PathBuf> {
    elsewhere(Path::new(OF_SERVICES), dirs, typed, uid)
}

fn elsewhere(of_services: &Path, dirs: &[&Path], typed: bool, uid: u32) -> Option<PathBuf> {
    let owner = |path: &Path| std::fs::metadata(path).ok().map(|found| found.uid());
    for dir in dirs {
        let name = format!("{:016x}.sock", fnv1a(dir.as_os_str().as_bytes()));
        let of_owner = owner(dir).into_iter().flat_map(|owner| {
            [
                PathBuf::from(format!("/run/user/{owner}/firebrick")),
                PathBuf::from(format!("/tmp/firebrick-{owner}")),
            ]
        });
        for folder in [of_services.to_owned()].into_iter().chain(of_owner) {
            // Any user may create folders in /tmp.
            let is_trusted =
                |uids: &[Option<u32>]| owner(&folder).is_some_and(|found| uids.contains(&Some(found)));
            let socket = folder.join(&name);
            let of_services = folder == *of_services;
            if socket.exists() && (of_services || is_trusted(&[Some(0), Some(uid), owner(dir)])) {
                return Some(socket);
            }
        }
    }
    if typed {
        return None;
    }
    let entries = std::fs::read_dir(of_services).ok()?.flatten().map(|entry| entry.path());
    let mut sockets = entries.filter(|path| path.extension().is_some_and(|kind| kind == "sock"));
    sockets.next().filter(|_| sockets.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fake;

    #[test]
    fn a_service_is_found_by_who_has_another_runtime_directory() {
        let (run, app) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let socket = |dir: &Path| run.path().join(format!("{:016x}.sock", fnv1a(dir.as_os_str().as_bytes())));
        assert_eq!(elsewhere(run.path(), &[app.path()], false, 0), None);
        std::fs::write(socket(app.path()), "").unwrap();
        assert_eq!(elsewhere(run.path(), &[app.path()], true, 0), Some(socket(app.path())));
        // Without a directory the only service is found from any folder.
        assert_eq!(elsewhere(run.path(), &[Path::new("/")], false, 0), Some(socket(app.path())));
        assert_eq!(elsewhere(run.path(), &[Path::new("/")], true, 0), None, "another one was named");
        std::fs::write(socket(Path::new("/srv/other")), "").unwrap();
        assert_eq!(elsewhere(run.path(), &[Path::new("/")], false, 0), None, "which one?");
    }

    #[test]
    fn the_runtime_directory_is_preferred() {
        let dir = Path::new("/srv/app");
        let name = format!("{:016x}.sock", fnv1a(b"/srv/app"));
        let fake = Fake::new(&[("XDG_RUNTIME_DIR", "/run/user/7")]);
        assert_eq!(control_path(dir, &fake, 7), Path::new("/run/user/7/firebrick").join(&name));
        let relative = Fake::new(&[("XDG_RUNTIME_DIR", "run")]);
        assert_eq!(control_path(dir, &relative, 7), Path::new("/tmp/firebrick-7").join(&name));
        let long = format!("/run/{}", "x".repeat(100));
        let too_long = Fake::new(&[("XDG_RUNTIME_DIR", &long)]);
        assert_eq!(control_path(dir, &too_long, 7), Path::new("/tmp/firebrick-7").join(&name));
        assert_ne!(control_path(Path::new("/srv/other"), &fake, 7), control_path(dir, &fake, 7));
    }
}
