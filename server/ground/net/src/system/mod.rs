//! The differences between Linux and other systems: flags of send(2), sendfile(2), reads that do not wait for a disk.
//!
//! Contract:
//! 1. `SEND` and `SEND_MORE`: flags for bytes, and for bytes that more will follow. The program ignores
//!    SIGPIPE; if a flag can suppress it for a call, that flag is set.
//! 2. `send_file` sends a part of a file to a non-blocking socket, and returns the number of bytes sent: 0 if
//!    the file ends before `offset`, and possibly fewer than `len`.
//! 3. `read_cached`: see [`crate::read_cached`].
//! 4. `accept` accepts a connection with a socket that is non-blocking and closed on exec.
//! 5. `delivery`: see [`crate::Transport::delivery`]. `abandon_after`: see
//!    [`crate::Transport::abandon_after`]. `bound_unsent`: see [`crate::Transport::bound_unsent`].

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod linux;
#[cfg(any(test, not(target_os = "linux"), firebrick_portable))]
mod portable;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
pub(crate) use linux::*;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
pub(crate) use portable::*;

use rustix::net::SocketAddrAny;
use std::io;
use std::net::SocketAddr;

/// The limit of unsent bytes in the system per client, until the client has shown that it reads. With a larger limit, a client that reads
/// nothing would cost megabytes, and a slow one would make room for the next write only once in minutes.
pub const UNSENT: u32 = 128 << 10;

/// The progress of the other side in receiving the written bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Acknowledged bytes since the connection began. With TLS, encrypted bytes.
    pub acknowledged: u64,
    /// The approximate number of unacknowledged bytes.
    pub outstanding: u64,
}

/// Returns the address of a client from accept(2).
fn inet(address: Option<SocketAddrAny>) -> io::Result<SocketAddr> {
    let address = address.ok_or(io::ErrorKind::ConnectionAborted)?;
    Ok(SocketAddr::try_from(address)?)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::net::UnixStream;

    type SendFile = fn(BorrowedFd<'_>, &File, u64, usize) -> std::io::Result<usize>;

    /// Sends a part of a file. Returns the bytes that the other end reads.
    fn sent(file: &File, mut offset: u64, len: usize, send_file: SendFile) -> Vec<u8> {
        let (from, mut to) = UnixStream::pair().unwrap();
        from.set_nonblocking(true).unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            to.read_to_end(&mut bytes).map(|_| bytes)
        });
        let end = offset + len as u64;
        while offset < end {
            match send_file(from.as_fd(), file, offset, (end - offset) as usize) {
                Ok(0) => break,
                Ok(count) => offset += count as u64,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        drop(from);
        reader.join().unwrap().unwrap()
    }

    #[test]
    fn sockets_are_accepted_alike() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for accept in [super::accept, super::portable::accept] {
            let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (socket, remote) = accept(listener.as_fd()).unwrap();
            assert_eq!(remote, client.local_addr().unwrap());
            assert!(rustix::io::fcntl_getfd(&socket).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
            let flags = rustix::fs::fcntl_getfl(&socket).unwrap();
            assert!(flags.contains(rustix::fs::OFlags::NONBLOCK));
        }
    }

    #[test]
    fn parts_of_files_are_sent_alike_with_and_without_sendfile() {
        let path = std::env::temp_dir().join(format!("firebrick-send-{}", std::process::id()));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let text: Vec<u8> = (0..700_000_u32).map(|at| (at % 251) as u8).collect();
        file.write_all(&text).unwrap();
        for (offset, len) in [(0, text.len()), (1, 10), (300_000, 400_000), (699_990, 1_000), (800_000, 5)] {
            let wanted = text.get(offset..text.len().min(offset + len)).unwrap_or_default();
            for send_file in [super::send_file, super::portable::send_file] {
                assert!(sent(&file, offset as u64, len, send_file) == wanted, "{len} bytes at {offset}");
            }
        }
        let closed = UnixStream::pair().unwrap().0;
        assert!(super::portable::send_file(closed.as_fd(), &file, 0, 1).is_err());
    }
}
