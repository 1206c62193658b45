//! Where the control socket of this server is.
//!
//! By default its path follows from the app's folder, so that `firebrick stats` finds it. A second server of the same
//! folder (another port, a test run) gets one beside it and says so; a path that was asked for is used or refused.

use crate::error_log::ErrorLog;
use control::Server;
use settings::{ProcessEnvironment, Settings, control_path};
use std::io;
use std::path::{Path, PathBuf};

/// Listens on the control socket, if there is to be one.
///
/// # Errors
/// The text names the path and what is wrong with it.
pub(crate) fn bind(settings: &Settings, log: &ErrorLog) -> Result<Option<Server>, String> {
    let Some(path) = &settings.control else { return Ok(None) };
    match Server::bind(path) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse && is_default(path, &settings.dir) => {
            let own = beside(path);
            let server = Server::bind(&own).map_err(|e| e.to_string())?;
            log.write(&format!(
                "another server of {} has its control socket; ask this one with `firebrick stats --control {}`",
                settings.dir.display(),
                own.display()
            ));
            Ok(Some(server))
        }
        bound => bound.map(Some).map_err(|e| e.to_string()),
    }
}

fn is_default(path: &Path, dir: &Path) -> bool {
    path == control_path(dir, &ProcessEnvironment, rustix::process::getuid().as_raw())
}

/// `NAME-PID.sock` for `NAME.sock`.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}-{}.sock", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::beside;
    use std::path::Path;

    #[test]
    fn the_second_socket_is_beside_the_first() {
        let own = beside(Path::new("/run/firebrick/0123.sock"));
        assert_eq!(own, Path::new(&format!("/run/firebrick/0123-{}.sock", std::process::id())));
    }
}
