//! Encodes request heads for origins: adds the configured fields to [`h1::RequestEncoder`].
//!
//! Contract: fields about the client (`X-Forwarded-*`, `Forwarded`) and `Via` are written once, here, if they
//! are configured.

use crate::via::Pseudonym;
use crate::{HostPolicy, Origin, ProxyConfig, Via, forwarded};
use h1::{Framing, RequestEncoder};
use handler::Request;

/// Returns the protocol that a request may be upgraded to, if it offers one that may be passed on.
pub(crate) fn upgrade<'a>(
    request: &'a Request,
    config: &ProxyConfig,
    framing: Option<Framing>,
) -> Option<&'a [u8]> {
    if config.websocket { h1::upgrade_offer(request, framing) } else { None }
}

pub(crate) struct OriginRequest<'a> {
    pub(crate) config: &'a ProxyConfig,
    pub(crate) origin: &'a Origin,
    pub(crate) via: &'a Pseudonym,
    pub(crate) request: &'a Request,
    pub(crate) target: &'a [u8],
    pub(crate) framing: Option<Framing>,
    pub(crate) upgrade: Option<&'a [u8]>,
}

impl OriginRequest<'_> {
    /// Appends the head to `to`.
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        let encoder = RequestEncoder {
            request: self.request,
            base: self.origin.base.as_bytes(),
            target: self.target,
            host: self.host(),
            framing: self.framing,
            upgrade: self.upgrade,
        };
        let (about_client, via) = (self.config.forwarded, self.config.via != Via::Off);
        let replaced = |name: &[u8]| about_client && is_about_client(name) || via && is_via(name);
        encoder.encode(to, replaced, |to| {
            if about_client {
                forwarded::write(to, self.request, (self.config.trusted)(&self.request.peer));
            }
            if via {
                self.via.write(to, self.request);
            }
        });
    }

    fn host(&self) -> &[u8] {
        match self.config.host {
            HostPolicy::Client if !self.request.authority().is_empty() => self.request.authority(),
            _ => self.origin.authority.as_bytes(),
        }
    }
}

fn is_via(name: &[u8]) -> bool {
    name.len() == 3 && name.eq_ignore_ascii_case(b"via")
}

