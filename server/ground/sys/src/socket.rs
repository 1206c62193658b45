//! Sockets: flags of the calls, and features that only some systems have. A feature that a system lacks or
//! refuses is left out: the server's own limits and time-outs then apply.
//!
//! Contract:
//! 1. [`NO_SIGNAL`]: the flag of send(2) that suppresses SIGPIPE, if there is one; the program ignores the
//!    signal anyway. [`MORE`]: more bytes will follow. [`ARRIVES_CLOSED_ON_EXEC`]: a flag of recvmsg(2); each
//!    descriptor that arrives must be passed to [`close_on_exec`].
//! 2. [`LONGEST_PATH`]: the longest path that fits `sun_path` with its final NUL. [`FILE_KEEPS_MODE`]: a
//!    socket's file takes its mode from the socket, so that no other user can connect at any moment.
//!    [`SPREADS`]: whether the kernel spreads connections over the sockets of a port (`SO_REUSEPORT`). If
//!    not, all threads share one socket.
//! 3. [`pair`]: connected stream sockets that do not block and are closed on exec. [`accept`] accepts a
//!    connection with such a socket.
//! 4. [`send_file`] sends a part of a file to a non-blocking socket, and returns the number of bytes sent: 0
//!    if the file ends before `offset`, and possibly fewer than `len`.
//! 5. [`delivery`]: the progress of the other side; `None` if unknown. [`bound_unsent`]: the socket is
//!    writable only while fewer bytes are unsent. [`abandon_after`]: the system gives up a connection whose
//!    other side acknowledges nothing for that long.
//!    [`wait_for_end`]: how long a client may take to close its side of a connection that the server has closed.
//! 6. [`defer_accept`]: a connection is accepted with its first bytes, or about `wait` later without, so that
//!    accepting, reading and responding take one turn. [`do_not_pace`]: replaces BBR, which sends more than
//!    64 KiB in pieces by a timer: that takes a fifth of the CPU time of a busy server, and gains nothing
//!    within a machine. Accepted sockets inherit the options of their listener.
//! 7. [`is_listener`]: whether a socket accepts connections; true if unknown. [`peer`]: the process that has
//!    created the other end of a Unix socket, or listens there; `None` if the system does not tell.
//!    [`listener_of`]: the process that listens on a TCP port of this machine, as far as this user may see
//!    it, with its directory. [`listening_paths`]: the files of all Unix sockets that accept connections, of all users; none if the system
//!    does not tell. [`abstract_address`]: the address of a Unix socket without a file.

pub use crate::other_side::Delivery;
pub use crate::system::{
    ARRIVES_CLOSED_ON_EXEC, FILE_KEEPS_MODE, LONGEST_PATH, MORE, NO_SIGNAL, SPREADS, abandon_after,
    abstract_address, accept, bound_unsent, close_on_exec, defer_accept, delivery, do_not_pace, is_listener,
    listener_of, listening_paths, pair, peer, send_file, wait_for_end,
};

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
        for accept in [super::accept, crate::portable::accept] {
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
        let mut file = crate::file::unnamed(&std::env::temp_dir()).unwrap();
        let text: Vec<u8> = (0..700_000_u32).map(|at| (at % 251) as u8).collect();
        file.write_all(&text).unwrap();
        for (offset, len) in [(0, text.len()), (1, 10), (300_000, 400_000), (699_990, 1_000), (800_000, 5)] {
            let wanted = text.get(offset..text.len().min(offset + len)).unwrap_or_default();
            for send_file in [super::send_file, crate::portable::send_file] {
                assert!(sent(&file, offset as u64, len, send_file) == wanted, "{len} bytes at {offset}");
            }
        }
        let closed = UnixStream::pair().unwrap().0;
        assert!(crate::portable::send_file(closed.as_fd(), &file, 0, 1).is_err());
    }
}
