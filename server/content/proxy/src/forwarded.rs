//! Writes fields about the client for origins: `X-Forwarded-For`, `-Proto`, `-Host`, `-Port` and `Forwarded`
//! (RFC 7239).
//!
//! Fields of a trusted peer are extended (lists) or kept (host, port). Fields of other peers are replaced.

use h1::syntax;
use handler::{PeerAddr, Request};

pub(crate) fn write(to: &mut Vec<u8>, request: &Request, trusted: bool) {
    let proto: &[u8] = if request.https { b"https" } else { b"http" };
    let remote = request.peer.remote_text.as_bytes();
    list(to, request, trusted, "X-Forwarded-For", |to| to.extend_from_slice(remote), !remote.is_empty());
    line(to, b"X-Forwarded-Proto", proto);
    let authority = request.authority();
    let host = trusted_field(request, trusted, "x-forwarded-host").unwrap_or(authority);
    if !host.is_empty() {
        line(to, b"X-Forwarded-Host", host);
    }
    let port = trusted_field(request, trusted, "x-forwarded-port").unwrap_or_else(|| port(request));
    line(to, b"X-Forwarded-Port", port);
    let element = |to: &mut Vec<u8>| {
        to.extend_from_slice(b"for=");
        node(to, request);
        if !authority.is_empty() {
            to.extend_from_slice(b";host=");
            value(to, authority);
        }
        to.extend_from_slice(b";proto=");
        to.extend_from_slice(proto);
    };
    list(to, request, trusted, "Forwarded", element, true);
}

/// Writes a list field: the list of a trusted peer, then this server's `element` if there is one.
pub(crate) fn list(
    to: &mut Vec<u8>,
    request: &Request,
    trusted: bool,
    name: &str,
    element: impl Fn(&mut Vec<u8>),
    has_element: bool,
) {
    let before = to.len();
    to.extend_from_slice(name.as_bytes());
    to.extend_from_slice(b": ");
    let empty = to.len();
    for value in request.fields.all(name).filter(|value| trusted && !value.is_empty()) {
        if to.len() > empty {
            to.extend_from_slice(b", ");
        }
        to.extend_from_slice(value);
    }
    if has_element {
        if to.len() > empty {
            to.extend_from_slice(b", ");
        }
        element(to);
    }
    if to.len() == empty {
        to.truncate(before);
    } else {
        to.extend_from_slice(b"\r\n");
    }
}

/// Returns a field of a trusted peer.
fn trusted_field<'a>(request: &'a Request, trusted: bool, name: &str) -> Option<&'a [u8]> {
    if trusted { request.fields.get(name).filter(|value| !value.is_empty()) } else { None }
}

fn line(to: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    to.extend_from_slice(name);
    to.extend_from_slice(b": ");
    to.extend_from_slice(value);
    to.extend_from_slice(b"\r\n");
}

/// Returns the port that the client requested.
fn port(request: &Request) -> &[u8] {
    let authority = request.authority();
    let digits = authority.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let at = authority.len() - digits;
    match authority[..at].last() {
        Some(b':') if digits > 0 => &authority[at..],
        _ if request.https => b"443",
        _ => b"80",
    }
}

/// Writes the client as a node (RFC 7239 section 6): IPv6 addresses in brackets, and therefore in quotes.
fn node(to: &mut Vec<u8>, request: &Request) {
    match request.peer.remote {
        PeerAddr::Unix => to.extend_from_slice(b"unknown"),
        PeerAddr::Inet(address) => match address.ip().to_canonical() {
            std::net::IpAddr::V4(_) => to.extend_from_slice(request.peer.remote_text.as_bytes()),
            std::net::IpAddr::V6(_) => {
                to.extend_from_slice(b"\"[");
                to.extend_from_slice(request.peer.remote_text.as_bytes());
                to.extend_from_slice(b"]\"");
            }
        },
    }
}

/// Writes a token, or a quoted string.
fn value(to: &mut Vec<u8>, text: &[u8]) {
    if syntax::is_token(text) {
        return to.extend_from_slice(text);
    }
    to.push(b'"');
    for &byte in text {
        if matches!(byte, b'"' | b'\\') {
            to.push(b'\\');
        }
        to.push(byte);
    }
    to.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request_from;

    fn written(remote: Option<&str>, fields: &[(&str, &str)], https: bool, trusted: bool) -> Vec<String> {
        let mut request = request_from(remote, "GET", "/", fields);
        request.https = https;
        let mut to = Vec::new();
        write(&mut to, &request, trusted);
        String::from_utf8(to).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn strangers_are_spoken_for() {
        let fields = [
            ("Host", "h:81"),
            ("X-Forwarded-For", "1.1.1.1"),
            ("X-Forwarded-Host", "evil"),
            ("X-Forwarded-Port", "1"),
        ];
        assert_eq!(
            written(Some("192.0.2.1:5"), &fields, false, false),
            [
                "X-Forwarded-For: 192.0.2.1",
                "X-Forwarded-Proto: http",
                "X-Forwarded-Host: h:81",
                "X-Forwarded-Port: 81",
                "Forwarded: for=192.0.2.1;host=\"h:81\";proto=http",
            ]
        );
    }

    #[test]
    fn trusted_peers_are_extended() {
        let fields = [
            ("Host", "h"),
            ("X-Forwarded-For", "1.1.1.1"),
            ("X-Forwarded-For", "2.2.2.2"),
            ("X-Forwarded-Host", "outer"),
            ("X-Forwarded-Port", "444"),
            ("Forwarded", "for=1.1.1.1"),
        ];
        assert_eq!(
            written(Some("[2001:db8::1]:5"), &fields, true, true),
            [
                "X-Forwarded-For: 1.1.1.1, 2.2.2.2, 2001:db8::1",
                "X-Forwarded-Proto: https",
                "X-Forwarded-Host: outer",
                "X-Forwarded-Port: 444",
                "Forwarded: for=1.1.1.1, for=\"[2001:db8::1]\";host=h;proto=https",
            ]
        );
    }

    #[test]
    fn clients_on_unix_sockets_have_no_address() {
        let lines = written(None, &[("Host", "[::1]"), ("X-Forwarded-For", "1.1.1.1")], true, true);
        assert_eq!((&*lines[0], &*lines[3]), ("X-Forwarded-For: 1.1.1.1", "X-Forwarded-Port: 443"));
        assert_eq!(lines[4], "Forwarded: for=unknown;host=\"[::1]\";proto=https");
        assert_eq!(
            written(None, &[], false, false),
            ["X-Forwarded-Proto: http", "X-Forwarded-Port: 80", "Forwarded: for=unknown;proto=http"]
        );
    }
}
