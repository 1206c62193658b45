//! Holds the state of one connection: its stream, the bytes read ahead, its deadlines.
//!
//! Why: the engine, the request body and the handler's view of the client all use the same stream on one
//! thread. They share it here, behind `Cell`s that are never borrowed across an await.

use super::body_state::BodyState;
use crate::context::{Open, ThreadShared};
use crate::delivery::Delivery;
use crate::message::MOST_INTERIM;
use crate::room::RoomState;
use bytes::{Bytes, BytesMut};
use handler::BodyError;
use handler::held::{Account, Holding};
use net::memory::{MemoryClass, Reserved};
use net::{Lane, Output, Subnet, Timer, Transport};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// While draining: how long a connection that has not sent a request yet stays open.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// The most bytes that a lingering close reads and discards.
const LINGER_BYTES: usize = 32 << 20;

/// Nothing more can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unsendable;

pub(crate) struct Link<S> {
    pub(crate) stream: S,
    pub(crate) shared: Rc<ThreadShared>,
    pub(crate) timer: Timer,
    pub(crate) input: RefCell<BytesMut>,
    /// The socket has bytes although its readiness says otherwise.
    pub(crate) unread: Cell<bool>,
    pub(crate) body: RefCell<BodyState>,
    /// The number of the current exchange. For the readers and client views of an older exchange the client
    /// has gone. Wraps after 2^32 exchanges.
    pub(crate) exchange: Cell<u32>,
    /// An informational response may be sent now.
    pub(crate) interim_allowed: Cell<bool>,
    /// Informational responses that did not fit into the socket yet.
    pub(crate) queued: Cell<Vec<u8>>,
    /// The resources that the current response holds.
    holding: Cell<Option<Rc<Holding>>>,
    /// Tracks whether the client reads its responses.
    pub(crate) delivery: Delivery,
    _open: Open,
}

impl<S: Transport> Link<S> {
    /// `address`: the client's address.
    pub(crate) fn new(stream: S, shared: Rc<ThreadShared>, address: Subnet) -> Rc<Link<S>> {
        let timer = shared.timers.register();
        let open = shared.open(timer.key(), address);
        Rc::new(Link {
            stream,
            timer,
            input: RefCell::default(),
            unread: Cell::new(false),
            body: RefCell::default(),
            exchange: Cell::new(0),
            interim_allowed: Cell::new(false),
            queued: Cell::default(),
            holding: Cell::default(),
            delivery: Delivery::default(),
            _open: open,
            shared,
        })
    }

