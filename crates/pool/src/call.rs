//! One request on its way through the pool: its frame, its state, its reply.

use crate::deaths::Served;
use crate::dispatch::{SeatKind, Serial, Ticket};
use crate::reply::{Reply, ReplyEvent};
use bytes::Bytes;
use handler::held::{Account, Holding, Upload};
use handler::{Client, Failure, Trace};
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::rc::{Rc, Weak};
use std::time::Instant;
use wire::request::Head;
use wire::times::Times;

/// One request from its submission until its worker thread is free again.
pub(crate) struct Call {
    /// The REQUEST frame but for body bytes.
    pub(crate) frame: RefCell<Vec<u8>>,
    pub(crate) body: RefCell<Carried>,
    pub(crate) reply: Reply,
    pub(crate) trace: Rc<Trace>,
    /// The client, as long as its exchange keeps it; a request of our own has none.
    client: Option<Weak<dyn Client>>,
    asked: Cell<Instant>,
    kind: SeatKind,
    state: Cell<CallState>,
    /// The worker that it was last sent to.
    serial: Cell<Serial>,
    /// When it was last sent to one, microseconds of the monotonic clock.
    sent_us: Cell<u64>,
    /// When it was given up because it takes too long, microseconds of the monotonic clock; `None` while it has not been.
    overdue_us: Cell<Option<u64>>,
    blamed: Cell<bool>,
    /// It has asked for time until then, microseconds of the monotonic clock.
    until_us: Cell<u64>,
}

