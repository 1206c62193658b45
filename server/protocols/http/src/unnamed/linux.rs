//! Creates unnamed files with `O_TMPFILE`, where the file system supports it.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::Path;

pub(super) fn create(dir: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR) {
        Ok(fd) => Ok(fd.into()),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => super::portable::create(dir),
        Err(error) => Err(error.into()),
    }
}
