//! Requests made by handlers: to other servers and to the rest of this one.

use h1::syntax;
use handler::{Client, Departure, Exchange, Fields, Incoming, Peer, PeerAddr, Request, Span, Trace, Version};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime};

pub(crate) struct RequestParts<'a> {
    pub(crate) method: &'a [u8],
    pub(crate) path: &'a [u8],
    pub(crate) query: &'a [u8],
    pub(crate) authority: &'a [u8],
    pub(crate) https: bool,
    pub(crate) fields: Vec<(Vec<u8>, &'a [u8])>,
    pub(crate) variables: Vec<handler::Variable>,
    pub(crate) peer: Rc<Peer>,
}

impl RequestParts<'_> {
    /// Builds the request.
    ///
    /// # Errors
    /// A part is invalid; the message names it.
    pub(crate) fn request(self) -> Result<Request, String> {
        if !syntax::is_token(self.method) {
            return Err(format!("\"{}\" is not a method", self.method.escape_ascii()));
        }
        let mut text = Vec::with_capacity(256);
        let mut add = |part: &[u8]| {
            let span = Span { start: text.len() as u32, len: part.len() as u32 };
            text.extend_from_slice(part);
            span
        };
        let (method, path) = (add(self.method), add(self.path));
        let mut target = path;
        let mut query = Span::default();
        if !self.query.is_empty() {
            add(b"?");
            query = add(self.query);
            target.len += 1 + query.len;
        }
        let authority = add(self.authority);
        if !syntax::is_target(target.slice(&text)) || !(self.path.starts_with(b"/") || self.path == b"*") {
            return Err(format!(
                "\"{}\" is not a valid target: a path starts with / and is percent-encoded",
                target.slice(&text).escape_ascii()
            ));
        }
        if !self.authority.is_empty() && !syntax::is_authority(self.authority) {
            return Err(format!("\"{}\" is not a host", self.authority.escape_ascii()));
        }
        let mut fields = Fields::from_parts(text, Vec::new());
        for (name, value) in &self.fields {
            let value = syntax::trim(value);
            if !syntax::is_token(name) || !syntax::is_value(value) {
                let (name, value) = (name.escape_ascii(), value.escape_ascii());
                return Err(format!("the field \"{name}: {value}\" cannot be sent"));
            }
            fields.push(name, value);
        }
        Ok(Request {
            version: Version::Http11,
            switchable: true,
            method,
            target,
            path,
            query,
            authority,
            fields,
            variables: self.variables,
            peer: self.peer,
            https: self.https,
            received: SystemTime::now(),
            arrived: Instant::now(),
        })
    }
}

/// Returns an exchange for such a request.
pub(crate) fn exchange(
    request: Request,
    body: Option<bytes::Bytes>,
    client: Rc<dyn Client>,
    trace: Rc<Trace>,
) -> Exchange {
    let incoming = body.filter(|body| !body.is_empty()).map_or(Incoming::Empty, Incoming::Ready);
    Exchange { request: request.into(), incoming, client, trace }
}

/// Returns the peer of requests to other servers, which is this server.
pub(crate) fn own_peer() -> Rc<Peer> {
    Rc::new(Peer {
        remote: PeerAddr::Unix,
        remote_text: Box::default(),
        local: PeerAddr::Unix,
        tls: false,
        session: None,
    })
}

/// A client that never departs: its request is cancelled by dropping the future. Interim responses go to the
/// inner client, if any.
pub(crate) struct NoDeparture(pub(crate) Option<Rc<dyn Client>>);

impl Client for NoDeparture {
    fn poll_departure(&self, _: &mut Context<'_>) -> Poll<Departure> {
        Poll::Pending
    }

    fn interim(&self, status: u16, fields: &Fields) {
        if let Some(client) = &self.0 {
            client.interim(status, fields);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts<'a>(method: &'a [u8], path: &'a [u8], fields: &[(&str, &'a [u8])]) -> RequestParts<'a> {
        RequestParts {
            method,
            path,
            query: b"q=1",
            authority: b"h:81",
            https: true,
            fields: fields.iter().map(|(name, value)| (name.as_bytes().to_vec(), *value)).collect(),
            variables: Vec::new(),
            peer: own_peer(),
        }
    }

    #[test]
    fn a_request_is_built_from_parts() {
        let request = parts(b"POST", b"/a", &[("x-a", b" 1 "), ("x-a", b"2")]).request().unwrap();
        assert_eq!((request.method(), request.target()), (&b"POST"[..], &b"/a?q=1"[..]));
        assert_eq!((request.path(), request.query()), (&b"/a"[..], &b"q=1"[..]));
        assert_eq!(request.authority(), b"h:81");
        assert_eq!(request.fields.all("x-a").collect::<Vec<_>>(), [b"1", b"2"]);
    }

    #[test]
    fn invalid_parts_are_errors() {
        for (made, why) in [
            (parts(b"GE T", b"/", &[]), "not a method"),
            (parts(b"GET", b"a", &[]), "starts with /"),
            (parts(b"GET", b"/a b", &[]), "percent-encoded"),
            (parts(b"GET", b"/", &[("x a", b"1")]), "x a"),
            (parts(b"GET", b"/", &[("x-a", b"1\r\nx-b: 2")]), "cannot be sent"),
            (RequestParts { authority: b"a b", ..parts(b"GET", b"/", &[]) }, "not a host"),
        ] {
            let error = made.request().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
