//! Reads files without waiting for the disk.

use crate::system;
use std::fs::File;
use std::io;

/// Reads the part of a file that is in memory, like read_at(2). Returns fewer bytes than `buffer` holds if
/// only a part is in memory, and 0 at the end of the file. Never waits for a disk.
///
/// # Errors
/// `WouldBlock`: nothing at `offset` is in memory; read it on a blocking thread. `Unsupported`: the file
/// system or the operating system cannot tell. Others as read(2).
#[inline]
pub fn read_cached(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    system::read_cached(file, offset, buffer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Write};

    #[test]
    fn what_has_just_been_written_is_in_memory() {
        let path = std::env::temp_dir().join(format!("firebrick-cached-{}", std::process::id()));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(b"0123456789").unwrap();
        let mut buffer = [0; 4];
        // `Unsupported` is valid: not every file system can tell.
        match read_cached(&file, 8, &mut buffer) {
            Ok(read) => assert_eq!((read, &buffer[..2]), (2, &b"89"[..])),
            Err(error) => return assert_eq!(error.kind(), ErrorKind::Unsupported),
        }
        assert_eq!(read_cached(&file, 3, &mut buffer).unwrap(), 4);
        assert_eq!(&buffer, b"3456");
        assert_eq!(read_cached(&file, 10, &mut buffer).unwrap(), 0);
        let folder = File::open(std::env::temp_dir()).unwrap();
        assert!(read_cached(&folder, 0, &mut buffer).is_err());
    }
}
