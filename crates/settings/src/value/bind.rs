//! An address to listen on: `tcp://HOST:PORT` or `unix://PATH`.

use std::path::PathBuf;

/// Backlog asked for when none is given; the kernel lowers it to `net.core.somaxconn`.
pub const DEFAULT_BACKLOG: u32 = 4096;

/// One address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    /// A TCP port.
    Tcp {
        /// Host name or address, an IPv6 address without its brackets.
        host: String,
        /// 0 lets the kernel choose.
        port: u16,
        /// Connections the kernel may hold before they are accepted.
        backlog: u32,
    },
    /// A Unix stream socket.
    Unix {
        /// Absolute path.
        path: PathBuf,
        /// Umask while the socket is made.
        umask: Option<u32>,
        /// Permissions given to the socket once it is made; wins over `umask`.
        mode: Option<u32>,
        /// Connections the kernel may hold before they are accepted.
        backlog: u32,
    },
}
