//! Connects a request stream with its handler: the client of an exchange, and the request's body.
//!
//! Contract:
//! 1. Bytes are read from QUIC only when the handler asks for them, so a slow handler slows its client down.
//! 2. After the exchange, the client counts as gone and the rest of the body is [`BodyError::Gone`].

use super::hub::{Hub, HubCounterGuard, Waits};
use super::priorities::rank;
use super::receiving::{Receiving, Stopped};
use crate::message::{DISCARD_BYTES, DISCARD_TIME, MOST_INTERIM, Pace};
use bytes::{Bytes, BytesMut};
use fieldcode::{Flood, Priority};
use handler::held::{Account, Amount, Hold, Holding};
use handler::{BodyError, Client, Departure, Fields, Incoming, IncomingBody};
use http3::Code;
use http3::qpack::ResponseSection;
use net::{Lane, Timer, Unread};
use quic::quinn::{SendStream, VarInt};
use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Bodies up to this size are given to the handler at once if they have arrived completely.
const READY: usize = 256 << 10;

pub(super) struct StreamClient {
    hub: Rc<Hub>,
    stream: u64,
    /// The request's own priority, whether the response is large, and the rank that QUIC was given.
    asked: Priority,
    large: Cell<bool>,
    rank: Cell<i32>,
    /// The value of `Priorities::changes` at the last check.
    changes: Cell<u32>,
    pub(super) timer: Rc<Timer>,
    receiving: RefCell<Receiving>,
    upload: RefCell<Upload>,
    gone: Cell<bool>,
    /// An informational response may be sent now.
    pub(super) interim_allowed: Cell<bool>,
    /// Informational responses that wait for the exchange's task, and its waker.
    queued: RefCell<Vec<u8>>,
    task: RefCell<Option<Waker>>,
    /// Ready when the client does not want the response any more.
    departed: RefCell<Pin<Box<dyn Future<Output = ()>>>>,
    /// The resources that the response holds.
    holding: OnceCell<Rc<Holding>>,
    /// The bytes of the response that the client program may not have read.
    unread: Cell<Unread>,
}

#[derive(Default)]
struct Upload {
    received: u64,
    max: Option<u64>,
    length: Option<u64>,
    continue_due: bool,
    error: Option<BodyError>,
    pace: Pace,
}

impl StreamClient {
    /// Creates the state of a stream whose head has arrived.
    pub(super) fn new(
        hub: Rc<Hub>,
        timer: Rc<Timer>,
        receiving: Receiving,
        send: &SendStream,
        length: Option<u64>,
        continue_due: bool,
        asked: Priority,
    ) -> Rc<StreamClient> {
        let stopped = send.stopped();
        let max = hub.shared.settings().limits.max_body;
        Rc::new(StreamClient {
            upload: RefCell::new(Upload { max, length, continue_due, ..Upload::default() }),
            hub,
            stream: u64::from(VarInt::from(send.id())),
            asked,
            large: Cell::new(false),
            rank: Cell::new(0),
            changes: Cell::new(0),
            timer,
            receiving: RefCell::new(receiving),
            gone: Cell::new(false),
            interim_allowed: Cell::new(true),
            queued: RefCell::default(),
            task: RefCell::default(),
            departed: RefCell::new(Box::pin(async move {
                // The stream is not finished while a handler works, so this means that the client refused the
                // response or the connection ended.
                let _ = stopped.await;
            })),
            holding: OnceCell::new(),
            unread: Cell::new(Unread::of_stream()),
        })
    }

