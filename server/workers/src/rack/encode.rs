//! Encodes a request for a worker.

use handler::{PeerAddr, Request, Version};
use http::body::Collected;
use std::cell::RefCell;
use wire::request::{Encoder, Head, Put};

/// Chooses one request in [`Samples::OF`] for measurement, at random, because apps and clients may have a
/// rhythm of their own.
pub(super) struct Samples(RefCell<fastrand::Rng>);

impl Default for Samples {
    fn default() -> Samples {
        Samples(RefCell::new(fastrand::Rng::new()))
    }
}

impl Samples {
    /// Measuring costs some system calls, so not every request is measured.
    const OF: u32 = 16;

    /// Returns whether the next request is measured.
    #[inline]
    pub(super) fn next(&self) -> bool {
        self.0.borrow_mut().u32(..).is_multiple_of(Self::OF)
    }
}

/// Appends the REQUEST frame to `frame`.
pub(super) fn encode(request: &Request, body: &Collected, asked_us: u64, measure: bool, frame: &mut Vec<u8>) {
    let (server_name, server_port) = request.server();
    let target = request.target;
    // The implied path of `http://host` is not in the target. The worker uses `/` if there is none.
    let inside = |part: handler::Span| match part.start.checked_sub(target.start) {
        Some(start) if start + part.len <= target.len => (start, part.len),
        _ => (0, 0),
    };
    let remote_port = match request.peer.remote {
        PeerAddr::Inet(addr) => addr.port(),
        PeerAddr::Unix => 0,
    };
    let head = Head {
        version: match request.version {
            Version::Http10 => 10,
            Version::Http11 => 11,
            Version::Http2 => 20,
            Version::Http3 => 30,
        },
        https: request.https,
        remote_port,
        measure,
        switch: false,
        asked_us,
        method: request.method(),
        target: request.target(),
        path: inside(request.path),
        query: inside(request.query),
        remote_addr: request.peer.remote_text.as_bytes(),
        server_name,
        server_port,
    };
    let mut encoder = Encoder::new(frame, &head);
    for (name, value) in request.fields.iter() {
        encoder.field(name, value);
    }
    if encoder.has_upgrade() && request.switchable && request.fields.lists("connection", "upgrade") {
        encoder.switch();
    }
    for (name, value) in &request.variables {
        encoder.variable(name, value);
    }
    match body {
        Collected::Empty => encoder.finish(Put::None),
        Collected::Memory(bytes) => encoder.finish(Put::Behind(bytes.len())),
        Collected::Spooled { len, .. } => encoder.finish(Put::Descriptor(*len)),
    }
}

#[cfg(test)]
mod tests {
    use super::Samples;
    use std::cell::RefCell;

    #[test]
    fn one_in_sixteen_is_measured_without_a_rhythm() {
        let samples = Samples(RefCell::new(fastrand::Rng::with_seed(1)));
        let chosen: Vec<bool> = (0..160_000).map(|_| samples.next()).collect();
        let in_step =
            |step: usize, from: usize| chosen.iter().skip(from).step_by(step).filter(|&&c| c).count();
        assert!((9_500..10_500).contains(&in_step(1, 0)));
        assert!((0..16).all(|from| (500..750).contains(&in_step(16, from))));
    }
}
