//! Files that only their owner can read, written whole or not at all.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Creates the directory and its missing parents, for this user alone.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    std::fs::set_permissions(folder, Permissions::from_mode(0o700))
}

/// Writes a new file. Fails with `AlreadyExists` if another process was faster.
pub(super) fn write_new(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let temporary = write_temporary(path, text, mode)?;
    // Unlike a rename, a link fails if the name is taken, and does not replace a file that another process uses.
    let linked = std::fs::hard_link(&temporary, path).or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Err(error),
        // A file system without hard links.
        _ if path.exists() => Err(io::ErrorKind::AlreadyExists.into()),
        _ => std::fs::rename(&temporary, path),
    });
    let _ = std::fs::remove_file(&temporary);
    linked.and_then(|()| sync_folder(path))
}

/// Writes a file, or replaces it.
pub(super) fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let temporary = write_temporary(path, text, mode)?;
    std::fs::rename(&temporary, path).and_then(|()| sync_folder(path))
}

fn write_temporary(path: &Path, text: &str, mode: u32) -> io::Result<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{:08x}", std::process::id(), fastrand::u32(..)));
    let temporary = PathBuf::from(name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    match written {
        Ok(()) => Ok(temporary),
        Err(error) => {
            let _ = std::fs::remove_file(&temporary);
            Err(error)
        }
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}