/// Returns whether a field is about the client and written by this server.
fn is_about_client(name: &[u8]) -> bool {
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    match name.len() {
        9 => is(b"forwarded"),
        15 => is(b"x-forwarded-for") || is(b"x-forwarded-ssl"),
        16 => is(b"x-forwarded-host") || is(b"x-forwarded-port"),
        17 => is(b"x-forwarded-proto"),
        18 => is(b"x-forwarded-scheme"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;
    use h1::body_framing;
    use handler::Incoming;
    use std::sync::Arc;

    fn written(
        method: &str,
        fields: &[(&str, &str)],
        framing: Option<Framing>,
        config: &ProxyConfig,
    ) -> String {
        let request = request(method, "/asked?q", fields);
        let upgrade = upgrade(&request, config, framing);
        let origin = &config.origins[0];
        let mut to = Vec::new();
        let via = &Pseudonym::of_proxy();
        OriginRequest { config, origin, via, request: &request, target: b"/mapped?q", framing, upgrade }
            .encode(&mut to);
        String::from_utf8(to).unwrap()
    }

    fn config() -> ProxyConfig {
        let origin = Origin::parse("http://up.test:8080/base").unwrap();
        ProxyConfig { forwarded: false, via: Via::Off, ..ProxyConfig::new("test", vec![origin]) }
    }

    #[test]
    fn hop_by_hop_fields_are_not_passed_on() {
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
        let text = written("POST", &fields, Some(Framing::Chunked), &config());
        let expected = "POST /base/mapped?q HTTP/1.1\r\nHost: up.test:8080\r\nAccept: d\r\nX-Forwarded-For: e\r\n\
                        Transfer-Encoding: chunked\r\n\r\n";
        assert_eq!(text, expected);
        let client = ProxyConfig { host: HostPolicy::Client, ..config() };
        assert!(written("GET", &fields[..1], None, &client).contains("\r\nHost: client.test\r\n\r\n"));
        assert!(
            written("GET", &[("TE", "trailers, x")], None, &client)
                .ends_with("\r\nTE: trailers\r\nConnection: TE\r\n\r\n")
        );
    }

    #[test]
    fn a_client_cannot_take_away_what_servers_have_said() {
        let fields = [
            (
                "Connection",
                "keep-alive, X-Mine, X-User, Authorization, X-Forwarded-For, X-Real-IP, X-Request-Id",
            ),
            ("X-Mine", "1"),
            ("Authorization", "a"),
            ("X-Forwarded-For", "192.0.2.9"),
            ("X-Real-IP", "192.0.2.9"),
        ];
        let mut request = request("GET", "/", &fields);
        request.fields.push(b"X-User", b"anna");
        request.fields.push(b"X-Request-Id", b"7");
        let config = config();
        let (origin, via) = (&config.origins[0], &Pseudonym::of_proxy());
        let mut to = Vec::new();
        let head = OriginRequest {
            config: &config,
            origin,
            via,
            request: &request,
            target: b"/",
            framing: None,
            upgrade: None,
        };
        head.encode(&mut to);
        assert_eq!(
            String::from_utf8(to).unwrap(),
            "GET /base/ HTTP/1.1\r\nHost: up.test:8080\r\nAuthorization: a\r\nX-Forwarded-For: 192.0.2.9\r\nX-Real-IP: 192.0.2.9\r\n\
             X-User: anna\r\nX-Request-Id: 7\r\n\r\n"
        );
    }

    #[test]
    fn bodies_are_framed_anew() {
        let given = [("Content-Length", "99")];
        assert!(
            written("PUT", &given, Some(Framing::Length(3)), &config())
                .ends_with("8080\r\nContent-Length: 3\r\n\r\n")
        );
        assert!(written("GET", &given, None, &config()).ends_with("8080\r\n\r\n"));
        assert_eq!(body_framing(&Incoming::Empty, b"POST"), Some(Framing::Length(0)));
        assert_eq!(body_framing(&Incoming::Empty, b"GET"), None);
        assert_eq!(body_framing(&Incoming::Ready("abc".into()), b"GET"), Some(Framing::Length(3)));
    }

    #[test]
    fn upgrades_are_passed_on_when_they_may_be() {
        let ask = |protocol| {
            [("Connection", "keep-alive, Upgrade"), ("Upgrade", protocol), ("HTTP2-Settings", "x")]
        };
        let text = written("GET", &ask("websocket"), None, &config());
        assert!(text.ends_with("8080\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"), "{text}");
        for protocol in ["h2c", "H2C", "HTTP/2.0", "TLS/1.0", "websocket, h2c", "", "a b"] {
            assert!(written("GET", &ask(protocol), None, &config()).ends_with("8080\r\n\r\n"), "{protocol}");
        }
        assert!(!written("POST", &ask("websocket"), Some(Framing::Length(0)), &config()).contains("Upgrade"));
        let off = ProxyConfig { websocket: false, ..config() };
        assert!(!written("GET", &ask("websocket"), None, &off).contains("Upgrade"));
        assert!(!written("GET", &[("Upgrade", "websocket")], None, &config()).contains("Upgrade"));
    }

    #[test]
    fn via_is_written_without_the_other_fields_and_passes_when_it_is_off() {
        let said = [("Via", "1.0 fred"), ("Connection", "via, close"), ("X-Forwarded-For", "6.6.6.6")];
        let text = written("GET", &said, None, &ProxyConfig { via: Via::Requests, ..config() });
        assert!(text.contains("\r\nX-Forwarded-For: 6.6.6.6\r\nVia: 1.0 fred, 1.1 firebrick-"), "{text}");
        assert_eq!(text.matches("Via").count(), 1);
        assert!(written("GET", &said[..1], None, &config()).contains("\r\nVia: 1.0 fred\r\n"));
        let websocket = [("Connection", "Upgrade"), ("Upgrade", "websocket")];
        let text = written("GET", &websocket, None, &ProxyConfig { via: Via::Both, ..config() });
        assert!(
            text.contains("\r\nVia: 1.1 firebrick-") && text.contains("\r\nUpgrade: websocket\r\n"),
            "{text}"
        );
    }

    #[test]
    fn forwarding_fields_are_kept_from_trusted_peers_only() {
        let said = [
            ("Host", "h"),
            ("X-Forwarded-For", "6.6.6.6"),
            ("X-Forwarded-Ssl", "on"),
            ("Forwarded", "for=6.6.6.6"),
        ];
        let mut config = ProxyConfig { forwarded: true, ..config() };
        let text = written("GET", &said, None, &config);
        assert!(
            text.contains("\r\nX-Forwarded-For: 192.0.2.1\r\n")
                && !text.contains("6.6.6.6")
                && !text.contains("-Ssl"),
            "{text}"
        );
        config.trusted = Arc::new(|_| true);
        let text = written("GET", &said, None, &config);
        assert!(text.contains("\r\nX-Forwarded-For: 6.6.6.6, 192.0.2.1\r\n"), "{text}");
    }
}
