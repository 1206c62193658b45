//! Unix stream sockets with features that the standard library lacks: a connect with a time-out, and
//! permissions that hold from the start.

use rustix::fs::Mode;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, connect, listen};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;
use sys::socket::FILE_KEEPS_MODE;

pub(crate) const BACKLOG: i32 = 64;

/// Connects. `timeout` limits the wait for room in the backlog, and later each read and write.
pub(crate) fn connect_to(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let socket = new_socket()?;
    set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(timeout))?;
    connect(&socket, &address(path)?)?;
    Ok(socket.into())
}

/// Binds and listens. Only the owner may connect.
pub(crate) fn listen_on(path: &Path) -> io::Result<UnixListener> {
    let owner_only = Mode::RUSR | Mode::WUSR;
    let socket = new_socket()?;
    // If the file does not take its mode from the socket, the mode is set afterwards.
    let private = FILE_KEEPS_MODE && rustix::fs::fchmod(&socket, owner_only).is_ok();
    bind(&socket, &address(path)?)?;
    if !private {
        rustix::fs::chmod(path, owner_only)?;
    }
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

fn new_socket() -> io::Result<std::os::fd::OwnedFd> {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    Ok(socket)
}

fn address(path: &Path) -> io::Result<SocketAddrUnix> {
    SocketAddrUnix::new(path).map_err(|_| {
        let message = "the path is too long for a socket (about 100 bytes); set `control` to a shorter one";
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })
}
