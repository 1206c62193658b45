//! TCP options that neither std nor rustix nor socket2 sets. Setting an option by its number needs `unsafe`.

use crate::other_side::Delivery;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Makes a listener report a connection when its first data has arrived, or about `wait` (whole seconds, at
/// least one) after its handshake, whichever comes first (`TCP_DEFER_ACCEPT`, tcp(7)). For protocols in which
/// the client speaks first.
///
/// # Errors
/// Not a TCP socket.
pub fn defer_accept(listener: impl AsFd, wait: Duration) -> io::Result<()> {
    set(listener, libc::TCP_DEFER_ACCEPT, seconds(wait))
}

/// Makes a socket writable only while fewer than `bytes` of unsent data are in its buffer
/// (`TCP_NOTSENT_LOWAT`, tcp(7)). Accepted sockets inherit the option from the listener.
///
/// # Errors
/// Not a TCP socket.
pub fn unsent_low_water(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    set(socket, libc::TCP_NOTSENT_LOWAT, c_int::try_from(bytes).unwrap_or(c_int::MAX))
}

/// Sets how long a closed socket waits for the other side's end after its own end has been acknowledged
/// (`TCP_LINGER2`, tcp(7); whole seconds, at least one). Accepted sockets inherit the option.
///
/// # Errors
/// Not a TCP socket.
pub fn wait_for_end(socket: impl AsFd, time: Duration) -> io::Result<()> {
    set(socket, libc::TCP_LINGER2, seconds(time))
}

fn seconds(time: Duration) -> c_int {
    c_int::try_from(time.as_secs().max(1)).unwrap_or(c_int::MAX)
}

/// Sets a TCP option whose value is one int.
fn set(socket: impl AsFd, option: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open while it is borrowed, and the option's value is one int, which is read
    // during the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw const value).cast::<c_void>(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The requested bytes of `struct tcp_info`, and the offsets of the fields that are read (linux/tcp.h; the
/// layout only grows at its end).
const INFO: usize = 232;
const STATE: usize = 0;
const SEGMENT_SIZE: usize = 16;
const UNACKNOWLEDGED: usize = 24;
const ACKNOWLEDGED: usize = 120;
const UNSENT: usize = 144;
/// `TCP_CLOSE`.
const CLOSED: u8 = 7;

/// Returns the progress of the other side in receiving (`TCP_INFO`, tcp(7)).
///
/// # Errors
/// Not a TCP socket, or the kernel is older than 4.6 and does not tell.
pub fn delivery(socket: impl AsFd) -> io::Result<Delivery> {
    let mut info = [0_u8; INFO];
    let mut length = INFO as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed; the kernel writes at most `length` bytes to
    // `info`, and their number to `length`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast::<c_void>(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let known = &info[..INFO.min(length as usize)];
    let old = || io::Error::from(io::ErrorKind::Unsupported);
    let four =
        |at: usize| known.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
    let eight =
        |at: usize| known.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes);
    // The counters of a failed connection stay as they were, but its bytes are gone.
    let ended = known.get(STATE) == Some(&CLOSED);
    let unsent = four(UNSENT).ok_or_else(old)?;
    let (segments, size) = (four(UNACKNOWLEDGED).ok_or_else(old)?, four(SEGMENT_SIZE).ok_or_else(old)?);
    Ok(Delivery {
        acknowledged: eight(ACKNOWLEDGED).ok_or_else(old)?,
        outstanding: if ended { 0 } else { u64::from(unsent) + u64::from(segments) * u64::from(size) },
    })
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
    fn what_a_client_has_received_is_known_and_what_waits_is_bounded() {
        const LOW_WATER: usize = 128 << 10;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        unsent_low_water(&listener, LOW_WATER as u32).unwrap();
        wait_for_end(&listener, Duration::from_secs(9)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = accept(&listener);
        assert_eq!(delivery(&server).unwrap().outstanding, 0);
        server.set_nonblocking(true).unwrap();
        let piece = [7; 64 << 10];
        let mut sent = 0;
        for _ in 0..10_000 {
            match server.write(&piece) {
                Ok(n) => sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        let full = delivery(&server).unwrap();
        assert!(full.outstanding > 0, "{full:?} of {sent}");
        assert!(sent as u64 - full.acknowledged <= 4 * LOW_WATER as u64, "{full:?} of {sent}");
        let mut read = vec![0; sent];
        client.read_exact(&mut read).unwrap();
        for _ in 0..1_000 {
            if delivery(&server).unwrap().outstanding == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(delivery(&server).unwrap(), Delivery { acknowledged: sent as u64, outstanding: 0 });
    }

    #[test]
    fn nothing_is_outstanding_after_a_reset() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = accept(&listener);
        server.set_nonblocking(true).unwrap();
        while server.write(&[7; 64 << 10]).is_ok() {}
        assert!(delivery(&server).unwrap().outstanding > 0);
        // With unread bytes, the end is a reset.
        drop(client);
        for _ in 0..1_000 {
            if delivery(&server).unwrap().outstanding == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{:?}", delivery(&server));
    }

    #[test]
    fn other_sockets_are_refused() {
        let path = std::env::temp_dir().join(format!("sockopt-{}", std::process::id()));
        let unix = UnixListener::bind(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        assert!(defer_accept(&unix, Duration::ZERO).is_err());
        assert!(delivery(&unix).is_err() && unsent_low_water(&unix, 1).is_err());
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
