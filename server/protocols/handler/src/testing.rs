//! Builds requests for tests, here and in the crates above. Behind the feature `testing`, which only
//! dev-dependencies turn on.

use crate::{Fields, Peer, PeerAddr, Request, Span, Version};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Instant, SystemTime};

/// Returns a GET request, or one of another method, for `target` on `example.org`.
pub fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> Request {
    request_to(b"example.org", method.as_bytes(), target.as_bytes(), fields)
}

/// Like [`request`], for another host and with a target that need not be text.
pub fn request_to(host: &[u8], method: &[u8], target: &[u8], fields: &[(&str, &str)]) -> Request {
    let span = |start: usize, len: usize| Span { start: start as u32, len: len as u32 };
    let path = target.iter().position(|&byte| byte == b'?').unwrap_or(target.len());
    let query = (path + 1).min(target.len());
    let mut all = Fields::from_parts([method, target, host].concat(), Vec::new());
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

/// Like [`request`], from a client with this address, or on a Unix socket.
///
/// # Panics
/// `ip` is not an IP address.
pub fn request_from(ip: Option<&str>, method: &str, target: &str, fields: &[(&str, &str)]) -> Request {
    let remote = ip.map_or(PeerAddr::Unix, |ip| {
        PeerAddr::Inet((ip.parse::<IpAddr>().expect("the address of a test's client"), 1).into())
    });
    Request { peer: Rc::new(Peer { remote, ..peer() }), ..request(method, target, fields) }
}

/// Returns a client whose address the access log shows as 192.0.2.1.
pub fn peer() -> Peer {
    let remote_text = "192.0.2.1".into();
    Peer { remote: PeerAddr::Unix, remote_text, local: PeerAddr::Unix, tls: false, session: None }
}
