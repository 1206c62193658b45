//! Runs the task of an HTTP/2 connection: its reads and writes, its deadlines, and its end.

use super::hub::{FILL, Hub};
use super::ready::{Places, ReadyList};
use super::slot::StreamSlot;
use crate::context::{Context, CounterGuard, Open};
use crate::delivery::{Delivery, DeliveryState};
use crate::message::{DISCARD_BYTES, DISCARD_TIME, ExchangeRecord, Sent};
use crate::room::RoomState;
use handler::{Failure, Handler, Peer};
use http2::{ConnectionError, ErrorCode, Event, Limits, StreamId};
use net::memory::{MemoryClass, Reserved};
use net::{Lane, Subnet, Transport};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// The most reads and writes per poll, so that other connections get served.
const TURNS: usize = 8;
/// The most body pieces per turn.
const PIECES: usize = 1024;
/// Slots that an idle connection keeps. More slots are freed [`SPARE_WAIT`] after the last stream,
const KEPT: usize = 2;
/// or at once if there are more than these.
const KEPT_A_WHILE: usize = 32;
/// How long an idle connection keeps memory for streams.
const SPARE_WAIT: Duration = Duration::from_secs(1);
/// While draining: how long a connection without requests stays open for the client's answer.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a client of a full server may take to send its first request.
const REFUSED_WAIT: Duration = Duration::from_secs(1);
/// How long a client may stay silent after all its streams have stalled.
const STALLED_WAIT: Duration = Duration::from_millis(500);
/// How long the client of a failed connection may take to read the reason.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// The greatest age of a cached clock reading. Added so that a deadline is never early.
const TICK: Duration = Duration::from_millis(100);

/// How a connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// The client has gone.
    Gone,
    /// Everything was sent.
    Linger,
}

pub(super) struct Conn<S: Transport, H: Handler> {
    pub(super) stream: S,
    pub(super) hub: Rc<Hub>,
    pub(super) peer: Rc<Peer>,
    pub(super) context: Rc<Context<H>>,
    /// Open streams, by their places in the engine.
    pub(super) slots: Vec<Option<StreamSlot>>,
    pub(super) open: usize,
    /// The open streams that are tunnels.
    pub(super) tunnels: usize,
    /// Counts the connection as a tunnel while it has no other open streams.
    tunnel: Option<CounterGuard>,
    pub(super) places: Places,
    /// Requests that have just arrived.
    pub(super) fresh: Vec<StreamId>,
    /// Streams that were reset.
    pub(super) departed: Vec<StreamSlot>,
    /// Exchanges that are over when that many bytes have been written.
    pub(super) done: VecDeque<(u64, ExchangeRecord)>,
    pub(super) served: u64,
    written: u64,
    /// The output that the socket does not take.
    queued: Reserved,
    /// Tracks whether the client reads its responses.
    pub(super) delivery: Delivery,
    woken: Vec<u32>,
    active: Option<CounterGuard>,
    /// The time since which no stream is open.
    idle_since: Instant,
    armed: Option<Instant>,
    /// The socket has no room.
    pub(super) blocked: bool,
    draining: bool,
    /// The connection has been idle for too long.
    ending: bool,
    /// The last stream has stalled, and the client has been silent since.
    stalled: bool,
    /// Nothing is read any more, because the client broke a rule or a deadline.
    failed: bool,
    /// A byte has arrived.
    begun: bool,
    /// The response to every request, because the server has no room for the connection.
    pub(super) refusal: Option<Box<Failure>>,
    pub(super) gone: bool,
    /// When bytes of a request or a response last moved.
    pub(super) moved: Instant,
    _open: Open,
}

