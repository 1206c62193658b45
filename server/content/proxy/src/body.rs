//! Streams a response body from an origin to the client.
//!
//! Contract:
//! 1. The body ends only where its framing says. Any other end breaks it off visibly for the client.
//! 2. Nothing is read from the origin that the client has no room for.
//! 3. The connection returns to the pool when the body has ended and nothing follows it.
//! 4. While the client does not read, other requests may take the connection: see [`crate::holds`].

use crate::holds::BodyGuard;
use crate::local::Local;
use crate::pool::Connection;
use crate::receiver::{Received, Rest};
use bytes::{Buf, Bytes};
use handler::{BodyStream, Chunk, Failure, Peer};
use net::{Lane, Transport};
use std::io::ErrorKind;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// The largest and the smallest read buffer. The size follows the data, so that a slow origin costs little memory.
const MOST: usize = 64 << 10;
const FEWEST: usize = 4 << 10;
/// Chunk data of at least this size is passed on without a copy.
const PASS_FROM: usize = 4 << 10;

/// A body that streams.
pub(crate) struct UpstreamBody {
    local: Rc<Local>,
    origin: usize,
    /// The connection, until the body has ended.
    hold: Option<BodyGuard>,
    received: Received,
    /// Bytes of the chunked coding, not decoded yet.
    coded: Bytes,
    /// The size of the next read.
    room: usize,
    waiting: bool,
    peer: Rc<Peer>,
}

impl UpstreamBody {
    pub(crate) fn new(
        local: Rc<Local>,
        origin: usize,
        hold: BodyGuard,
        received: Received,
        peer: Rc<Peer>,
    ) -> UpstreamBody {
        UpstreamBody {
            local,
            origin,
            hold: Some(hold),
            room: if matches!(received.rest, Rest::Length(_)) { MOST } else { 4 * FEWEST },
            received,
            coded: Bytes::new(),
            waiting: false,
            peer,
        }
    }

    /// Reads once. Ready when data has arrived, or when the body has ended or broken off.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let connection = self.hold.as_ref().and_then(BodyGuard::connection);
        let Some(connection) = connection else { return Poll::Ready(()) };
        let room = match self.received.rest {
            Rest::Length(left) => usize::try_from(left).unwrap_or(usize::MAX).min(self.room),
            _ => self.room,
        };
        let bytes = loop {
            if connection.stream.poll_readable(cx).is_pending() {
                let timeout = self.local.upstreams.config.read_timeout;
                ready!(poll_timeout(&connection, &mut self.waiting, timeout, cx));
                let why = format!("was silent inside a body for read_timeout ({timeout:?})");
                self.received.rest = Rest::Broken(Failure::app(504, why));
                return Poll::Ready(());
            }
            let mut bytes = Vec::with_capacity(room);
            match connection.stream.try_read_more(&mut bytes) {
                Ok(0) => {
                    self.received.end();
                    return Poll::Ready(());
                }
                Ok(_) => break bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => {
                    self.received.rest = Rest::broken(format!("broke off inside a body: {error}"));
                    return Poll::Ready(());
                }
            }
        };
        drop(connection);
        self.waiting = false;
        if bytes.len() == self.room {
            self.room = (2 * self.room).min(MOST);
        } else if bytes.len() < self.room / 4 {
            self.room = (self.room / 2).max(FEWEST);
        }
        match &mut self.received.rest {
            Rest::Length(left) => {
                *left -= bytes.len() as u64;
                if *left == 0 {
                    self.received.rest = Rest::Done;
                }
                self.received.first = bytes.into();
            }
            Rest::Chunked(_) => self.coded = bytes.into(),
            Rest::Close => self.received.first = bytes.into(),
            Rest::Done | Rest::Broken(_) => {}
        }
        Poll::Ready(())
    }

    /// Decodes the received bytes: large pieces without a copy, small ones joined.
    fn decode(&mut self) {
        let Rest::Chunked(decoder) = &mut self.received.rest else { return };
        let mut small = Vec::new();
        while !self.coded.is_empty() && !decoder.is_done() {
            match decoder.skip(&self.coded) {
                Ok(used) => self.coded.advance(used),
                Err(error) => {
                    let mistake = crate::receiver::mistake(error);
                    self.received.rest = Rest::broken(format!("sent {mistake}"));
                    break;
                }
            }
            let n = decoder.pass(self.coded.len());
            if n >= PASS_FROM && small.is_empty() {
                self.received.first = self.coded.split_to(n);
                return;
            }
            small.extend_from_slice(&self.coded[..n]);
            self.coded.advance(n);
        }
        if let Rest::Chunked(decoder) = &self.received.rest
            && decoder.is_done()
        {
            self.received.persistent &= self.coded.is_empty();
            self.received.rest = Rest::Done;
        }
        self.received.first = small.into();
    }

    /// Ends the body. The connection may serve another request.
    fn finish(&mut self) {
        if let Some(connection) = self.hold.take().and_then(|hold| hold.take())
            && self.received.persistent
        {
            self.local.keep(self.origin, connection);
        }
    }

    /// Returns the failure of a body that has broken off.
    fn break_off(&mut self) -> Failure {
        self.hold = None;
        match &self.received.rest {
            Rest::Broken(failure) => self.local.broke(self.origin, &self.peer, failure.clone()),
            _ => Failure::app(502, "the body broke off"),
        }
    }
}

/// Ready when the origin has been silent for `timeout`.
fn poll_timeout(
    connection: &Connection,
    waiting: &mut bool,
    timeout: Duration,
    cx: &mut Context<'_>,
) -> Poll<()> {
    connection.timer.wakes(cx.waker());
    if !std::mem::replace(waiting, true) {
        connection.timer.arm(Lane::Read, Instant::now() + timeout);
    }
    if connection.timer.expired(Lane::Read) { Poll::Ready(()) } else { Poll::Pending }
}

impl BodyStream for UpstreamBody {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        if let Some(displaced) = self.hold.as_ref().and_then(BodyGuard::displaced) {
            self.hold = None;
            self.received.rest = Rest::Broken(displaced.clone());
            return Poll::Ready(Some(Err(displaced)));
        }
        let polled = self.poll_next(cx);
        if let Some(hold) = &self.hold {
            hold.set_unread(polled.is_ready());
        }
        polled
    }
}

impl UpstreamBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        loop {
            if !self.received.first.is_empty() {
                let first = std::mem::take(&mut self.received.first);
                return Poll::Ready(Some(Ok(Chunk::Bytes(first))));
            }
            match self.received.rest {
                Rest::Done => {
                    self.finish();
                    return Poll::Ready(None);
                }
                Rest::Broken(_) => {
                    let failure = self.break_off();
                    return Poll::Ready(Some(Err(failure)));
                }
                Rest::Chunked(_) if !self.coded.is_empty() => self.decode(),
                _ => ready!(self.poll_read(cx)),
            }
        }
    }
}
