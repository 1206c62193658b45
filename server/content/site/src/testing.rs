//! Builds requests for tests, and runs the futures of their responses.

use handler::{Body, Fields, Peer, PeerAddr, Request, Response, Span, Version};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::{Instant, SystemTime};

/// Returns a request for `target` on `example.org`.
pub(crate) fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> Request {
    let host = "example.org";
    let text = [method, target, host].concat().into_bytes();
    let span = |start: usize, len: usize| Span { start: start as u32, len: len as u32 };
    let path = target.find('?').unwrap_or(target.len());
    let query = (path + 1).min(target.len());
    let mut all = Fields::from_parts(text, Vec::new());
    fields.iter().for_each(|(name, value)| all.push(name.as_bytes(), value.as_bytes()));
    let remote_text = "192.0.2.1".into();
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
            remote_text,
            local: PeerAddr::Unix,
            tls: false,
            session: None,
        }),
        https: false,
        received: SystemTime::now(),
        arrived: Instant::now(),
    }
}

/// Runs a future to completion.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

/// Returns the bytes of a body as text.
pub(crate) fn text(response: &Response) -> String {
    let bytes = match &response.body {
        Body::Bytes(bytes) => bytes.to_vec(),
        Body::Kept(kept) => kept.body().to_vec(),
        Body::File(region) => {
            let mut bytes = vec![0; region.len as usize];
            region.file.read_exact_at(&mut bytes, region.offset).unwrap();
            bytes
        }
        _ => Vec::new(),
    };
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns a field's value, empty if absent.
pub(crate) fn field(response: &Response, name: &str) -> String {
    String::from_utf8_lossy(response.fields.get(name).unwrap_or_default()).into_owned()
}
