//! Detects changed files: sites, handlers and certificates are then read again.
//!
//! Why polling: it works on every file system (network mounts, bind mounts of containers) and with editors
//! that replace files, and a few `stat`s twice a second have no measurable cost.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// The interval between two checks.
pub(crate) const EVERY: Duration = Duration::from_millis(500);

/// Identifies the state of a file; `None` if the file is missing.
pub(crate) type FileStamp = Option<(u64, u64, i64, i64)>;

/// Returns the state of a file.
pub(crate) fn stamp(path: &Path) -> FileStamp {
    let found = std::fs::metadata(path).ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}