    /// Ready when a read may succeed.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.unread.get() { Poll::Ready(()) } else { self.stream.poll_readable(cx) }
    }

    /// Reads once and passes the bytes (none at the end of the stream) to `take`, which must not use the
    /// scratch buffer.
    pub(crate) fn read<R>(&self, take: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        let mut scratch = self.shared.scratch.borrow_mut();
        let scratch = &mut scratch[..self.shared.read_size()];
        let n = if self.unread.take() {
            match self.stream.read_anyway(scratch) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.stream.try_read(scratch)?,
                other => {
                    let n = other?;
                    self.unread.set(n == scratch.len());
                    n
                }
            }
        } else {
            self.stream.try_read(scratch)?
        };
        Ok(take(&scratch[..n]))
    }

    /// Waits until a read may succeed. Returns `false` if the read deadline passes first or the connection
    /// has to make room. `state`: the state of the connection while it waits.
    pub(crate) async fn readable(&self, state: RoomState) -> bool {
        poll_fn(|cx| {
            if self.is_displaced() {
                return Poll::Ready(false);
            }
            if self.poll_readable(cx).is_ready() {
                Poll::Ready(true)
            } else if self.timer.expired(Lane::Read) {
                Poll::Ready(false)
            } else {
                self.wait(state);
                Poll::Pending
            }
        })
        .await
    }

    /// Writes all of `output`. `more`: the rest of the message follows at once.
    pub(crate) async fn send(&self, output: &mut Output, more: bool) -> Result<(), Unsendable> {
        let mut reserved = None;
        while !output.is_empty() {
            let written = self.stream.try_write(&output.slices(), more);
            match written {
                Ok(n) => {
                    output.advance(n);
                    self.wrote(n);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let bytes = output.own_len() as u64;
                    reserved.get_or_insert_with(|| Reserved::new(MemoryClass::Responses, 0)).set(bytes);
                    self.writable().await;
                }
                Err(_) => return Err(Unsendable),
            }
        }
        self.flush().await
    }

    /// Records that `bytes` were written.
    #[inline]
    pub(crate) fn wrote(&self, bytes: usize) {
        self.delivery.wrote(bytes, &self.timer, &self.shared);
        if let Some(holding) = self.holding.take() {
            holding.took(bytes, self.shared.timers.recent());
            self.holding.set(Some(holding));
        }
    }

    /// Returns the record of the resources that the current response holds; creates it at the first call.
    #[cold]
    pub(crate) fn holding(self: &Rc<Link<S>>) -> Rc<Holding> {
        let holding = self.holding.take().unwrap_or_else(|| {
            let (shared, key) = (Rc::downgrade(&self.shared), self.timer.key());
            let wake = move || shared.upgrade().into_iter().for_each(|shared| shared.timers.wake(key));
            let link = Rc::downgrade(self);
            let acknowledged =
                move || link.upgrade()?.stream.delivery().map(|delivery| delivery.acknowledged);
            Holding::new(Rc::new(Account::new()), wake, acknowledged)
        });
        self.holding.set(Some(holding.clone()));
        holding
    }

    /// Ends the exchange's record of resources; the next exchange gets its own.
    #[inline]
    pub(crate) fn end_holding(&self) {
        self.holding.set(None);
    }

    /// Returns whether the response must break off because the server needs its resources.
    pub(crate) fn is_response_displaced(&self) -> bool {
        let Some(holding) = self.holding.take() else { return false };
        let displaced = holding.is_displaced();
        self.holding.set(Some(holding));
        displaced
    }

    /// Returns whether informational responses wait for room.
    pub(crate) fn has_queued(&self) -> bool {
        let queued = self.queued.take();
        let has = !queued.is_empty();
        self.queued.set(queued);
        has
    }

    /// Sends the bytes that encryption buffers.
    pub(crate) async fn flush(&self) -> Result<(), Unsendable> {
        let result = poll_fn(|cx| {
            let flushed = self.stream.poll_flush(cx).map_err(|_| Unsendable);
            self.block(flushed.is_pending());
            flushed
        });
        result.await
    }

    /// Writes as much of `output` as possible without waiting. Returns whether everything was written. More
    /// of the message follows at once.
    pub(crate) fn try_send(&self, output: &mut Output) -> Result<bool, Unsendable> {
        while !output.is_empty() {
            let written = self.stream.try_write(&output.slices(), true);
            match written {
                Ok(n) => {
                    output.advance(n);
                    self.wrote(n);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(_) => return Err(Unsendable),
            }
        }
        Ok(true)
    }

    /// Waits until a write may succeed. A stalled client makes the write fail: see `watched`.
    pub(crate) async fn writable(&self) {
        poll_fn(|cx| {
            let writable = self.stream.poll_writable(cx);
            self.block(writable.is_pending());
            writable
        })
        .await;
    }

    /// Writes an informational response now, or queues the part that does not fit. Dropped when too many
    /// bytes are queued: a client that does not read the earlier ones misses nothing.
    pub(crate) fn send_interim(&self, text: &[u8]) {
        let mut queued = self.queued.take();
        if queued.len() < MOST_INTERIM {
            let sent = if queued.is_empty() {
                self.stream.try_write(&[IoSlice::new(text)], false).unwrap_or(0)
            } else {
                0
            };
            self.wrote(sent);
            queued.extend_from_slice(&text[sent..]);
        }
        self.queued.set(queued);
    }

    /// Tries to write the queued informational responses and the bytes that encryption buffers; registers for
    /// room if there is none.
    pub(crate) fn poll_flush_interim(&self, cx: &mut Context<'_>) {
        let mut queued = self.queued.take();
        let mut blocked = false;
        while !queued.is_empty() && !blocked {
            match self.stream.try_write(&[IoSlice::new(&queued)], false) {
                Ok(n) => {
                    queued.drain(..n);
                    self.wrote(n);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    blocked = self.stream.poll_writable(cx).is_pending();
                }
                // The read reports the error.
                Err(_) => blocked = true,
            }
        }
        self.queued.set(queued);
        if blocked {
            return;
        }
        // The read reports a failure.
        let _ = self.stream.poll_flush(cx);
    }

    /// Waits, after the end of the connection, until the client has received the response, or until the rest
    /// can be left to the system.
    pub(super) async fn settle(&self) {
        self.delivery.settle(&self.stream, &self.timer, &self.shared).await;
    }

    /// Returns the stream, for another protocol.
    pub(crate) fn into_stream(self) -> S {
        self.stream
    }

    /// Waits for the first byte of a request. Returns `false` if the connection must be closed instead.
    pub(crate) async fn has_request(&self, served: u64) -> bool {
        if !self.input.borrow().is_empty() {
            return true;
        }
        let (mut armed, mut hurried) = (false, false);
        let state = if served == 0 { RoomState::Unproved } else { RoomState::Idle };
        // Everything captured is moved into the closure, so that the future of an idle connection stays small.
        poll_fn(move |cx| {
            self.timer.wakes(cx.waker());
            let displaced = self.is_displaced();
            if !displaced && self.attend() {
                return Poll::Ready(false);
            }
            if self.poll_readable(cx).is_ready() {
                if displaced {
                    // The request has arrived, so another connection makes room in its place.
                    self.busy();
                    self.shared.displace_another();
                }
                return Poll::Ready(true);
            }
            if displaced {
                return Poll::Ready(false);
            }
            if !std::mem::replace(&mut armed, true) {
                self.timer.arm_in(Lane::Read, self.patience(served));
                self.wait(state);
            }
            if self.shared.draining.get() {
                if served > 0 {
                    return Poll::Ready(false);
                }
                if !std::mem::replace(&mut hurried, true) {
                    self.timer.arm(Lane::Read, Instant::now() + self.patience(served).min(DRAIN_TIMEOUT));
                }
            }
            if self.timer.expired(Lane::Read) { Poll::Ready(false) } else { Poll::Pending }
        })
        .await
    }

    /// Returns how long a client may take to begin its next request.
    fn patience(&self, served: u64) -> Duration {
        let timeouts = &self.shared.settings().timeouts;
        if served == 0 { timeouts.header } else { timeouts.keep_alive }
    }

    /// Makes deadlines wake this task. Waiting for a request does that too; a connection that is refused
    /// unread needs this.
    pub(super) async fn wakes_this_task(&self) {
        poll_fn(|cx| {
            self.timer.wakes(cx.waker());
            Poll::Ready(())
        })
        .await;
    }

    /// Closes the write direction and discards further bytes, within limits. A close with unread bytes would
    /// reset the connection, and the client might lose the response.
    pub(super) async fn linger(&self, time: Duration) {
        self.input.take();
        self.stream.end_writing();
        let time = if self.shared.draining.get() { DRAIN_TIMEOUT } else { time };
        self.timer.arm(Lane::Read, Instant::now() + time);
        let mut left = LINGER_BYTES;
        while left > 0 && !self.timer.expired(Lane::Read) {
            match self.read(<[u8]>::len) {
                Ok(0) => return,
                Ok(n) => left = left.saturating_sub(n),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // The client has got its response, so it is of low value now.
                    if !self.readable(RoomState::Unproved).await {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }

    /// Returns the next data of the current request's body.
    pub(crate) fn poll_body(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let mut body = self.body.borrow_mut();
        if let Some(error) = body.error() {
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
        body.fail(result.clone());
        Poll::Ready(Some(Err(result)))
    }

    /// Returns data read ahead or from the socket; `None` if the socket is empty.
    fn next_data(&self, body: &mut BodyState) -> Result<Option<Bytes>, BodyError> {
        let mut input = self.input.borrow_mut();
        if !input.is_empty() {
            return body.take_ahead(&mut input).map(Some);
        }
        let read = self.read(|bytes| {
            if bytes.is_empty() {
                return Err(BodyError::Gone);
            }
            self.busy();
            if let Some(pace) = body.pace() {
                pace.received(bytes.len(), Instant::now);
            }
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

    /// Reads and discards some of the body. Returns the number of bytes, or `None` if the socket is empty.
    pub(crate) fn skip_body(&self) -> Result<Option<usize>, BodyError> {
        let data = self.next_data(&mut self.body.borrow_mut())?;
        // Framing counts as a byte, so that a body without data is bounded too.
        Ok(data.map(|data| data.len() + 1))
    }

    /// Sends 100 (Continue) if the client waits for it, registers for more bytes, and checks the client's rate.
    fn poll_more_body(&self, body: &mut BodyState, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        if body.take_continue() {
            self.send_interim(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        self.poll_flush_interim(cx);
        if self.poll_readable(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let timeouts = &self.shared.settings().timeouts;
        // A client that sends a byte now and then does not keep its place by that.
        let mut since = self.shared.timers.recent();
        if let (Some(rate), Some(pace)) = (timeouts.body_min_rate, body.pace()) {
            let now = Instant::now();
            match pace.check(now, rate, timeouts.body_grace) {
                Ok(at) => self.timer.arm(Lane::Read, at),
                Err(error) => return Poll::Ready(Err(error)),
            }
            since = now.checked_sub(pace.behind(now, rate)).unwrap_or(since);
        }
        self.shared.room.wait(self.timer.key(), RoomState::Stalled, since);
        Poll::Pending
    }
}
