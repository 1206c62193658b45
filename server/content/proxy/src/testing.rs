//! Builds requests for tests.

use handler::{Fields, Peer, PeerAddr, Request, Span, Version};
use std::rc::Rc;
use std::time::{Instant, SystemTime};

pub(crate) fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> Request {
    request_from(Some("192.0.2.1:5"), method, target, fields)
}

/// Returns a request from `remote`, or from a Unix socket.
pub(crate) fn request_from(
    remote: Option<&str>,
    method: &str,
    target: &str,
    fields: &[(&str, &str)],
) -> Request {
    let mut text = format!("{method}{target}").into_bytes();
    let mut slots = Vec::new();
    let mut authority = Span::default();
    let mut add = |part: &str| {
        let span = Span { start: text.len() as u32, len: part.len() as u32 };
        text.extend_from_slice(part.as_bytes());
        span
    };
    for (name, value) in fields {
        let slot = (add(name), add(value));
        if name.eq_ignore_ascii_case("host") {
            authority = slot.1;
        }
        slots.push(slot);
    }
    text.extend_from_slice(b"\r\n\r\n");
    let remote = remote.map_or(PeerAddr::Unix, |address| PeerAddr::Inet(address.parse().unwrap()));
    let remote_text = match remote {
        PeerAddr::Inet(address) => address.ip().to_string().into(),
        PeerAddr::Unix => Box::default(),
    };
    let split = method.len() as u32;
    let target = Span { start: split, len: target.len() as u32 };
    Request {
        version: Version::Http11,
        switchable: true,
        method: Span { start: 0, len: split },
        target,
        path: target,
        query: Span::default(),
        authority,
        fields: Fields::from_parts(text, slots),
        variables: Vec::new(),
        peer: Rc::new(Peer { remote, remote_text, local: PeerAddr::Unix, tls: false, session: None }),
        https: false,
        received: SystemTime::now(),
        arrived: Instant::now(),
    }
}
