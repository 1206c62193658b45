//! Keeps the requests that workers were serving when they died, for `firebrick deaths --replay`.
//!
//! Contract:
//! 1. Nothing is copied before a worker has died: the front has the frame and the body anyway, until the worker has finished the request.
//! 2. Secrets are overwritten before anything is kept ([`text::secret`]). A body longer than [`LONGEST_BODY`] is left out.
//! 3. It is in the server's memory only, counted as requests are, and bounded in number by `deaths.keep_requests`.

use net::memory::{MemoryClass, Reserved};
use stats::KeptRequest;
use std::collections::VecDeque;
use text::secret;
use wire::request;

/// The longest body that is kept, and the longest head, in bytes.
pub(crate) const LONGEST_BODY: u64 = 64 << 10;
const LONGEST_HEAD: usize = 128 << 10;

/// Copies a request that a dead worker was serving: its REQUEST payload, and the body that is not in it, of `length` bytes, if it is short. `None`
/// if the worker has finished the request, or if the head is too long.
pub(crate) fn copy(head: &[u8], length: u64, body: Option<Vec<u8>>) -> Option<KeptRequest> {
    if !(1..=LONGEST_HEAD).contains(&head.len()) {
        return None;
    }
    let kept = body.is_some();
    let mut payload = request::with_body(head, &body.unwrap_or_default());
    let masked = mask_all(&mut payload)?;
    let decoded = request::Request::decode(&payload).ok()?;
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    Some(KeptRequest {
        method: text(decoded.head.method),
        target: text(decoded.head.target),
        masked,
        body_bytes: length,
        body_kept: kept,
        payload: text::hex(&payload),
    })
}

/// Masks the secrets of a REQUEST payload. Returns where there were some; `None` if it cannot be read.
fn mask_all(payload: &mut [u8]) -> Option<Vec<String>> {
    let (mut fields, mut content_type) = (Vec::new(), Vec::new());
    let start = payload.as_ptr() as usize;
    let place = |part: &[u8]| part.as_ptr() as usize - start..part.as_ptr() as usize - start + part.len();
    let request = request::Request::decode(payload).ok()?;
    let target = place(request.head.target);
    for field in request.fields() {
        let name = field.lowercase_name();
        if name == b"content-type" {
            content_type = field.value.to_vec();
        }
        fields.push((name, place(field.value)));
    }
    let body = match request.body {
        request::Body::Inline(body) => place(body),
        _ => 0..0,
    };
    let mut masked = Vec::new();
    if secret::url(&mut payload[target]) {
        masked.push("query".to_owned());
    }
    for (name, value) in fields {
        if secret::field(&name, &mut payload[value]) {
            masked.push(name.escape_ascii().to_string());
        }
    }
    if secret::body(&content_type, &mut payload[body]) {
        masked.push("body".to_owned());
    }
    masked.dedup();
    Some(masked)
}

/// The requests that are kept, with the numbers of the deaths.
#[derive(Debug, Default)]
pub(crate) struct KeptRequests(VecDeque<Kept>);

#[derive(Debug)]
struct Kept {
    /// The number of the death.
    death: u64,
    request: KeptRequest,
    /// Counts it until it is dropped.
    _reserved: Reserved,
}

impl KeptRequests {
    /// Adds a request of this death; at most `most` are kept, the newest.
    pub(crate) fn add(&mut self, death: u64, request: KeptRequest, most: usize) {
        let bytes = request.payload.len() + request.target.len();
        let _reserved = Reserved::new(MemoryClass::Requests, bytes as u64);
        self.0.push_back(Kept { death, request, _reserved });
        self.limit(most);
    }

    /// Forgets the oldest requests above `most`.
    pub(crate) fn limit(&mut self, most: usize) {
        self.0.drain(..self.0.len().saturating_sub(most));
    }

    /// Returns the requests of a death.
    pub(crate) fn of(&self, death: u64) -> impl Iterator<Item = &KeptRequest> {
        self.0.iter().filter(move |one| one.death == death).map(|one| &one.request)
    }
}
