//! Where the current request's body stands: framing, speed, and what went wrong.

use super::chunked::{Bounds, Decoder};
use super::head::{Expect, Framing, Head};
use super::link::{Link, forget};
use crate::Limits;
use crate::timers::Lane;
use crate::transport::Transport;
use bytes::Bytes;
use handler::{BodyError, IncomingBody};
use std::io::ErrorKind;
use std::rc::Weak;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// How the rest of the body is found.
#[derive(Debug)]
enum Rest {
    Length(u64),
    Chunked(Box<Decoder>),
}

/// Speed over a window: time counts while we wait for the client, and only then.
#[derive(Debug, Default)]
struct Window {
    bytes: u64,
    waited: Duration,
    waiting_since: Option<Instant>,
}

/// A request body on its way in.
#[derive(Debug)]
pub(crate) struct BodyState {
    rest: Rest,
    /// The client waits for 100 (Continue).
    continue_due: bool,
    error: Option<BodyError>,
    window: Window,
}

impl Default for BodyState {
    fn default() -> BodyState {
        BodyState { rest: Rest::Length(0), continue_due: false, error: None, window: Window::default() }
    }
}

impl BodyState {
    pub(crate) fn new(head: &Head, limits: &Limits) -> BodyState {
        let rest = match head.framing {
            Framing::Length(length) => Rest::Length(length),
            Framing::Chunked => Rest::Chunked(Box::new(Decoder::new(Bounds {
                max_body: limits.max_body,
                max_trailer_bytes: limits.max_header_bytes,
                max_trailers: limits.max_headers,
            }))),
        };
        BodyState {
            rest,
            continue_due: head.expect == Expect::Continue,
            error: None,
            window: Window::default(),
        }
    }

    /// Whether all of it has been read.
    pub(crate) fn is_done(&self) -> bool {
        match &self.rest {
            Rest::Length(left) => *left == 0,
            Rest::Chunked(decoder) => decoder.is_done(),
        }
    }

    /// Bytes to come, as far as that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        match &self.rest {
            Rest::Length(left) => Some(*left),
            Rest::Chunked(_) => None,
        }
    }

    /// Whether reading on to the next request cannot end well: broken, or nobody knows whether the body will come.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.error.is_some() || (self.continue_due && !self.is_done())
    }

    /// Takes what belongs to the body from the front of `input`: data, and how many bytes were used up.
    pub(crate) fn take(&mut self, input: &[u8]) -> Result<(Bytes, usize), BodyError> {
        if !input.is_empty() {
            self.continue_due = false;
        }
        match &mut self.rest {
            Rest::Length(left) => {
                let n = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= n as u64;
                Ok((Bytes::copy_from_slice(&input[..n]), n))
            }
            Rest::Chunked(decoder) => {
                let mut data = Vec::with_capacity(input.len());
                let used =
                    decoder.decode(input, &mut data).inspect_err(|error| self.error = Some(error.clone()))?;
                Ok((data.into(), used))
            }
        }
    }
}

impl Window {
    fn received(&mut self, n: usize, now: impl FnOnce() -> Instant) {
        self.bytes += n as u64;
        if let Some(since) = self.waiting_since.take() {
            self.waited += now() - since;
        }
    }

    /// Starts to wait; when to look again.
    fn wait(&mut self, now: Instant, span: Duration) -> Instant {
        let since = *self.waiting_since.get_or_insert(now);
        since + span.saturating_sub(self.waited)
    }

    /// Whether the client was too slow over a window that has passed; begins a new one if it was not.
    fn is_too_slow(&mut self, now: Instant, rate: u64, span: Duration) -> bool {
        let waited = self.waited
            + self.waiting_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if waited < span {
            return false;
        }
        let slow = (self.bytes as f64) < rate as f64 * span.as_secs_f64();
        *self = Window { waiting_since: self.waiting_since.map(|_| now), ..Window::default() };
        slow
    }
}

impl<S: Transport> Link<S> {
    /// The next data of the current request's body.
    pub(crate) fn poll_body(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let mut body = self.body.borrow_mut();
        if let Some(error) = &body.error {
            return Poll::Ready(Some(Err(error.clone())));
        }
        let result = loop {
            if body.is_done() {
                return Poll::Ready(None);
            }
            match self.next_data(&mut body) {
                Ok(Some(data)) if data.is_empty() => {}
                Ok(Some(data)) => return Poll::Ready(Some(Ok(data))),
                Ok(None) => match self.poll_more_body(&mut body, cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => break error,
                    Poll::Pending => return Poll::Pending,
                },
                Err(error) => break error,
            }
        };
        body.error = Some(result.clone());
        Poll::Ready(Some(Err(result)))
    }

    /// Data that is there: read ahead, or in the socket; `None` when the socket is empty.
    fn next_data(&self, body: &mut BodyState) -> Result<Option<Bytes>, BodyError> {
        let mut input = self.input.borrow_mut();
        if !input.is_empty() {
            let (data, used) = body.take(&input)?;
            forget(&mut input, used);
            return Ok(Some(data));
        }
        let read = self.read(|bytes| {
            if bytes.is_empty() {
                return Err(BodyError::Gone);
            }
            body.window.received(bytes.len(), Instant::now);
            let (data, used) = body.take(bytes)?;
            input.extend_from_slice(&bytes[used..]);
            Ok(Some(data))
        });
        match read {
            Ok(result) => result,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(_) => Err(BodyError::Gone),
        }
    }

    /// Reads some of the body and throws it away; how many bytes that were, or `None` when the socket is empty.
    pub(crate) fn skip_body(&self) -> Result<Option<usize>, BodyError> {
        let data = self.next_data(&mut self.body.borrow_mut())?;
        // Framing counts as a byte, so that a body of framing only is bounded too.
        Ok(data.map(|data| data.len() + 1))
    }

    /// Waits for more, having told the client to continue, and watches its speed.
    fn poll_more_body(&self, body: &mut BodyState, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        if std::mem::take(&mut body.continue_due) {
            self.send_interim(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        self.poll_flush_interim(cx);
        if self.poll_readable(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if let Some(rate) = self.shared.limits.body_min_rate {
            let span = self.shared.limits.body_grace.max(Duration::from_secs(1));
            let now = Instant::now();
            if body.window.is_too_slow(now, rate, span) {
                return Poll::Ready(Err(BodyError::TooSlow));
            }
            self.timer.arm(Lane::Read, body.window.wait(now, span));
        }
        Poll::Pending
    }
}

/// The handler's end of a request body.
pub(crate) struct BodyReader<S> {
    pub(crate) link: Weak<Link<S>>,
    pub(crate) exchange: u64,
    pub(crate) length: Option<u64>,
}

impl<S: Transport> IncomingBody for BodyReader<S> {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        match self.link.upgrade() {
            Some(link) if link.exchange.get() == self.exchange => link.poll_body(cx),
            _ => Poll::Ready(Some(Err(BodyError::Gone))),
        }
    }

    fn length(&self) -> Option<u64> {
        self.length
    }
}
