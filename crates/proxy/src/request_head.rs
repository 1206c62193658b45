//! Request heads for upstreams: the client's fields without what is for one hop only, framed anew.
//!
//! Contract:
//! 1. Nothing of the client's framing gets through: length and coding are ours.
//! 2. `Host` and the fields about the client are written once, by us.
//! 3. `Expect` ends here: the client is told to continue when its body is wanted.

use crate::forwarded;
use crate::response_head::lists;
use crate::{Config, HostPolicy, Origin};
use handler::{Incoming, Request, Version};
use http::h1::syntax;

/// How a request's body is framed for the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    None,
    Length(u64),
    Chunked,
}

impl Framing {
    pub(crate) fn of(incoming: &Incoming, method: &[u8]) -> Framing {
        match incoming {
            Incoming::Empty => empty(method),
            other => match other.length() {
                Some(0) => empty(method),
                Some(length) => Framing::Length(length),
                None => Framing::Chunked,
            },
        }
    }
}

/// RFC 9110 section 8.6: methods that are expected to have content say when they have none.
fn empty(method: &[u8]) -> Framing {
    if matches!(method, b"POST" | b"PUT" | b"PATCH") { Framing::Length(0) } else { Framing::None }
}

/// The protocol that a request may be upgraded to, if it asks for one that may be passed on.
pub(crate) fn upgrade<'a>(request: &'a Request, config: &Config, framing: Framing) -> Option<&'a [u8]> {
    let mut offered = request.fields.all("upgrade");
    let protocol = offered.next()?;
    let asked = config.websocket
        && offered.next().is_none()
        && framing == Framing::None
        && request.version == Version::Http11
        && request.method() == b"GET"
        && request.fields.lists("connection", "upgrade");
    // Another HTTP inside would go past all that is checked here.
    let name = protocol.split(|&b| b == b'/').next().unwrap_or_default();
    let is_http = [&b"h2c"[..], b"h2", b"http", b"tls"].iter().any(|http| name.eq_ignore_ascii_case(http));
    (asked && !is_http && syntax::is_token(name) && !protocol.contains(&b',')).then_some(protocol)
}

/// What is said to an upstream.
pub(crate) struct Asking<'a> {
    pub(crate) config: &'a Config,
    pub(crate) origin: &'a Origin,
    pub(crate) request: &'a Request,
    pub(crate) target: &'a [u8],
    pub(crate) framing: Framing,
    pub(crate) upgrade: Option<&'a [u8]>,
}

impl Asking<'_> {
    /// Writes the head.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        let request = self.request;
        to.reserve(256 + self.target.len() + request.fields.text().len());
        to.extend_from_slice(request.method());
        to.push(b' ');
        if self.target != b"*" {
            to.extend_from_slice(self.origin.base.as_bytes());
        }
        to.extend_from_slice(self.target);
        to.extend_from_slice(b" HTTP/1.1\r\n");
        field(to, b"Host", self.host());
        let named = names(request);
        let mut accepts_trailers = false;
        for (name, value) in request.fields.iter() {
            if is_ours(name, self.config.forwarded) {
                accepts_trailers |= name.len() == 2 && lists(value, b"trailers");
            } else if !named || !request.fields.all("connection").any(|list| lists(list, name)) {
                field(to, name, value);
            }
        }
        if self.config.forwarded {
            forwarded::write(to, request, (self.config.trusted)(&request.peer));
        }
        match self.framing {
            Framing::None => {}
            Framing::Length(length) => {
                to.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes())
            }
            Framing::Chunked => to.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
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

    fn host(&self) -> &[u8] {
        match self.config.host {
            HostPolicy::Client if !self.request.authority().is_empty() => self.request.authority(),
            _ => self.origin.authority.as_bytes(),
        }
    }
}

/// Whether `Connection` names fields of the request.
fn names(request: &Request) -> bool {
    request.fields.all("connection").flat_map(|list| list.split(|&b| b == b',')).map(syntax::trim).any(
        |option| {
            !option.is_empty()
                && ![&b"keep-alive"[..], b"close", b"upgrade", b"te"]
                    .iter()
                    .any(|o| option.eq_ignore_ascii_case(o))
        },
    )
}

/// Whether a field of the client's is not passed on: it is for one hop, or we write it.
fn is_ours(name: &[u8], forwarded: bool) -> bool {
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    match name.len() {
        2 => is(b"te"),
        4 => is(b"host"),
        6 => is(b"expect"),
        7 => is(b"upgrade") || is(b"trailer"),
        9 => forwarded && is(b"forwarded"),
        10 => is(b"connection") || is(b"keep-alive"),
        14 => is(b"content-length") || is(b"http2-settings"),
        15 => forwarded && (is(b"x-forwarded-for") || is(b"x-forwarded-ssl")),
        16 => is(b"proxy-connection") || forwarded && (is(b"x-forwarded-host") || is(b"x-forwarded-port")),
        17 => is(b"transfer-encoding") || forwarded && is(b"x-forwarded-proto"),
        18 => is(b"proxy-authenticate") || forwarded && is(b"x-forwarded-scheme"),
        19 => is(b"proxy-authorization"),
        _ => false,
    }
}

