//! Implements the decisions about requests and responses that all HTTP versions share.
//!
//! Why: a response that one version refuses and another one sends would be a security hole in one of them.
//! Handlers can also rely on the same rules for every version.
//!
//! Contract:
//! 1. Nothing here depends on how a message is framed on the wire.
//! 2. Every exchange is reported exactly once, however it ended ([`ExchangeRecord::report`]).

use crate::context::ThreadShared;
use crate::opening::OpeningHandshake;
use fieldcode::RequestHead;
use h1::{Delimiter, Expect};
use handler::{
    Body, BodyError, Ending, Failure, FileRegion, Handler, Peer, Request, Response, Trace, Version,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Files up to this size are read behind the head and written with it, which is cheaper than a second system call.
pub(crate) const READ_BELOW: u64 = 16 << 10;

/// The most bytes of informational responses that may wait for a client. Beyond that, further ones are
/// dropped: they are optional (RFC 9110 section 15.2), and an app may send any number of them.
pub(crate) const MOST_INTERIM: usize = 16 << 10;

/// The most request bytes that are read and dropped after a response was sent before the request's end
/// (HTTP/2 and HTTP/3). A client whose upload is reset at once may not look at the response.
pub(crate) const DISCARD_BYTES: u32 = 256 << 10;
/// The longest time for which they are read.
pub(crate) const DISCARD_TIME: Duration = Duration::from_secs(2);

/// Bytes in memory from this number on are counted while they wait for the client: many small responses that clients do not read fill memory as
/// well as few large ones, and must be able to make room.
pub(crate) const COUNTED: usize = 1 << 10;

/// Returns the failure for a response that is broken off because the server needs its room. `status`: the
/// status that was sent.
pub(crate) fn displaced(status: u16) -> Failure {
    let why = "the client stalled longest, and the server needs the descriptors or memory of its response";
    Failure::client(status, why)
}

/// Returns the failure if a well-formed request must be refused. `length`: the declared length of its body.
pub(crate) fn inadmissible(expect: Expect, length: Option<u64>, max_body: Option<u64>) -> Option<Failure> {
    if expect == Expect::Unknown {
        return Some(Failure::client(417, "an expectation other than 100-continue"));
    }
    let too_large = matches!((length, max_body), (Some(length), Some(max)) if length > max);
    too_large.then(|| Failure::client(413, "Content-Length is more than max_body"))
}

/// Returns the response, or the error response that replaces an invalid one.
pub(crate) fn presentable(response: Response, version: Version) -> Response {
    let shared = matches!(version, Version::Http2 | Version::Http3);
    let reason = match (response.status, &response.body) {
        _ if !h1::fields_are_clean(&response.fields) => {
            "a field name or value that is not allowed in a response"
        }
        // The stream of an Extended CONNECT, after its handshake (`crate::opening`).
        (200, Body::Tunnel { raw: false, .. }) if shared => return response,
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

/// Builds the request that handlers see from a decoded field section (HTTP/2 and HTTP/3).
pub(crate) fn request(
    mut head: RequestHead,
    version: Version,
    peer: &Rc<Peer>,
    shared: &ThreadShared,
    arrived: Instant,
) -> Request {
    if head.websocket {
        OpeningHandshake::offer(&mut head);
    }
    Request {
        version,
        switchable: head.websocket,
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
    /// The length of the body, if known.
    pub(crate) length: Option<u64>,
    pub(crate) has_body: bool,
}

impl Framed {
    /// Checks a response and records its failure in `sent`.
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

/// The result of sending a response.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    /// The response was cut off.
    pub(crate) broken: bool,
    /// The connection may carry another request.
    pub(crate) reusable: bool,
    pub(crate) hijacked: bool,
    /// The first failure of the response or of sending it.
    pub(crate) failure: Option<Box<Failure>>,
}

impl Sent {
    /// The initial state: nothing was sent.
    pub(crate) fn nothing() -> Sent {
        Sent { broken: true, ..Sent::default() }
    }

    /// Records a failure. Only the first one is kept.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert_with(|| Box::new(failure));
    }
}

/// The complete record of a finished exchange.
pub(crate) struct ExchangeRecord {
    pub(crate) trace: Rc<Trace>,
    /// The request, if no handler got it.
    pub(crate) request: Option<Box<Request>>,
    pub(crate) started: Instant,
    pub(crate) sent: Sent,
}

impl ExchangeRecord {
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
        // A second panic while unwinding would abort the process instead of ending the connection.
        if std::thread::panicking() {
            let _ = catch_unwind(finished);
        } else {
            finished();
        }
    }
}

/// The declared length of a body that arrives in pieces, and the rest of it.
#[derive(Debug)]
pub(crate) struct DeclaredLength {
    declared: Option<u64>,
    left: u64,
}

impl DeclaredLength {
    pub(crate) fn new(declared: Option<u64>) -> DeclaredLength {
        DeclaredLength { declared, left: declared.unwrap_or(u64::MAX) }
    }

    /// Returns how many more bytes may be sent.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Counts sent bytes. `len` must not exceed `left`.
    pub(crate) fn count(&mut self, len: u64) {
        if self.declared.is_some() {
            self.left -= len;
        }
    }

    /// Returns the failure of a piece of `len` bytes that exceeds the declared length. `status`: the status
    /// that was sent.
    pub(crate) fn exceeded(&self, status: u16, len: u64) -> Failure {
        let declared = self.declared.unwrap_or(u64::MAX);
        let actual = (declared - self.left).saturating_add(len);
        wrong_length(status, declared, &format!("at least {actual}"))
    }

    /// Returns the failure if the body ended too early.
    pub(crate) fn missed(&self, status: u16) -> Option<Failure> {
        let declared = self.declared.filter(|_| self.left > 0)?;
        Some(wrong_length(status, declared, &(declared - self.left).to_string()))
    }
}

/// Returns the failure if the known length of a body differs from the declared one. The response goes out
/// with the actual length.
pub(crate) fn mismatch(response: &Response, actual: u64) -> Option<Failure> {
    // The length of a stream is known only after it was sent.
    if matches!(response.body, Body::Stream(_)) {
        return None;
    }
    let declared = h1::declared_length(&response.fields).filter(|&declared| declared != actual)?;
    Some(wrong_length(response.status, declared, &actual.to_string()))
}

/// The failure of an app whose `Content-Length` disagrees with its body. `status`: the status that was sent.
fn wrong_length(status: u16, declared: u64, actual: &str) -> Failure {
    let text = format!("the response declares Content-Length {declared}, its body has {actual} bytes");
    Failure::app(status, text)
}

/// Appends the part of a region that exists. Returns the number of bytes.
pub(crate) fn append_file(text: &mut Vec<u8>, region: &FileRegion) -> u64 {
    let start = text.len();
    let end = start + region.len as usize;
    while text.len() < end {
        let offset = region.offset + (text.len() - start) as u64;
        text.reserve(end - text.len());
        match rustix::io::pread(&**region.file.shared(), rustix::buffer::spare_capacity(text), offset) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
    }
    // The buffer may have more room than requested.
    text.truncate(end);
    (text.len() - start) as u64
}

/// The rate of an upload over a window of time. Only time spent waiting for the client counts.
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

    /// Starts to wait. Returns the time of the next rate check.
    pub(crate) fn wait(&mut self, now: Instant, span: Duration) -> Instant {
        let since = *self.waiting_since.get_or_insert(now);
        since + span.saturating_sub(self.waited)
    }

    /// Returns how long the client has been behind `rate`, bytes per second: zero if it keeps up.
    pub(crate) fn behind(&self, now: Instant, rate: u64) -> Duration {
        let waiting = self.waiting_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let covered = self.bytes.saturating_mul(1000).checked_div(rate).unwrap_or(u64::MAX);
        (self.waited + waiting).saturating_sub(Duration::from_millis(covered))
    }

    /// Checks the rate. Returns an error if the client is too slow, else the time of the next check.
    pub(crate) fn check(&mut self, now: Instant, rate: u64, grace: Duration) -> Result<Instant, BodyError> {
        let span = grace.max(Duration::from_secs(1));
        if self.is_too_slow(now, rate, span) {
            return Err(BodyError::TooSlow);
        }
        Ok(self.wait(now, span))
    }

    /// Returns whether the client was too slow over a complete window; starts a new window if not.
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
    fn an_upload_is_behind_for_the_time_that_its_bytes_do_not_cover() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut pace = Pace::default();
        pace.wait(at(0), Duration::from_secs(10));
        assert_eq!(pace.behind(at(400), 500), Duration::from_millis(400));
        pace.received(100, || at(400));
        assert_eq!(
            pace.behind(at(9_000), 500),
            Duration::from_millis(200),
            "the server's own time does not count"
        );
        pace.received(900, || at(400));
        assert_eq!([pace.behind(at(400), 500), pace.behind(at(400), 0)], [Duration::ZERO; 2]);
    }

    #[test]
    fn promises_of_length() {
        let mut promised = DeclaredLength::new(Some(10));
        promised.count(4);
        assert_eq!(promised.left(), 6);
        assert!(promised.exceeded(200, 7).reason.ends_with("its body has at least 11 bytes"));
        assert!(promised.missed(200).is_some_and(|failure| failure.reason.ends_with("its body has 4 bytes")));
        promised.count(6);
        assert_eq!(promised.missed(200), None);
        let mut open = DeclaredLength::new(None);
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
