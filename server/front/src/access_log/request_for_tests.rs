//! Requests and peers for tests.

use handler::{Fields, Peer, PeerAddr, Request, Span, Version};
use std::rc::Rc;
use std::time::{Instant, SystemTime};

/// Returns a client on the network.
pub(crate) fn peer() -> Peer {
    let remote_text = "192.0.2.1".into();
    Peer { remote: PeerAddr::Unix, remote_text, local: PeerAddr::Unix, tls: false, session: None }
}

/// Returns a request for `target` on `example.org`.
pub(crate) fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> Request {
    request_of_bytes(method.as_bytes(), target.as_bytes(), fields)
}

/// Like [`request`], with a target that need not be text.
pub(crate) fn request_of_bytes(method: &[u8], target: &[u8], fields: &[(&str, &str)]) -> Request {
    request_to(b"example.org", method, target, fields)
}

/// Like [`request_of_bytes`], for another host.
pub(crate) fn request_to(host: &[u8], method: &[u8], target: &[u8], fields: &[(&str, &str)]) -> Request {
    let text = [method, target, host].concat();
    let span = |start: usize, len: usize| Span { start: start as u32, len: len as u32 };
    let path = target.iter().position(|&byte| byte == b'?').unwrap_or(target.len());
    let query = (path + 1).min(target.len());
    let mut all = Fields::from_parts(text, Vec::new());
    fields.iter().for_each(|(name, value)| all.push(name.as_bytes(), value.as_bytes()));
    Request {
        version: Version::Http11,
        switchable: true,
        method: span(0, method.len()),
        target: span(method.len(), target.len()),
        path: span(method.len(), path),
        query: span(method.len() + query, target.len() - query),
        authority: span(method.len() + target.len(), host.len()),
        fields: all,
        variables: Vec::new(),
        peer: Rc::new(peer()),
        https: false,
        received: SystemTime::now(),
        arrived: Instant::now(),
    }
}
