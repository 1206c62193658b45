//! Reads slices of files: cached data at once, the rest on a blocking thread.

use bytes::Bytes;
use handler::FileRegion;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use sys::file::read_cached;

/// Bytes per read.
pub(super) const SLICE: usize = 64 << 10;

/// Reads up to [`SLICE`] bytes at offset `done` of the region. Returns no bytes if the file has become shorter.
///
/// # Errors
/// The file cannot be read.
pub(super) async fn read(region: &FileRegion, done: u64) -> io::Result<Bytes> {
    let len = usize::try_from(region.len - done).unwrap_or(SLICE).min(SLICE);
    let offset = region.offset + done;
    let mut bytes = vec![0; len];
    match read_cached(&region.file, offset, &mut bytes) {
        Ok(read) => {
            bytes.truncate(read);
            return Ok(bytes.into());
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Unsupported) => {}
        Err(error) => return Err(error),
    }
    let file = region.file.shared();
    let reading = tokio::task::spawn_blocking(move || {
        loop {
            match file.read_at(&mut bytes, offset) {
                Ok(read) => {
                    bytes.truncate(read);
                    return Ok(bytes.into());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    });
    reading.await.map_err(io::Error::other)?
}