impl<S: Transport, H: Handler + 'static> Conn<S, H> {
    pub(super) fn new(stream: S, peer: Rc<Peer>, context: Rc<Context<H>>) -> Conn<S, H> {
        let shared = context.shared.clone();
        let now = shared.timers.now();
        let settings = shared.settings();
        let limits = Limits {
            head: shared.head_limits(),
            max_streams: u32::try_from(settings.limits.http2_streams).unwrap_or(u32::MAX),
            header_timeout: settings.timeouts.header,
            settings_timeout: settings.timeouts.header,
            stall_timeout: settings.timeouts.send,
            discard_bytes: DISCARD_BYTES,
            discard_timeout: DISCARD_TIME,
            ..Limits::default()
        };
        let timer = shared.timers.register();
        let open = shared.open(timer.key(), Subnet::of(peer.remote.ip()));
        let hub = Rc::new(Hub {
            engine: RefCell::new(http2::Connection::new(limits, now)),
            timer,
            ready: Arc::new(ReadyList::default()),
            held: Cell::new(0),
            check_at: Cell::new(None),
            account: OnceCell::new(),
            acknowledged: Cell::new(0),
            displaced: Cell::new(false),
            shared: shared.clone(),
        });
        Conn {
            stream,
            hub,
            peer,
            slots: Vec::new(),
            open: 0,
            tunnels: 0,
            tunnel: None,
            places: Places::default(),
            fresh: Vec::new(),
            departed: Vec::new(),
            done: VecDeque::new(),
            served: 0,
            written: 0,
            queued: Reserved::new(MemoryClass::Connections, 0),
            delivery: Delivery::default(),
            woken: Vec::new(),
            active: None,
            idle_since: now,
            armed: None,
            blocked: false,
            draining: false,
            ending: false,
            stalled: false,
            failed: false,
            begun: false,
            refusal: None,
            gone: false,
            moved: now,
            _open: open,
            context,
        }
    }

    /// Answers every request with this failure, and ends the connection.
    pub(super) fn refuse(&mut self, failure: Failure) {
        self.refusal = Some(Box::new(failure));
        // A refused connection does not count, so it cannot make room.
        self.hub.shared.room.refuse(self.hub.timer.key());
    }

    /// Polls the connection's task once: a few turns of reading, answering and writing.
    pub(super) fn poll(&mut self, cx: &mut std::task::Context<'_>) -> Poll<Over> {
        self.hub.ready.attend(cx.waker());
        self.hub.timer.wakes(cx.waker());
        if self.hub.shared.room.is_chosen(self.hub.timer.key()) {
            self.make_room();
        }
        if self.hub.timer.expired(Lane::Write) {
            self.look();
        }
        if self.hub.timer.expired(Lane::Read) {
            self.armed = None;
            self.hub.timer.disarm(Lane::Read);
            self.check();
        }
        self.follow_draining();
        for _ in 0..TURNS {
            let mut busy = self.may_read() && self.stream.poll_readable(cx).is_ready() && self.read();
            busy |= self.run();
            busy |= self.send(cx);
            self.settle();
            if let Some(over) = self.is_over() {
                return Poll::Ready(over);
            }
            if !busy {
                self.arm();
                if self.served == 0 && self.open == 0 {
                    self.wait(RoomState::Unproved, self.hub.shared.timers.recent());
                }
                if self.hub.ready.leave() {
                    return Poll::Pending;
                }
            }
        }
        self.arm();
        self.hub.ready.leave();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Checks whether the client reads its responses, and gives up on one that does not.
    fn look(&mut self) {
        let hub = &self.hub;
        if self.failed {
            // The time for the error message is over; a normal close would wait behind data that the client
            // does not read.
            self.stream.abort_on_drop();
            self.gone = true;
            return;
        }
        let queued = hub.engine.borrow_mut().output().len();
        let found = self.delivery.look(&self.stream, queued, &hub.timer, &hub.shared);
        self.delivery.progress().into_iter().for_each(|bytes| hub.acknowledged.set(bytes));
        hub.engine.borrow_mut().behind(self.delivery.has_until());
        self.gone |= found == DeliveryState::Stalled;
    }

    /// Returns whether the connection may read. It may not while the client itself does not read, or while
    /// too much received data is held.
    fn may_read(&self) -> bool {
        let shared = &self.hub.shared;
        !self.failed
            && self.hub.engine.borrow_mut().output().len() < FILL
            && shared.uploads.may_read(self.hub.held.get(), self.hub.timer.key())
    }

    /// Reads once. Returns whether there may be more to do.
    fn read(&mut self) -> bool {
        let shared = self.hub.shared.clone();
        let mut scratch = shared.scratch.borrow_mut();
        match self.stream.try_read(&mut scratch[..shared.read_size()]) {
            Ok(0) => self.gone = true,
            Ok(n) => self.receive(&scratch[..n]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.gone = true,
        }
        true
    }

    /// Processes received bytes.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.begun = true;
        self.stalled = false;
        let hub = self.hub.clone();
        let now = hub.shared.timers.now();
        let result = hub.engine.borrow_mut().receive(bytes, now, &mut |event| self.take(event, now));
        if let Err(error) = result {
            self.fail(&error, 400, now);
        }
    }

    fn take(&mut self, event: Event<'_>, now: Instant) {
        match event {
            Event::Request { stream, head, end } => self.arrive(stream, Ok((head, end)), now),
            Event::Refused { stream, failure } => self.arrive(stream, Err(failure), now),
            Event::Data { stream, data, end } => self.data(stream, data, end),
            Event::Trailers { stream } => self.data(stream, &[], true),
            Event::Reset { stream, .. } => {
                let slot = self.remove(stream);
                self.departed.extend(slot);
            }
            Event::GoAway { .. } => {}
        }
    }

    /// Ends the connection after an error of the client, which the engine has reported to it.
    fn fail(&mut self, error: &ConnectionError, status: u16, now: Instant) {
        self.failed = true;
        self.depart_all();
        let failure = Failure::client(status, format!("HTTP/2: {error}"));
        let sent = Sent { status, failure: Some(Box::new(failure)), ..Sent::default() };
        let outcome = ExchangeRecord { trace: Rc::default(), request: None, started: now, sent };
        self.done.push_back((0, outcome));
        self.hub.timer.arm(Lane::Write, now + LAST_WORDS);
    }

    /// Serves the streams that have something to do. Returns whether there may be more.
    fn run(&mut self) -> bool {
        let mut busy = !self.fresh.is_empty();
        if busy && self.hub.engine.borrow_mut().output().capacity() == 0 {
            let mut engine = self.hub.engine.borrow_mut();
            if engine.output().is_empty() {
                *engine.output() = self.hub.shared.take_large_output();
            }
        }
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.drain(..).for_each(|id| self.start(id));
        self.fresh = fresh;
        for slot in std::mem::take(&mut self.departed) {
            self.depart(slot);
        }
        if self.hub.displaced.take() {
            self.displace();
        }
        let mut woken = std::mem::take(&mut self.woken);
        self.hub.ready.take(&mut woken);
        busy |= !woken.is_empty();
        for place in woken.drain(..) {
            self.poll_slot(place);
        }
        self.woken = woken;
        busy
    }

    /// Sends as much as the client and the socket take in this turn. Returns whether there may be more.
    fn send(&mut self, cx: &mut std::task::Context<'_>) -> bool {
        for _ in 0..PIECES {
            if self.hub.engine.borrow_mut().output().len() >= FILL || !self.send_next() {
                break;
            }
        }
        let before = self.written;
        self.write(cx);
        if self.written > before {
            self.moved();
        }
        // Written data has made room, so reading may continue.
        self.written > before && !self.blocked
    }

    /// Writes the queued output.
    fn write(&mut self, cx: &mut std::task::Context<'_>) {
        let mut engine = self.hub.engine.borrow_mut();
        let output = engine.output();
        let timer = &self.hub.timer;
        self.blocked = false;
        while !output.is_empty() && !self.gone {
            let written = self.stream.try_write(&output.slices(), false);
            match written {
                Ok(n) => {
                    output.advance(n);
                    self.written += n as u64;
                    if !self.failed {
                        self.delivery.wrote(n, timer, &self.hub.shared);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.stream.poll_writable(cx).is_pending() {
                        self.blocked = true;
                        break;
                    }
                }
                Err(_) => self.gone = true,
            }
        }
        if !self.blocked && !self.gone {
            match self.stream.poll_flush(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => self.gone = true,
                Poll::Pending => self.blocked = true,
            }
        }
        if !self.failed {
            self.delivery.block(self.blocked, &self.stream, timer, &self.hub.shared);
        }
        if self.blocked || self.queued.bytes() > 0 {
            self.queued.set(output.own_len() as u64);
        }
        if !self.blocked && self.open == 0 && output.capacity() > 0 {
            // An idle connection keeps no buffer.
            self.hub.shared.keep_output(std::mem::take(output));
        }
    }

    /// Reports exchanges whose responses have been sent.
    fn settle(&mut self) {
        if self.gone {
            self.depart_all();
        }
        if self.done.is_empty() {
            return;
        }
        let many = self.done.len() > KEPT_A_WHILE;
        // One time for all: their responses were written in one call.
        let now = self.hub.shared.timers.now();
        while self.done.front().is_some_and(|(end, _)| *end <= self.written || self.gone)
            && let Some((end, mut outcome)) = self.done.pop_front()
        {
            outcome.sent.broken |= end > self.written;
            outcome.report(&self.context.handler, &self.peer, now);
        }
        if many && self.open == 0 {
            self.done.shrink_to_fit();
        }
    }

    fn is_over(&mut self) -> Option<Over> {
        if self.gone {
            return Some(Over::Gone);
        }
        let mut engine = self.hub.engine.borrow_mut();
        let sent = !self.blocked && engine.output().is_empty();
        let over = sent && self.open == 0 && (self.failed || engine.is_drained());
        if over && !self.begun {
            // A client that sent nothing gets no lingering close.
            return Some(Over::Gone);
        }
        over.then_some(Over::Linger)
    }

    /// Counts an opened stream.
    pub(super) fn enter(&mut self) {
        self.open += 1;
        if self.tunnels > 0 {
            self.count_tunnel();
        }
        if self.open > 1 {
            return;
        }
        let shared = &self.hub.shared;
        self.active = Some(shared.count_active());
        let chosen = shared.room.is_chosen(self.hub.timer.key());
        if chosen {
            // The connection is not idle any more, so another one makes room in its place.
            shared.room.busy(self.hub.timer.key());
            shared.displace_another();
        }
        self.moved();
    }

    /// Counts a stream that has ended.
    pub(super) fn leave(&mut self, slot: &StreamSlot) {
        self.open -= 1;
        if self.tunnels > 0 {
            self.tunnels -= usize::from(slot.is_tunnel());
            self.count_tunnel();
        }
        if self.open > 0 {
            return;
        }
        self.active = None;
        self.idle_since = self.hub.shared.timers.recent() + TICK;
        self.wait(RoomState::Idle, self.hub.shared.timers.recent());
        if self.slots.len() > KEPT_A_WHILE {
            self.shrink();
        }
    }

    /// Counts the connection as a tunnel while all of its streams are tunnels: a drain does not wait for it.
    pub(super) fn count_tunnel(&mut self) {
        let only = self.tunnels > 0 && self.tunnels == self.open;
        if only != self.tunnel.is_some() {
            self.tunnel = only.then(|| self.hub.shared.count_tunnel());
        }
    }

    /// Returns when an idle connection frees the memory of many streams.
    fn spare_deadline(&self) -> Option<Instant> {
        (self.open == 0 && self.slots.len() > KEPT).then(|| self.idle_since + SPARE_WAIT)
    }

    fn shrink(&mut self) {
        self.slots = Vec::new();
        self.fresh = Vec::new();
        self.done.shrink_to_fit();
        self.places.clear();
        self.woken = Vec::new();
        self.hub.ready.shrink();
    }

    /// Returns the number of bytes written and queued so far.
    pub(super) fn position(&self) -> u64 {
        self.written + self.hub.engine.borrow_mut().output().len() as u64
    }

    fn follow_draining(&mut self) {
        let shared = &self.hub.shared;
        if shared.draining.get() && !std::mem::replace(&mut self.draining, true) {
            self.hub.engine.borrow_mut().drain(self.hub.shared.timers.recent());
            self.idle_since = self.idle_since.max(shared.timers.now());
        }
    }

    /// Ends a connection without streams.
    pub(super) fn end(&mut self) {
        if !std::mem::replace(&mut self.ending, true) {
            self.hub.engine.borrow_mut().goaway(ErrorCode::NO_ERROR);
        }
    }

    /// Returns when an idle connection is closed.
    fn idle_deadline(&self) -> Option<Instant> {
        let timeouts = &self.hub.shared.settings().timeouts;
        let time = match self.served {
            _ if self.draining => DRAIN_TIMEOUT,
            _ if self.stalled => STALLED_WAIT,
            0 if self.refusal.is_some() => REFUSED_WAIT,
            _ if self.refusal.is_some() => Duration::ZERO,
            0 => timeouts.header,
            _ => timeouts.keep_alive,
        };
        (self.open == 0 && !self.ending).then_some(self.idle_since + time)
    }

    /// Sets the next deadline.
    fn arm(&mut self) {
        let engine = self.hub.engine.borrow().deadline();
        let next = [engine, self.hub.check_at.get(), self.idle_deadline(), self.spare_deadline()];
        let next = next.into_iter().flatten().min();
        if let Some(at) = next
            && self.armed.is_none_or(|armed| at < armed)
        {
            self.hub.timer.arm(Lane::Read, at);
            self.armed = Some(at);
        }
    }

    /// Checks the deadlines after the timer has expired, possibly for one that is obsolete.
    fn check(&mut self) {
        if self.failed {
            // The time for the error message is running and must not begin again.
            return;
        }
        let hub = self.hub.clone();
        let now = hub.shared.timers.now();
        let before = self.departed.len();
        let result = hub.engine.borrow_mut().check(now, &mut |event| self.take(event, now));
        if self.departed.len() > before && self.open == 0 {
            // A client that reads none of its responses gets only a short time to send another request.
            (self.stalled, self.idle_since) = (true, now);
        }
        if let Err(error) = result {
            if self.begun {
                self.fail(&error, 408, now);
            } else {
                self.gone = true;
            }
        }
        if hub.check_at.get().is_some_and(|at| at <= now) {
            let checks = self.slots.iter().flatten().filter_map(|slot| slot.client.check(now));
            hub.check_at.set(checks.min());
            self.follow(now);
        }
        if self.spare_deadline().is_some_and(|at| at <= now) {
            self.shrink();
        }
        if self.idle_deadline().is_some_and(|at| at <= now) {
            self.end();
        }
    }
}

impl<S: Transport, H: Handler> Drop for Conn<S, H> {
    fn drop(&mut self) {
        let now = Instant::now();
        let slots = std::mem::take(&mut self.slots).into_iter().flatten();
        for slot in slots.chain(std::mem::take(&mut self.departed)) {
            let mut outcome = slot.cut_off(&self.hub);
            outcome.report(&self.context.handler, &self.peer, now);
        }
        for (end, mut outcome) in std::mem::take(&mut self.done) {
            outcome.sent.broken |= end > self.written;
            outcome.report(&self.context.handler, &self.peer, now);
        }
    }
}
