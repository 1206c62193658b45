//! Builds requests for tests.

use handler::{Fields, Peer, PeerAddr, Request, Span, Version};
use std::rc::Rc;
use std::time::{Instant, SystemTime};

/// Returns a request for `target` on `example.org`.
pub(crate) fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> Request {
    let host = "example.org";
    let span = |start: usize, len: usize| Span { start: start as u32, len: len as u32 };
    let path = target.find('?').unwrap_or(target.len());
    let query = (path + 1).min(target.len());
    let mut all = Fields::from_parts([method, target, host].concat().into_bytes(), Vec::new());
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
        peer: Rc::new(Peer {
            remote: PeerAddr::Unix,
            remote_text: "192.0.2.1".into(),
            local: PeerAddr::Unix,
            tls: false,
            session: None,
        }),
        https: false,
        received: SystemTime::now(),
        arrived: Instant::now(),
    }
}
