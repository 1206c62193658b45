//! The other side of a socket: its address, and what it has received.

use rustix::net::SocketAddrAny;
use std::io;
use std::net::SocketAddr;

/// The progress of the other side of a TCP socket in receiving the written bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Acknowledged bytes since the connection began. With TLS, encrypted bytes.
    pub acknowledged: u64,
    /// Unacknowledged bytes: those in flight, which are known as a number of segments and therefore
    /// estimated, and those that are unsent.
    pub outstanding: u64,
}

/// Returns the address of a client from accept(2).
pub(crate) fn inet(address: Option<SocketAddrAny>) -> io::Result<SocketAddr> {
    let address = address.ok_or(io::ErrorKind::ConnectionAborted)?;
    Ok(SocketAddr::try_from(address)?)
}
