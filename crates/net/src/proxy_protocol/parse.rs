//! What both versions have in common.

use std::fmt;
use std::net::SocketAddr;

use super::{one, two};

/// Which versions are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// The text of version 1.
    V1,
    /// The binary form of version 2.
    V2,
    /// Either.
    Any,
}

/// What the header says about the connection to the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Nothing: a connection of the proxy's own (`LOCAL`, such as a health check), or of a kind that it cannot describe
    /// (`UNKNOWN`, `UNSPEC`). The socket's addresses count.
    Own,
    /// The client's and the proxy's end of a TCP connection.
    Inet {
        /// The client.
        remote: SocketAddr,
        /// The address that the client connected to.
        local: SocketAddr,
    },
    /// A connection to a Unix socket of the proxy: its clients have no address.
    Unix,
}

/// A header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The connection's ends.
    pub ends: Ends,
    /// Whether the client uses TLS to the proxy, if the header says so (version 2, section 2.2.6).
    pub tls: Option<bool>,
}

/// How far a header has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// Everything so far belongs to a header that is not complete.
    Incomplete,
    /// A header, and its length in bytes.
    Complete(Header, usize),
}

/// Why the bytes are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// They do not begin like one of the accepted versions.
    NoHeader(Accepted),
    /// They begin like one, and this is wrong with it.
    Header(&'static str),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::NoHeader(accepted) => {
                let versions = match accepted {
                    Accepted::V1 => " of version 1",
                    Accepted::V2 => " of version 2",
                    Accepted::Any => "",
                };
                write!(f, "it does not begin with a PROXY header{versions}")
            }
            Malformed::Header(why) => write!(f, "its PROXY header is malformed: {why}"),
        }
    }
}

/// Reads the header at the beginning of `bytes`.
///
/// # Errors
/// The bytes are not the beginning of an accepted header.
pub fn parse(bytes: &[u8], accepted: Accepted) -> Result<Parsed, Malformed> {
    let begins = |with: &[u8]| {
        let common = with.len().min(bytes.len());
        bytes[..common] == with[..common]
    };
    if accepted != Accepted::V2 && begins(one::SIGNATURE) {
        return one::parse(bytes).map_err(Malformed::Header);
    }
    if accepted != Accepted::V1 && begins(two::SIGNATURE) {
        return two::parse(bytes).map_err(Malformed::Header);
    }
    Err(Malformed::NoHeader(accepted))
}
