//! A request head that has passed the protocol's checks.

use crate::{Fields, Span};
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Instant, SystemTime};

/// The HTTP version of a request. Handlers match it exhaustively, so that a new version needs a decision
/// everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    Http10,
    Http11,
    Http2,
    Http3,
}

impl Version {
    /// Returns the name for CGI's and Rack's `SERVER_PROTOCOL` and for logs.
    pub fn name(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2",
            Version::Http3 => "HTTP/3",
        }
    }
}

/// The address of one end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerAddr {
    Inet(SocketAddr),
    /// A Unix socket, whose clients have no address.
    Unix,
}

impl PeerAddr {
    /// Returns the IP address, if there is one.
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
    pub remote: PeerAddr,
    /// The client's address as text, for `REMOTE_ADDR`; empty for a Unix socket.
    pub remote_text: Box<str>,
    /// The address that the client connected to.
    pub local: PeerAddr,
    /// Whether the connection itself is encrypted.
    pub tls: bool,
    /// The parameters of the encryption; `None` if they are not known.
    pub session: Option<Box<Session>>,
}

/// The parameters that the handshake of an encrypted connection has negotiated.
#[derive(Debug, Clone, Default)]
pub struct Session {
    /// The version as OpenSSL names it: `TLSv1.3`.
    pub version: &'static str,
    /// The cipher suite as IANA names it.
    pub cipher: &'static str,
    /// Variables for apps: `SSL_CLIENT_S_DN` and others. Empty unless client certificates are requested.
    pub variables: Vec<Variable>,
    /// The `Alt-Svc` field (RFC 7838) for the next response, which takes it. Clients remember it, so once per
    /// connection is enough.
    pub alt_svc: RefCell<Option<Rc<[u8]>>>,
}

/// A name and its value.
pub type Variable = (Box<[u8]>, Box<[u8]>);

/// A request: method, target, version and fields.
#[derive(Debug, Clone)]
pub struct Request {
    /// The version of the protocol that carried the request.
    pub version: Version,
    /// Whether the client may switch to another protocol (RFC 9110 section 7.8): in HTTP/1.1, and with an
    /// Extended CONNECT of HTTP/2 and HTTP/3, which handlers see as the same GET with `Upgrade`.
    pub switchable: bool,
    /// A span of `fields.text()`.
    pub method: Span,
    /// The request target as received (origin, absolute, authority or asterisk form), a span of
    /// `fields.text()`.
    pub target: Span,
    /// The path of the target; `*` for the asterisk form; `/` for an absolute form without a path.
    pub path: Span,
    /// The query of the target without `?`.
    pub query: Span,
    /// The requested authority, from an absolute form, otherwise from Host; may be empty in HTTP/1.0.
    pub authority: Span,
    pub fields: Fields,
    /// Results of handlers for later handlers and the log; see [`Request::set_variable`]. Most requests have
    /// none. Data from the client never gets here. The pipeline puts the variables of the connection
    /// ([`Session::variables`]) first.
    pub variables: Vec<Variable>,
    pub peer: Rc<Peer>,
    /// Whether the client used `https`, according to the connection or a trusted proxy.
    pub https: bool,
    /// The wall-clock time at which the head was complete.
    pub received: SystemTime,
    /// The monotonic time at which the head was complete.
    pub arrived: Instant,
}

impl Request {
    /// Returns the method. Methods are case-sensitive (RFC 9110 section 9.1).
    #[inline]
    pub fn method(&self) -> &[u8] {
        self.method.slice(self.fields.text())
    }

    /// Returns the target as received.
    #[inline]
    pub fn target(&self) -> &[u8] {
        self.target.slice(self.fields.text())
    }

    /// Returns the path, still percent-encoded.
    #[inline]
    pub fn path(&self) -> &[u8] {
        self.path.slice(self.fields.text())
    }

    #[inline]
    pub fn query(&self) -> &[u8] {
        self.query.slice(self.fields.text())
    }

    #[inline]
    pub fn authority(&self) -> &[u8] {
        self.authority.slice(self.fields.text())
    }

    /// Returns a variable by its Rack name (`REMOTE_USER`).
    pub fn variable(&self, name: &str) -> Option<&[u8]> {
        self.variables.iter().find(|(known, _)| **known == *name.as_bytes()).map(|(_, value)| &**value)
    }

    /// Sets a variable. Apps find it in their env under this name.
    pub fn set_variable(&mut self, name: &[u8], value: &[u8]) {
        match self.variables.iter_mut().find(|(known, _)| **known == *name) {
            Some((_, known)) => *known = value.into(),
            None => self.variables.push((name.into(), value.into())),
        }
    }

    /// Returns `SERVER_NAME` and `SERVER_PORT` of CGI and Rack, from the authority; the default port is that
    /// of the scheme.
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

    /// Returns whether sending the request twice has the same effect as sending it once (RFC 9110 section
    /// 9.2.2; for QUERY RFC 10008).
    pub fn is_idempotent(&self) -> bool {
        matches!(self.method(), b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"PUT" | b"DELETE" | b"QUERY")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_method(method: &'static [u8]) -> Request {
        let mut fields = Fields::default();
        fields.push(b"m", method);
        let text = fields.text().to_vec();
        let start = text.windows(method.len()).position(|part| part == method).unwrap();
        let (method, none) = (Span { start: start as u32, len: method.len() as u32 }, Span::default());
        let peer = Peer {
            remote: PeerAddr::Unix,
            remote_text: Box::default(),
            local: PeerAddr::Unix,
            tls: false,
            session: None,
        };
        Request {
            version: Version::Http11,
            switchable: true,
            method,
            target: none,
            path: none,
            query: none,
            authority: none,
            fields,
            variables: Vec::new(),
            peer: Rc::new(peer),
            https: false,
            received: SystemTime::now(),
            arrived: Instant::now(),
        }
    }

    #[test]
    fn methods_that_may_be_sent_again() {
        for method in [&b"GET"[..], b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE", b"QUERY"] {
            assert!(with_method(method).is_idempotent(), "{}", method.escape_ascii());
        }
        for method in [&b"POST"[..], b"PATCH", b"CONNECT", b"query", b"QUERYX"] {
            assert!(!with_method(method).is_idempotent(), "{}", method.escape_ascii());
        }
    }
}
