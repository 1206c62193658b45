//! Socket options that neither std nor rustix nor socket2 sets.
//!
//! Why a crate: setting an option by its number needs `unsafe`, which the crates that use it forbid.
#![cfg(target_os = "linux")]

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// A listener reports a connection when its first data has arrived, or about `wait` (whole seconds, at least one) after its handshake, whichever
/// comes first (`TCP_DEFER_ACCEPT`, tcp(7)). For protocols in which the client speaks first.
///
/// # Errors
/// The socket is none of TCP.
pub fn defer_accept(listener: impl AsFd, wait: Duration) -> io::Result<()> {
    let seconds = c_int::try_from(wait.as_secs().max(1)).unwrap_or(c_int::MAX);
    // SAFETY: the descriptor is open while it is borrowed, and the option's value is one int, which is read during the call.
    let result = unsafe {
        libc::setsockopt(
            listener.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast::<c_void>(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_connection_comes_with_its_data_and_a_silent_one_later() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        defer_accept(&listener, Duration::from_secs(1)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let silent = TcpStream::connect(address).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        let mut speaker = TcpStream::connect(address).unwrap();
        speaker.write_all(b"hello").unwrap();
        let mut first = accept(&listener);
        let mut read = [0; 5];
        first.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"hello");
        assert_eq!(accept(&listener).peer_addr().unwrap(), silent.local_addr().unwrap());
    }

    #[test]
    fn a_client_that_leaves_without_a_word_is_reported() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        defer_accept(&listener, Duration::from_secs(60)).unwrap();
        drop(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        assert_eq!(accept(&listener).read(&mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn other_sockets_are_refused() {
        let path = std::env::temp_dir().join(format!("sockopt-{}", std::process::id()));
        let unix = UnixListener::bind(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        assert!(defer_accept(&unix, Duration::ZERO).is_err());
    }

    fn accept(listener: &TcpListener) -> TcpStream {
        for _ in 0..1_000 {
            if let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(false).unwrap();
                return stream;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("no connection within 10 s");
    }
}