    /// Returns the body for the handler: its bytes if all of them have arrived, else a reader.
    pub(super) fn incoming(self: &Rc<StreamClient>, cx: &mut Context<'_>) -> Incoming {
        let mut receiving = self.receiving.borrow_mut();
        receiving.look(cx);
        let len = receiving.data.iter().map(Bytes::len).sum::<usize>();
        let max = self.upload.borrow().max;
        if !receiving.ended
            || receiving.stopped.is_some()
            || len > READY
            || max.is_some_and(|max| len as u64 > max)
        {
            return Incoming::Arriving(Box::new(Reader::new(self.clone())));
        }
        match receiving.data.len() {
            0 => Incoming::Empty,
            1 => Incoming::Ready(receiving.data.pop_front().unwrap_or_default()),
            _ => {
                let mut whole = BytesMut::with_capacity(len);
                receiving.data.drain(..).for_each(|bytes| whole.extend_from_slice(&bytes));
                Incoming::Ready(whole.freeze())
            }
        }
    }

    /// Returns the next bytes that the client sends in a tunnel; `None` at their end. Unlike a body they have
    /// no limit and no minimum rate. The error is [`BodyError::Gone`]: the client has reset the stream, or
    /// has gone.
    pub(super) fn poll_tunnel(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let mut receiving = self.receiving.borrow_mut();
        loop {
            if let Some(bytes) = receiving.data.pop_front() {
                return Poll::Ready(Some(Ok(bytes)));
            }
            if receiving.stopped.is_some() {
                return Poll::Ready(Some(Err(BodyError::Gone)));
            }
            if receiving.ended {
                return Poll::Ready(None);
            }
            if receiving.poll_more(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Returns units of a budget to the connection.
    pub(super) fn earn(&self, kind: Flood, units: usize) {
        self.hub.budget.borrow_mut().earn(kind, u32::try_from(units).unwrap_or(u32::MAX));
    }

    /// Counts the stream as a tunnel until the guard is dropped.
    pub(super) fn count_tunnel(&self) -> HubCounterGuard {
        self.hub.begin(|hub| &hub.tunnels)
    }

    /// Sends informational responses as far as the client takes them. Wakes the task of `cx` when there are more.
    pub(super) fn send_interim(&self, send: &mut SendStream, cx: &mut Context<'_>) {
        let mut task = self.task.borrow_mut();
        if task.as_ref().is_none_or(|known| !known.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
        let mut queued = self.queued.borrow_mut();
        while !queued.is_empty() {
            let written = Pin::new(&mut *send).poll_write(cx, &queued);
            match written {
                Poll::Ready(Ok(n)) => drop(queued.drain(..n)),
                // The client has gone; the handler notices that through its client view.
                Poll::Ready(Err(_)) => queued.clear(),
                Poll::Pending => break,
            }
        }
    }

    /// Counts the request as waiting for the client until the guard is dropped.
    pub(super) fn wait(&self) -> Waits {
        Waits::new(&self.hub)
    }

    /// Records that QUIC has accepted `bytes` of the response.
    pub(super) fn took(&self, bytes: usize) {
        self.hub.buffers.take(bytes as u64);
        let (now, mut unread) = (self.hub.shared.timers.recent(), self.unread.get());
        self.hub.unread.borrow_mut().sent(bytes as u64, now);
        unread.sent(bytes as u64, now);
        self.unread.set(unread);
        if let Some(holding) = self.holding.get() {
            holding.took(bytes, now);
        }
    }

    /// Returns the estimate of the bytes that the client program has not read.
    pub(super) fn unread(&self) -> Unread {
        self.unread.get()
    }

    /// Counts resources of the response until the guard is dropped.
    pub(super) fn hold(&self, amount: Amount) -> Option<Hold> {
        self.holding().map(|holding| holding.hold(amount))
    }

    /// Returns whether the response must break off because the server needs its resources.
    pub(super) fn is_displaced(&self) -> bool {
        self.holding.get().is_some_and(|holding| holding.is_displaced())
    }

    /// Returns the response bytes that QUIC has accepted on the whole connection.
    pub(super) fn taken(&self) -> u64 {
        self.hub.buffers.taken()
    }

    /// Passes the response's priority to QUIC. `large`: the response needs more than a few packets.
    pub(super) fn prioritize(&self, send: &SendStream, large: bool) {
        self.large.set(large);
        let priorities = &self.hub.priorities;
        self.changes.set(priorities.changes());
        let rank = rank(priorities.of(self.stream, self.asked), self.stream, large);
        if rank != self.rank.replace(rank) {
            // A stream that has ended needs no priority.
            let _ = send.set_priority(rank);
        }
    }

    /// Passes priority changes by the client to QUIC.
    pub(super) fn reprioritize(&self, send: &SendStream) {
        if self.changes.get() != self.hub.priorities.changes() {
            self.prioritize(send, self.large.get());
        }
    }

    /// Wakes the task when the client changes the priority of a large response.
    pub(super) fn wait_for_update(&self, cx: &Context<'_>) {
        if self.large.get() {
            self.hub.priorities.wait(self.stream, cx.waker());
        }
    }

    /// Returns the unsent rest of informational responses, which goes out before the final response.
    pub(super) fn take_queued(&self) -> Vec<u8> {
        self.queued.take()
    }

    /// Encodes the head of the final response.
    pub(super) fn encode(&self, to: &mut Vec<u8>, head: ResponseSection<'_>, fields: &Fields) {
        self.hub.encoder.borrow_mut().head(to, head, fields);
    }

    /// Ends the exchange. The caller must then [`StreamClient::discard`] or [`StreamClient::stop`] the rest
    /// of the request.
    pub(super) fn end(&self) {
        self.gone.set(true);
        self.interim_allowed.set(false);
        self.receiving.borrow_mut().end();
    }

    /// Asks the client not to send the rest of the request.
    pub(super) fn stop(&self) {
        self.receiving.borrow_mut().stop(Code::NoError);
    }

    /// Reads and drops further data, within limits, then asks the client not to send the rest (RFC 9114 section 4.1).
    pub(super) async fn discard(&self) {
        self.timer.arm_in(Lane::Read, DISCARD_TIME);
        let mut left = DISCARD_BYTES as usize;
        poll_fn(|cx| {
            self.timer.wakes(cx.waker());
            while left > 0 && !self.timer.expired(Lane::Read) {
                match self.receiving.borrow_mut().poll_discard(cx) {
                    Poll::Ready(0) => break,
                    Poll::Ready(n) => left = left.saturating_sub(n),
                    Poll::Pending => return Poll::Pending,
                }
            }
            Poll::Ready(())
        })
        .await;
        self.timer.disarm(Lane::Read);
        self.stop();
    }

    /// Returns whether the client is already known to have cancelled its request.
    pub(super) fn is_cancelled(&self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        // `departed` must not be polled again after it was ready.
        self.gone.get()
            || self.receiving.borrow().stopped == Some(Stopped::Gone)
            || self.departed.borrow_mut().as_mut().poll(&mut cx).is_ready()
    }

    fn queue_interim(&self, status: u16, fields: &Fields) {
        let mut queued = self.queued.borrow_mut();
        if queued.len() >= MOST_INTERIM {
            // The client does not read the earlier ones, so it misses nothing.
            return;
        }
        self.hub.encoder.borrow_mut().interim(&mut queued, status, fields);
        drop(queued);
        self.task.borrow().iter().for_each(Waker::wake_by_ref);
    }
}

impl Client for StreamClient {
    fn poll_departure(&self, cx: &mut Context<'_>) -> Poll<Departure> {
        if self.gone.get() || self.departed.borrow_mut().as_mut().poll(cx).is_ready() {
            self.gone.set(true);
            return Poll::Ready(Departure::Gone);
        }
        Poll::Pending
    }

    fn interim(&self, status: u16, fields: &Fields) {
        if self.interim_allowed.get() && (100..200).contains(&status) && status != 101 {
            self.queue_interim(status, fields);
        }
    }

    fn holding(&self) -> Option<Rc<Holding>> {
        if self.gone.get() {
            return None;
        }
        let made = self.holding.get_or_init(|| {
            let (shared, key) = (Rc::downgrade(&self.hub.shared), self.timer.key());
            let wake = move || shared.upgrade().into_iter().for_each(|shared| shared.timers.wake(key));
            // QUIC takes bytes of a stream as the client acknowledges earlier ones.
            Holding::new(self.hub.account(), wake, || None)
        });
        Some(made.clone())
    }

    fn account(&self) -> Option<Rc<Account>> {
        self.hub.account.get().cloned()
    }

    fn open_account(&self) -> Option<Rc<Account>> {
        Some(self.hub.account())
    }
}

impl Drop for StreamClient {
    fn drop(&mut self) {
        self.hub.priorities.forget(self.stream);
    }
}

/// The request body that a handler reads.
struct Reader {
    client: Rc<StreamClient>,
    /// The handler has asked for data.
    begun: bool,
    /// Set while the reader waits for more data.
    waits: Option<Waits>,
}

impl Reader {
    fn new(client: Rc<StreamClient>) -> Reader {
        Reader { client, begun: false, waits: None }
    }

    /// Widens the window at the first read, so that the client may send more ahead.
    fn begin(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            let hub = &self.client.hub;
            hub.windows.begin_body(&hub.connection, &hub.shared.uploads);
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // The rest of the body is discarded, if it is read at all.
        self.client.receiving.borrow_mut().pause();
        let hub = &self.client.hub;
        if self.begun {
            hub.windows.end_body(&hub.connection, &hub.shared.uploads);
        }
    }
}

impl IncomingBody for Reader {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        self.begin();
        self.waits = None;
        let client = &self.client;
        let (mut upload, mut receiving) = (client.upload.borrow_mut(), client.receiving.borrow_mut());
        if let Some(error) = &upload.error {
            return Poll::Ready(Some(Err(error.clone())));
        }
        loop {
            if let Some(bytes) = receiving.data.pop_front() {
                upload.received += bytes.len() as u64;
                upload.continue_due = false;
                upload.pace.received(bytes.len(), || client.hub.shared.timers.recent());
                if upload.max.is_some_and(|max| upload.received > max) {
                    return fail(&mut upload, BodyError::TooLarge);
                }
                return Poll::Ready(Some(Ok(bytes)));
            }
            if client.gone.get() || receiving.stopped.is_some() {
                return fail(&mut upload, BodyError::Gone);
            }
            if receiving.ended {
                return Poll::Ready(None);
            }
            if receiving.poll_more(cx).is_pending() {
                break;
            }
        }
        if std::mem::take(&mut upload.continue_due) && client.interim_allowed.get() {
            client.queue_interim(100, &Fields::default());
        }
        let timeouts = &client.hub.shared.settings().timeouts;
        let mut since = client.hub.shared.timers.recent();
        if let Some(rate) = timeouts.body_min_rate {
            let now = client.hub.shared.timers.now();
            // A client that sends a byte now and then does not keep its place by that.
            since = now.checked_sub(upload.pace.behind(now, rate)).unwrap_or(since);
            match upload.pace.check(now, rate, timeouts.body_grace) {
                Ok(at) => {
                    client.timer.wakes(cx.waker());
                    client.timer.arm(Lane::Read, at);
                }
                Err(error) => return fail(&mut upload, error),
            }
        }
        self.waits = Some(Waits::since(&client.hub, since));
        Poll::Pending
    }

    fn length(&self) -> Option<u64> {
        self.client.upload.borrow().length
    }
}

fn fail(upload: &mut Upload, error: BodyError) -> Poll<Option<Result<Bytes, BodyError>>> {
    upload.error = Some(error.clone());
    Poll::Ready(Some(Err(error)))
}

/// Returns the failure to respond with to a request without a head; `None` if no client waits for a response.
pub(super) fn refusal(stopped: Option<&Stopped>) -> Option<handler::Failure> {
    match stopped {
        Some(Stopped::Refused(failure)) => Some((**failure).clone()),
        _ => None,
    }
}