fn field(to: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    to.extend_from_slice(name);
    to.extend_from_slice(b": ");
    to.extend_from_slice(value);
    to.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;
    use std::sync::Arc;

    fn written(method: &str, fields: &[(&str, &str)], framing: Framing, config: &Config) -> String {
        let request = request(method, "/asked?q", fields);
        let upgrade = upgrade(&request, config, framing);
        let origin = &config.origins[0];
        let mut to = Vec::new();
        Asking { config, origin, request: &request, target: b"/mapped?q", framing, upgrade }.write(&mut to);
        String::from_utf8(to).unwrap()
    }

    fn config() -> Config {
        let origin = Origin::parse("http://up.test:8080/base").unwrap();
        Config { forwarded: false, ..Config::new("test", vec![origin]) }
    }

    #[test]
    fn what_is_for_one_hop_ends_here() {
        let fields = [
            ("Host", "client.test"),
            ("Connection", "keep-alive, X-Mine"),
            ("X-Mine", "1"),
            ("Keep-Alive", "5"),
            ("TE", "gzip"),
            ("Trailer", "a"),
            ("Proxy-Authorization", "b"),
            ("Proxy-Connection", "c"),
            ("Expect", "100-continue"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "websocket"),
            ("Accept", "d"),
            ("X-Forwarded-For", "e"),
        ];
        let text = written("POST", &fields, Framing::Chunked, &config());
        let expected = "POST /base/mapped?q HTTP/1.1\r\nHost: up.test:8080\r\nAccept: d\r\nX-Forwarded-For: e\r\n\
                        Transfer-Encoding: chunked\r\n\r\n";
        assert_eq!(text, expected);
        let client = Config { host: HostPolicy::Client, ..config() };
        assert!(
            written("GET", &fields[..1], Framing::None, &client).contains("\r\nHost: client.test\r\n\r\n")
        );
        assert!(
            written("GET", &[("TE", "trailers, x")], Framing::None, &client)
                .ends_with("\r\nTE: trailers\r\nConnection: TE\r\n\r\n")
        );
    }

    #[test]
    fn bodies_are_framed_anew() {
        let given = [("Content-Length", "99")];
        assert!(
            written("PUT", &given, Framing::Length(3), &config())
                .ends_with("8080\r\nContent-Length: 3\r\n\r\n")
        );
        assert!(written("GET", &given, Framing::None, &config()).ends_with("8080\r\n\r\n"));
        assert_eq!(Framing::of(&Incoming::Empty, b"POST"), Framing::Length(0));
        assert_eq!(Framing::of(&Incoming::Empty, b"GET"), Framing::None);
        assert_eq!(Framing::of(&Incoming::Ready("abc".into()), b"GET"), Framing::Length(3));
    }

    #[test]
    fn upgrades_are_passed_on_when_they_may_be() {
        let ask = |protocol| {
            [("Connection", "keep-alive, Upgrade"), ("Upgrade", protocol), ("HTTP2-Settings", "x")]
        };
        let text = written("GET", &ask("websocket"), Framing::None, &config());
        assert!(text.ends_with("8080\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"), "{text}");
        for protocol in ["h2c", "H2C", "HTTP/2.0", "TLS/1.0", "websocket, h2c", "", "a b"] {
            assert!(
                written("GET", &ask(protocol), Framing::None, &config()).ends_with("8080\r\n\r\n"),
                "{protocol}"
            );
        }
        assert!(!written("POST", &ask("websocket"), Framing::Length(0), &config()).contains("Upgrade"));
        let off = Config { websocket: false, ..config() };
        assert!(!written("GET", &ask("websocket"), Framing::None, &off).contains("Upgrade"));
        assert!(!written("GET", &[("Upgrade", "websocket")], Framing::None, &config()).contains("Upgrade"));
    }

    #[test]
    fn who_is_trusted_decides_about_what_is_said_of_the_client() {
        let said = [
            ("Host", "h"),
            ("X-Forwarded-For", "6.6.6.6"),
            ("X-Forwarded-Ssl", "on"),
            ("Forwarded", "for=6.6.6.6"),
        ];
        let mut config = Config { forwarded: true, ..config() };
        let text = written("GET", &said, Framing::None, &config);
        assert!(
            text.contains("\r\nX-Forwarded-For: 192.0.2.1\r\n")
                && !text.contains("6.6.6.6")
                && !text.contains("-Ssl"),
            "{text}"
        );
        config.trusted = Arc::new(|_| true);
        let text = written("GET", &said, Framing::None, &config);
        assert!(text.contains("\r\nX-Forwarded-For: 6.6.6.6, 192.0.2.1\r\n"), "{text}");
    }
}