/// How the body travels.
#[derive(Debug)]
pub(crate) enum Carried {
    Nothing,
    Bytes(Bytes),
    /// A file that goes with the request, and its place among all uploads.
    File {
        file: File,
        _place: Upload,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallState {
    /// Not submitted yet.
    New,
    Waiting(Ticket),
    Sent {
        ticket: Ticket,
        serial: Serial,
        id: u32,
    },
    /// The worker has finished it, or it has failed.
    Finished,
}

impl Call {
    /// A request that asks for a seat of this kind at `asked`.
    pub(crate) fn new(
        frame: Vec<u8>,
        body: Carried,
        trace: Rc<Trace>,
        client: Option<Weak<dyn Client>>,
        kind: SeatKind,
        asked: Instant,
    ) -> Call {
        trace.asked.set(Some(asked));
        let (frame, state) = (RefCell::new(frame), Cell::new(CallState::New));
        let (serial, overdue_us, until_us) = (Cell::new(0), Cell::new(None), Cell::new(0));
        let blamed = Cell::new(false);
        let sent_us = Cell::new(0);
        Call {
            frame,
            body: RefCell::new(body),
            reply: Reply::default(),
            trace,
            client,
            asked: Cell::new(asked),
            kind,
            state,
            serial,
            sent_us,
            overdue_us,
            blamed,
            until_us,
        }
    }

    /// What serves it.
    pub(crate) fn kind(&self) -> SeatKind {
        self.kind
    }

    pub(crate) fn state(&self) -> CallState {
        self.state.get()
    }

    /// The worker that it was last sent to.
    pub(crate) fn serial(&self) -> Serial {
        self.serial.get()
    }

    pub(crate) fn finished(&self) {
        self.state.set(CallState::Finished);
        // The request will not be sent again.
        self.frame.take();
        self.body.replace(Carried::Nothing);
    }

    /// What its response holds; `None` when no handler waits for it.
    pub(crate) fn holding(&self) -> Option<Rc<Holding>> {
        self.client.as_ref()?.upgrade()?.holding()
    }

    /// What the responses on its connection hold, if they have held anything.
    pub(crate) fn account(&self) -> Option<Rc<Account>> {
        self.client.as_ref()?.upgrade()?.account()
    }

    /// Asks for a seat anew: until `now` it has waited for its own client.
    pub(crate) fn asks_at(&self, now: Instant) {
        self.asked.set(now);
        self.trace.asked.set(Some(now));
    }

    /// Records the time in the queue: all time until the response came at `now`, but for `app_us` microseconds in the app.
    pub(crate) fn was_queued(&self, now: Instant, app_us: u32) {
        let total =
            u32::try_from(now.saturating_duration_since(self.asked.get()).as_micros()).unwrap_or(u32::MAX);
        self.trace.queue_us.set(total.saturating_sub(app_us));
    }

    /// Records the times of a response that came at `now`.
    #[inline]
    pub(crate) fn took(&self, now: Instant, times: Times) {
        self.trace.app_us.set(times.app_us);
        self.trace.cpu_us.set(times.cpu_us);
        self.trace.gvl_us.set(times.gvl_us);
        self.was_queued(now, times.app_us);
    }

    pub(crate) fn asked(&self) -> Instant {
        self.asked.get()
    }

    /// Applies `read` to the request's head; `None` once the worker has finished it.
    pub(crate) fn with_head<R>(&self, read: impl FnOnce(&Head<'_>) -> R) -> Option<R> {
        let frame = self.frame.borrow();
        let head = wire::request::head_of(frame.get(wire::frame::HEADER..)?).ok()?;
        Some(read(&head))
    }

    /// Whether the request's method is safe (RFC 9110, 9.2.1), as far as apps can be expected to keep to it.
    pub(crate) fn changes_nothing(&self) -> bool {
        self.with_head(|head| matches!(head.method, b"GET" | b"HEAD")).unwrap_or(false)
    }

    pub(crate) fn describe(&self) -> String {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let named = self.with_head(|head| format!("{} {}", text(head.method), text(head.target)));
        named.unwrap_or_else(|| "a request".to_owned())
    }

    /// For the record of a worker's death: the request was `id` on the link of front thread `link`, and `failed` with the worker.
    pub(crate) fn served(&self, link: u16, id: u32, failed: bool) -> Option<Served> {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        self.with_head(|head| Served {
            link,
            id,
            method: text(head.method),
            target: text(head.target),
            path: text(head.path()),
            age: self.asked.get().elapsed(),
            answered: self.reply.headed() || self.overdue_us.get().is_some(),
            failed,
        })
    }

    /// Changes where the request is.
    pub(crate) fn set_state(&self, state: CallState) {
        self.state.set(state);
    }

    /// Notes that the request goes to worker `serial`, in scoreboard slot `index`.
    pub(crate) fn sent_to(&self, serial: Serial, index: u16) {
        self.trace.worker.set(index + 1);
        self.serial.set(serial);
    }

    /// Notes when it is sent, which is when a fiber begins to serve it.
    pub(crate) fn sent_at(&self, now_us: u64) {
        self.sent_us.set(now_us);
    }

    /// When it was sent, if that has been noted.
    pub(crate) fn sent_us(&self) -> u64 {
        self.sent_us.get()
    }

    /// Notes that it is given up; whether it had been before.
    pub(crate) fn mark_overdue(&self, now_us: u64) -> bool {
        let before = self.overdue_us.get();
        self.overdue_us.set(before.or(Some(now_us)));
        before.is_some()
    }

    /// How long it has held its seat since it was given up, microseconds; `None` while it has not been.
    pub(crate) fn overdue_for_us(&self, now_us: u64) -> Option<u64> {
        self.overdue_us.get().map(|since_us| now_us.saturating_sub(since_us))
    }

    /// Whether its worker is to be ended for it: once, when it holds a seat and has no response but one that it is overdue.
    pub(crate) fn blames_worker(&self) -> bool {
        (self.overdue_us.get().is_some() || !self.reply.headed()) && !self.blamed.replace(true)
    }

    /// Gives it time until then, microseconds of the monotonic clock; never less than it has.
    pub(crate) fn extend(&self, until_us: u64) -> u64 {
        let until_us = until_us.max(self.until_us.get());
        self.until_us.set(until_us);
        until_us
    }

    /// Whether it has been given time beyond `now_us`.
    pub(crate) fn is_extended(&self, now_us: u64) -> bool {
        now_us < self.until_us.get()
    }

    /// Ends the call: with a response if none has started, else by breaking its body off.
    pub(crate) fn fail(&self, failure: Failure) {
        if !self.reply.headed() {
            self.reply.on_event(ReplyEvent::Failed(failure.clone()));
        }
        self.reply.on_end(Err(failure));
    }
}
