//! Slices of files: what the system has in memory is read at once, the rest by a blocking thread.

use bytes::Bytes;
use handler::FileRegion;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;

/// Bytes read at a time.
pub(super) const SLICE: usize = 64 << 10;

/// Reads up to [`SLICE`] bytes at `done` in the region; empty if the file has become shorter.
///
/// # Errors
/// The file cannot be read.
pub(super) async fn read(region: &FileRegion, done: u64) -> io::Result<Bytes> {
    let len = usize::try_from(region.len - done).unwrap_or(SLICE).min(SLICE);
    let offset = region.offset + done;
    let mut bytes = vec![0; len];
    loop {
        let flags = ReadWriteFlags::NOWAIT;
        match rustix::io::preadv2(&*region.file, &mut [IoSliceMut::new(&mut bytes)], offset, flags) {
            Ok(read) => {
                bytes.truncate(read);
                return Ok(bytes.into());
            }
            Err(Errno::INTR) => {}
            // Not in memory, or a file system that cannot tell.
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    let file = region.file.try_clone()?;
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
