//! What is decided about requests and responses once, for all versions of HTTP.
//!
//! Why: a response that one version refuses and another one sends would be a hole in one of them; and handlers shall find
//! the same rules whichever way a request came.
//!
//! Contract:
//! 1. Nothing here knows how a message is framed on the wire.
//! 2. An exchange is reported once, however it ended ([`Outcome::report`]).

use crate::context::Shared;
use fieldcode::RequestHead;
use h1::{Delimiter, Expect};
use handler::{
    Body, BodyError, Ending, Failure, FileRegion, Handler, Peer, Request, Response, Trace, Version,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Files up to this size are read behind the head and written with it: cheaper than a second system call.
pub(crate) const READ_BELOW: u64 = 16 << 10;

/// With more bytes of informational responses that a client has not taken, the next ones are left out: they are optional (RFC 9110 section
/// 15.2), and an app may send any number of them.
pub(crate) const MOST_INTERIM: usize = 16 << 10;

/// Bytes of a request that are read and dropped when its response has been sent before its end (HTTP/2 and HTTP/3). A client whose
/// upload is stopped at once may not look at the response.
pub(crate) const DISCARD_BYTES: u32 = 256 << 10;
/// For how long they are.
pub(crate) const DISCARD_TIME: Duration = Duration::from_secs(2);

/// Bodies in memory from this size on are counted while the client does not take them.
pub(crate) const COUNTED: usize = 16 << 10;

/// Why a response breaks off whose room the server needs for others. It has gone out with `status`.
pub(crate) fn displaced(status: u16) -> Failure {
    let why = "the client has not taken the response for longer than others, and the server needs the descriptors or the memory that it holds";
    Failure::client(status, why)
}

/// Why a well-formed request is refused. `length`: the declared length of its body.
pub(crate) fn inadmissible(expect: Expect, length: Option<u64>, max_body: Option<u64>) -> Option<Failure> {
    if expect == Expect::Unknown {
        return Some(Failure::client(417, "an expectation other than 100-continue"));
    }
    let too_large = matches!((length, max_body), (Some(length), Some(max)) if length > max);
    too_large.then(|| Failure::client(413, "Content-Length is more than max_body"))
}

/// The response, or the one that is sent instead because it is invalid.
pub(crate) fn presentable(response: Response, version: Version) -> Response {
    let shared = matches!(version, Version::Http2 | Version::Http3);
    let reason = match (response.status, &response.body) {
        _ if !h1::fields_are_clean(&response.fields) => {
            "a field name or value that is not allowed in a response"
        }
        (_, Body::Tunnel { .. }) if shared => {
            let why = "the app took over the connection or upgraded it, but a request over HTTP/2 or HTTP/3 has no connection of \
                       its own (rack.hijack? is false)";
            return Failure::app(500, why).into_response();
        }
        (200..=999, _) | (101, Body::Tunnel { .. }) | (_, Body::Tunnel { raw: true, .. }) => {
            return h1::decoded(response).unwrap_or_else(Failure::into_response);
        }
        _ => "a status that is not final",
    };
    Failure::server(500, reason).into_response()
}

/// The request that handlers see, where heads are judged as field sections (HTTP/2 and HTTP/3).
pub(crate) fn request(
    head: RequestHead,
    version: Version,
    peer: &Rc<Peer>,
    shared: &Shared,
    arrived: Instant,
) -> Request {
    Request {
        version,
        method: head.method,
        target: head.target,
        path: head.path,
        query: head.query,
        authority: head.authority,
        fields: head.fields,
        variables: Vec::new(),
        peer: peer.clone(),
        https: peer.tls,
        received: shared.wall(arrived),
        arrived,
    }
}

/// A response that is about to be sent in frames (HTTP/2 and HTTP/3).
pub(crate) struct Framed {
    pub(crate) response: Response,
    /// The length of the body, if it is known.
    pub(crate) length: Option<u64>,
    pub(crate) has_body: bool,
}

impl Framed {
    /// Judges a response; what is wrong with it is noted in `sent`.
    pub(crate) fn new(response: Response, version: Version, is_head: bool, sent: &mut Sent) -> Framed {
        let mut response = presentable(response, version);
        let plan = h1::plan(&response, version, is_head);
        let length = match plan.delimiter {
            Delimiter::Length(length) => Some(length),
            _ => None,
        };
        *sent = Sent { status: response.status, failure: response.failure.take(), ..Sent::default() };
        if let Some(actual) = length.filter(|_| plan.is_whole)
            && let Some(failure) = mismatch(&response, actual)
        {
            sent.fail(failure);
        }
        Framed { response, length, has_body: plan.has_body }
    }
}

/// How sending went.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    /// The response was cut off.
    pub(crate) broken: bool,
    /// The connection may be used for another request.
    pub(crate) reusable: bool,
    pub(crate) hijacked: bool,
    /// What went wrong, of the response or while it was sent.
    pub(crate) failure: Option<Box<Failure>>,
}

impl Sent {
    /// Nothing was sent (yet).
    pub(crate) fn nothing() -> Sent {
        Sent { broken: true, ..Sent::default() }
    }

    /// Whether nothing more can be sent on the connection.
    pub(crate) fn is_over(&self) -> bool {
        self.hijacked || self.broken
    }

    /// Notes what went wrong; the first failure counts.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert_with(|| Box::new(failure));
    }
}

/// All that is known about an exchange when it is over.
pub(crate) struct Outcome {
    pub(crate) trace: Rc<Trace>,
    /// The request, if no handler got it.
    pub(crate) request: Option<Box<Request>>,
    pub(crate) started: Instant,
    pub(crate) sent: Sent,
}

