//! Encodes request heads for origins: a client's request without its hop-by-hop fields, framed anew.
//!
//! Contract:
//! 1. None of the client's framing is passed on: length and coding are written here.
//! 2. `Host` is written once.
//! 3. Fields that the client's `Connection` names are removed, except for two kinds: fields that the server
//!    has added since the request arrived, and fields in which servers describe the client to each other.
//! 4. `Expect` is removed: the client gets 100 (Continue) when its body is wanted.

use crate::field::{Options, lists};
use crate::framing::Framing;
use crate::syntax;
use crate::write::{decimal, field};
use handler::{Incoming, Request};
use std::ops::Range;

/// Returns the framing of a request's body for an origin; `None` if it has no body and none is expected.
pub fn body_framing(incoming: &Incoming, method: &[u8]) -> Option<Framing> {
    // RFC 9110 section 8.6: methods that usually have content declare that they have none.
    let empty = matches!(method, b"POST" | b"PUT" | b"PATCH" | b"QUERY").then_some(Framing::Length(0));
    match incoming {
        Incoming::Empty => empty,
        other => match other.length() {
            Some(0) => empty,
            Some(length) => Some(Framing::Length(length)),
            None => Some(Framing::Chunked),
        },
    }
}

/// Returns the protocol that a request may be upgraded to, if it offers one that may be passed on.
pub fn upgrade_offer(request: &Request, framing: Option<Framing>) -> Option<&[u8]> {
    let mut offered = request.fields.all("upgrade");
    let protocol = offered.next()?;
    let valid = request.switchable
        && offered.next().is_none()
        && framing.is_none()
        && request.method() == b"GET"
        && request.fields.lists("connection", "upgrade");
    // Another HTTP inside would bypass all checks here.
    let name = protocol.split(|&b| b == b'/').next().unwrap_or_default();
    let is_http = [&b"h2c"[..], b"h2", b"http", b"tls"].iter().any(|http| name.eq_ignore_ascii_case(http));
    (valid && !is_http && syntax::is_token(name) && !protocol.contains(&b',')).then_some(protocol)
}

pub struct RequestEncoder<'a> {
    /// The client's request.
    pub request: &'a Request,
    /// The origin's base path, before the target.
    pub base: &'a [u8],
    /// Path and query, or `*`.
    pub target: &'a [u8],
    /// The value of `Host`.
    pub host: &'a [u8],
    pub framing: Option<Framing>,
    /// The protocol to upgrade to.
    pub upgrade: Option<&'a [u8]>,
}

impl RequestEncoder<'_> {
    /// Appends the head to `to`. Client fields for which `replaced` returns true are left out; `more` appends
    /// the field lines that replace them.
    pub fn encode(
        &self,
        to: &mut Vec<u8>,
        replaced: impl Fn(&[u8]) -> bool,
        more: impl FnOnce(&mut Vec<u8>),
    ) {
        let request = self.request;
        to.reserve(256 + self.target.len() + request.fields.text().len());
        to.extend_from_slice(request.method());
        to.push(b' ');
        if self.target != b"*" {
            to.extend_from_slice(self.base);
        }
        to.extend_from_slice(self.target);
        to.extend_from_slice(b" HTTP/1.1\r\n");
        field(to, b"Host", self.host);
        let mut options = Options::default();
        request.fields.all("connection").for_each(|value| options.add(value));
        let mut accepts_trailers = false;
        let received = if options.names { received(request.fields.text()) } else { [].as_ptr_range() };
        for (name, value) in request.fields.iter() {
            if is_for_one_hop(name) || replaced(name) {
                accepts_trailers |= name.len() == 2 && lists(value, b"trailers");
            } else if !options.names
                || !request.fields.all("connection").any(|list| lists(list, name))
                || !received.contains(&name.as_ptr())
                || is_for_all_hops(name)
            {
                field(to, name, value);
            }
        }
        more(to);
        match self.framing {
            None | Some(Framing::Close) => {}
            Some(Framing::Length(length)) => {
                to.extend_from_slice(b"Content-Length: ");
                decimal(to, length);
                to.extend_from_slice(b"\r\n");
            }
            Some(Framing::Chunked) => to.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        }
        match self.upgrade {
            Some(protocol) => {
                field(to, b"Upgrade", protocol);
                to.extend_from_slice(b"Connection: Upgrade\r\n");
            }
            None if accepts_trailers => to.extend_from_slice(b"TE: trailers\r\nConnection: TE\r\n"),
            None => {}
        }
        to.extend_from_slice(b"\r\n");
    }
}

/// Returns the head as received. Fields that the server has added since come after it, and have no line breaks.
fn received(text: &[u8]) -> Range<*const u8> {
    let len = text.windows(2).rposition(|pair| pair == b"\r\n").unwrap_or(0);
    text[..len].as_ptr_range()
}

/// Returns whether a field tells which client the request is from, or which servers it has passed. An earlier
/// server may have written it: the client must not remove it by naming it in `Connection` (RFC 9110 section
/// 7.6.1 forbids naming fields that are for all recipients).
fn is_for_all_hops(name: &[u8]) -> bool {
    const FIELDS: [&str; 11] = [
        "authorization",
        "cookie",
        "forwarded",
        "traceparent",
        "tracestate",
        "via",
        "x-client-ip",
        "x-real-ip",
        "x-request-id",
        "x-request-start",
        "true-client-ip",
    ];
    let begins = |with: &[u8]| name.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    begins(b"x-forwarded-") || FIELDS.iter().any(|field| name.eq_ignore_ascii_case(field.as_bytes()))
}

/// Returns whether a request's field is hop-by-hop (RFC 9110 section 7.6.1) or is written anew.
fn is_for_one_hop(name: &[u8]) -> bool {
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    match name.len() {
        2 => is(b"te"),
        4 => is(b"host"),
        6 => is(b"expect"),
        7 => is(b"upgrade") || is(b"trailer"),
        10 => is(b"connection") || is(b"keep-alive"),
        14 => is(b"content-length") || is(b"http2-settings"),
        16 => is(b"proxy-connection"),
        17 => is(b"transfer-encoding"),
        18 => is(b"proxy-authenticate"),
        19 => is(b"proxy-authorization"),
        _ => false,
    }
}
