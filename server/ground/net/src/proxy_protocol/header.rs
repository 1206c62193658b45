//! The content of a header, whichever version it has.

use std::net::SocketAddr;

/// The addresses of the connection to the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// None: a connection of the proxy itself (`LOCAL`, for example a health check), or of a kind that it
    /// cannot describe (`UNKNOWN`, `UNSPEC`). The socket's addresses count.
    Own,
    /// The client's and the proxy's address of a TCP connection.
    Inet {
        remote: SocketAddr,
        /// The address that the client connected to.
        local: SocketAddr,
    },
    /// A connection to a Unix socket of the proxy. Such clients have no address.
    Unix,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyHeader {
    pub ends: Ends,
    /// Whether the client uses TLS to the proxy, if the header tells (version 2, section 2.2.6).
    pub tls: Option<bool>,
}

/// The progress of parsing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParsedHeader {
    /// The bytes are the beginning of a header.
    Incomplete,
    /// A header, and its length in bytes.
    Complete(ProxyHeader, usize),
}
