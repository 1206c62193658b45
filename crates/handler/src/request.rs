//! A request head that has passed the protocol's checks.

use crate::{Fields, Span};
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Instant, SystemTime};

/// HTTP version of a request. Handlers match it exhaustively, so that a new version is decided on everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2
    Http2,
    /// HTTP/3
    Http3,
}

impl Version {
    /// As CGI's and Rack's `SERVER_PROTOCOL`, and in logs.
    pub fn name(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2",
            Version::Http3 => "HTTP/3",
        }
    }
}

/// Address of one end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerAddr {
    /// TCP.
    Inet(SocketAddr),
    /// A Unix socket; its clients have no address.
    Unix,
}

impl PeerAddr {
    /// The IP address, if there is one.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            PeerAddr::Inet(address) => Some(address.ip()),
            PeerAddr::Unix => None,
        }
    }
}

/// Both ends of a connection, shared by all its requests.
#[derive(Debug)]
pub struct Peer {
    /// The client.
    pub remote: PeerAddr,
    /// The client's address as text, for `REMOTE_ADDR`; empty for a Unix socket.
    pub remote_text: Box<str>,
    /// The server's end: the address that the client connected to.
    pub local: PeerAddr,
    /// Whether the connection itself is encrypted.
    pub tls: bool,
    /// What is known about the encryption; `None` where nothing is said about it.
    pub session: Option<Box<Session>>,
}

/// What an encrypted connection's handshake has settled.
#[derive(Debug, Clone, Default)]
pub struct Session {
    /// The version, as OpenSSL names it: `TLSv1.3`.
    pub version: &'static str,
    /// The cipher suite as IANA names it.
    pub cipher: &'static str,
    /// What apps are told of it: `SSL_CLIENT_S_DN` and others. Empty unless client certificates are asked for.
    pub variables: Vec<Variable>,
    /// The `Alt-Svc` field (RFC 7838) of the next response, which takes it: clients remember it, so once per connection is enough.
    pub alt_svc: RefCell<Option<Rc<[u8]>>>,
}

/// A name and its value.
pub type Variable = (Box<[u8]>, Box<[u8]>);

/// Method, target, version and fields.
#[derive(Debug, Clone)]
pub struct Request {
    /// The version of the protocol that carried the request.
    pub version: Version,
    /// Method, a span of `fields.text()`.
    pub method: Span,
    /// Request target as received (origin, absolute, authority or asterisk form), a span of `fields.text()`.
    pub target: Span,
    /// Its path; `*` for the asterisk form; `/` for an absolute form without a path.
    pub path: Span,
    /// Its query without `?`.
    pub query: Span,
    /// The requested authority: from an absolute form, else from Host; may be empty in HTTP/1.0.
    pub authority: Span,
    /// Header fields.
    pub fields: Fields,
    /// What handlers have found out about the request, for later handlers and the log; see [`Request::set_variable`]. Most
    /// requests have none. Nothing that a client sends ends up here. Those of the connection come first
    /// ([`Session::variables`]): the pipeline puts them here.
    pub variables: Vec<Variable>,
    /// The connection's ends.
    pub peer: Rc<Peer>,
    /// Whether the client used `https`, according to the connection or a trusted proxy.
    pub https: bool,
    /// Wall-clock time at which the head was complete.
    pub received: SystemTime,
    /// Monotonic time at which the head was complete.
    pub arrived: Instant,
}

impl Request {
    /// The method's bytes; methods are case-sensitive (RFC 9110 section 9.1).
    #[inline]
    pub fn method(&self) -> &[u8] {
        self.method.slice(self.fields.text())
    }

    /// The target's bytes as received.
    #[inline]
    pub fn target(&self) -> &[u8] {
        self.target.slice(self.fields.text())
    }

    /// The path's bytes, still percent-encoded.
    #[inline]
    pub fn path(&self) -> &[u8] {
        self.path.slice(self.fields.text())
    }

    /// The query's bytes.
    #[inline]
    pub fn query(&self) -> &[u8] {
        self.query.slice(self.fields.text())
    }

    /// The authority's bytes.
    #[inline]
    pub fn authority(&self) -> &[u8] {
        self.authority.slice(self.fields.text())
    }

    /// A variable by its Rack name (`REMOTE_USER`).
    pub fn variable(&self, name: &str) -> Option<&[u8]> {
        self.variables.iter().find(|(known, _)| **known == *name.as_bytes()).map(|(_, value)| &**value)
    }

    /// Sets a variable; apps find it in their env under this name.
    pub fn set_variable(&mut self, name: &[u8], value: &[u8]) {
        match self.variables.iter_mut().find(|(known, _)| **known == *name) {
            Some((_, known)) => *known = value.into(),
            None => self.variables.push((name.into(), value.into())),
        }
    }

    /// `SERVER_NAME` and `SERVER_PORT` of CGI and Rack: from the authority, else the scheme's port.
    pub fn server(&self) -> (&[u8], &[u8]) {
        let default: &[u8] = if self.https { b"443" } else { b"80" };
        let authority = self.authority();
        if authority.is_empty() {
            return (b"localhost", default);
        }
        let colon = authority.iter().rposition(|&byte| byte == b':');
        let bracket = authority.iter().rposition(|&byte| byte == b']');
        match colon.filter(|&at| bracket < Some(at)) {
            Some(at) if at + 1 < authority.len() => (&authority[..at], &authority[at + 1..]),
            Some(at) => (&authority[..at], default),
            None => (authority, default),
        }
    }

    /// Whether sending the request twice has the same effect as sending it once (RFC 9110 section 9.2.2).
    pub fn is_idempotent(&self) -> bool {
        matches!(self.method(), b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"PUT" | b"DELETE")
    }
}