impl Outcome {
    /// Tells the handler.
    pub(crate) fn report<H: Handler>(&mut self, handler: &H, peer: &Peer, ended: Instant) {
        let request = self.trace.take_request().or_else(|| self.request.take());
        let ending = Ending {
            request: request.as_deref(),
            failure: self.sent.failure.as_deref(),
            peer,
            trace: &self.trace,
            status: self.sent.status,
            body_bytes: self.sent.body_bytes,
            started: self.started,
            ended,
            broken: self.sent.broken,
            hijacked: self.sent.hijacked,
        };
        let finished = AssertUnwindSafe(|| handler.finished(&ending));
        // A second panic while unwinding would end the process instead of the connection.
        if std::thread::panicking() {
            let _ = catch_unwind(finished);
        } else {
            finished();
        }
    }
}

/// The length that a response declares for a body that comes in pieces, and what is left of it.
#[derive(Debug)]
pub(crate) struct Promised {
    declared: Option<u64>,
    left: u64,
}

impl Promised {
    pub(crate) fn new(declared: Option<u64>) -> Promised {
        Promised { declared, left: declared.unwrap_or(u64::MAX) }
    }

    /// How many more bytes may be sent.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// So many bytes are sent, no more than are left.
    pub(crate) fn count(&mut self, len: u64) {
        if self.declared.is_some() {
            self.left -= len;
        }
    }

    /// The next piece, of `len` bytes, does not fit. The response has gone out with `status`.
    pub(crate) fn exceeded(&self, status: u16, len: u64) -> Failure {
        let declared = self.declared.unwrap_or(u64::MAX);
        let actual = (declared - self.left).saturating_add(len);
        wrong_length(status, declared, &format!("at least {actual}"))
    }

    /// The body has ended: whether it was too short.
    pub(crate) fn missed(&self, status: u16) -> Option<Failure> {
        let declared = self.declared.filter(|_| self.left > 0)?;
        Some(wrong_length(status, declared, &(declared - self.left).to_string()))
    }
}

/// A body whose length is known and differs from the declared one. The response goes out with the actual length.
pub(crate) fn mismatch(response: &Response, actual: u64) -> Option<Failure> {
    // The length of a stream shows when it has been sent.
    if matches!(response.body, Body::Stream(_)) {
        return None;
    }
    let declared = h1::declared_length(&response.fields).filter(|&declared| declared != actual)?;
    Some(wrong_length(response.status, declared, &actual.to_string()))
}

/// The app's `Content-Length` disagrees with its body. The response has gone out, with `status`.
fn wrong_length(status: u16, declared: u64, actual: &str) -> Failure {
    let text = format!("the response declares Content-Length {declared}, its body has {actual} bytes");
    Failure::app(status, text)
}

/// Appends as much of a region as exists; how many bytes.
pub(crate) fn append_file(text: &mut Vec<u8>, region: &FileRegion) -> u64 {
    let start = text.len();
    let end = start + region.len as usize;
    while text.len() < end {
        let offset = region.offset + (text.len() - start) as u64;
        text.reserve(end - text.len());
        match rustix::io::pread(&*region.file, rustix::buffer::spare_capacity(text), offset) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
    }
    // There was room for more than requested.
    text.truncate(end);
    (text.len() - start) as u64
}

/// The speed of an upload over a window of time. Only the time spent waiting for the client counts.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    bytes: u64,
    waited: Duration,
    waiting_since: Option<Instant>,
}

impl Pace {
    pub(crate) fn received(&mut self, n: usize, now: impl FnOnce() -> Instant) {
        self.bytes += n as u64;
        if let Some(since) = self.waiting_since.take() {
            self.waited += now() - since;
        }
    }

    /// Starts to wait; returns when to check the speed.
    pub(crate) fn wait(&mut self, now: Instant, span: Duration) -> Instant {
        let since = *self.waiting_since.get_or_insert(now);
        since + span.saturating_sub(self.waited)
    }

    /// Waits until the client is too slow, or returns when to check again.
    pub(crate) fn check(&mut self, now: Instant, rate: u64, grace: Duration) -> Result<Instant, BodyError> {
        let span = grace.max(Duration::from_secs(1));
        if self.is_too_slow(now, rate, span) {
            return Err(BodyError::TooSlow);
        }
        Ok(self.wait(now, span))
    }

    /// Whether the client was too slow over a window that has passed; starts a new window if not.
    fn is_too_slow(&mut self, now: Instant, rate: u64, span: Duration) -> bool {
        let waited = self.waited
            + self.waiting_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if waited < span {
            return false;
        }
        let slow = (self.bytes as f64) < rate as f64 * span.as_secs_f64();
        *self = Pace { waiting_since: self.waiting_since.map(|_| now), ..Pace::default() };
        slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_of_length() {
        let mut promised = Promised::new(Some(10));
        promised.count(4);
        assert_eq!(promised.left(), 6);
        assert!(promised.exceeded(200, 7).reason.ends_with("its body has at least 11 bytes"));
        assert!(promised.missed(200).is_some_and(|failure| failure.reason.ends_with("its body has 4 bytes")));
        promised.count(6);
        assert_eq!(promised.missed(200), None);
        let mut open = Promised::new(None);
        open.count(1 << 40);
        assert!(open.left() == u64::MAX && open.missed(200).is_none());
    }

    #[test]
    fn an_upload_below_the_rate_is_too_slow_once_the_grace_is_over() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut pace = Pace::default();
        assert_eq!(pace.check(start, 100, second * 2), Ok(start + second * 2));
        pace.received(199, || start + second);
        assert_eq!(pace.check(start + second * 4, 100, second * 2), Ok(start + second * 5));
        assert_eq!(pace.check(start + second * 5, 100, second * 2), Err(BodyError::TooSlow));
    }
}
