//! One request on its way through the pool: its frame, its state and its reply.

use crate::clients::Clients;
use crate::in_flight::Served;
use crate::kept;
use crate::reply::{Reply, ReplyEvent};
use crate::spool::Room;
use crate::trial::TrialSample;
use bytes::Bytes;
use handler::held::{Account, Holding, Upload};
use handler::{Client, Failure, PlacedRemarks, Trace};
use net::memory::{self, Reserved};
use queue::{PoolIndex, QueueKey, Serial, Ticket, Turn};
use settings::Settings;
use stats::KeptRequest;
use std::cell::{Cell, RefCell};
use std::os::unix::fs::FileExt;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};
use sys::file::UnnamedFile;
use wire::request::Head;
use wire::times::Times;
use wire::used::Used;

/// A request from its submission until its seat is free again.
pub(crate) struct Call {
    /// The REQUEST frame without body bytes.
    pub(crate) frame: RefCell<Vec<u8>>,
    pub(crate) body: RefCell<CallBody>,
    pub(crate) reply: Reply,
    pub(crate) trace: Rc<Trace>,
    /// The client, while its exchange exists. A probe request has no client.
    client: Option<Weak<dyn Client>>,
    asked: Cell<Instant>,
    pool: PoolIndex,
    state: Cell<CallState>,
    /// The turn that it used to get its seat; `None` if it has not waited.
    turn: Cell<Option<Turn>>,
    /// The worker that the request was last sent to.
    serial: Cell<Serial>,
    /// When it was last sent, in microseconds of the monotonic clock.
    sent_us: Cell<u64>,
    /// When the server gave the request up because it took too long, in microseconds of the monotonic clock;
    /// `None` if it did not.
    overdue_us: Cell<Option<u64>>,
    blamed: Cell<bool>,
    /// Whether the app has responded with a status of 500 or more.
    failed: Cell<bool>,
    /// The extended deadline that the request has asked for, in microseconds of the monotonic clock.
    until_us: Cell<u64>,
    /// Whether the client has not yet asked for more of a body that the app writes to a socket.
    unread: Cell<bool>,
}

/// How the body is sent.
#[derive(Debug)]
pub(crate) enum CallBody {
    Nothing,
    Bytes(Bytes, #[expect(dead_code, reason = "it counts until it is dropped")] Reserved),
    /// A file that is sent with the request, counted among all uploads.
    File {
        file: UnnamedFile,
        _place: Upload,
    },
}

impl CallBody {
    /// Returns its length, and its bytes if they are at most `most`.
    fn short(&self, most: u64) -> (u64, Option<Vec<u8>>) {
        match self {
            CallBody::Nothing => (0, Some(Vec::new())),
            CallBody::Bytes(bytes, _) => {
                let length = bytes.len() as u64;
                (length, (length <= most).then(|| bytes.to_vec()))
            }
            CallBody::File { file, .. } => {
                let length = file.metadata().map_or(0, |about| about.len());
                let read = || {
                    let mut bytes = vec![0; length as usize];
                    let read = file.read_at(&mut bytes, 0).unwrap_or(0);
                    bytes.truncate(read);
                    bytes
                };
                (length, (length <= most).then(read))
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallState {
    New,
    Waiting(Ticket),
    /// The request had a seat, but other responses of its client hold their share of memory. It returns to
    /// its position in the queue later.
    Postponed(Ticket),
    Sent {
        /// `None` for a probe request.
        ticket: Option<Ticket>,
        serial: Serial,
        id: u32,
    },
    /// The worker has finished the request, or it has failed.
    Finished,
}

impl Call {
    /// Creates a request that asks for a seat of this pool at `asked`.
    pub(crate) fn new(
        frame: Vec<u8>,
        body: CallBody,
        trace: Rc<Trace>,
        client: Option<Weak<dyn Client>>,
        pool: PoolIndex,
        asked: Instant,
    ) -> Call {
        trace.asked.set(Some(asked));
        let (frame, state) = (RefCell::new(frame), Cell::new(CallState::New));
        let (serial, overdue_us, until_us) = (Cell::new(0), Cell::new(None), Cell::new(0));
        let (blamed, failed) = (Cell::new(false), Cell::new(false));
        let sent_us = Cell::new(0);
        let unread = Cell::new(false);
        Call {
            frame,
            body: RefCell::new(body),
            reply: Reply::default(),
            trace,
            client,
            asked: Cell::new(asked),
            pool,
            state,
            turn: Cell::new(None),
            serial,
            sent_us,
            overdue_us,
            blamed,
            failed,
            until_us,
            unread,
        }
    }

    pub(crate) fn pool(&self) -> PoolIndex {
        self.pool
    }

    /// Returns whether the server has made the request itself.
    pub(crate) fn is_own(&self) -> bool {
        self.client.is_none()
    }

    pub(crate) fn state(&self) -> CallState {
        self.state.get()
    }

    /// Returns the worker that the request was last sent to.
    pub(crate) fn serial(&self) -> Serial {
        self.serial.get()
    }

    /// Records the turn that it uses with the seat that it has now.
    pub(crate) fn uses(&self, turn: Option<Turn>) {
        self.turn.set(turn);
    }

    /// Returns its turn, which ends.
    pub(crate) fn take_turn(&self) -> Option<Turn> {
        self.turn.take()
    }

    /// Returns the client whose turn the request uses if it has to wait.
    pub(crate) fn key(&self, clients: &Clients, settings: &Settings) -> QueueKey {
        let request = self.trace.request();
        request.map(|request| clients.key(&request, settings, self.pool.0.into())).unwrap_or_default()
    }

    pub(crate) fn finished(&self) {
        self.state.set(CallState::Finished);
        // The request will not be sent again.
        self.frame.take();
        self.body.replace(CallBody::Nothing);
    }

    /// Returns the holding of its response; `None` if no handler waits for it.
    pub(crate) fn holding(&self) -> Option<Rc<Holding>> {
        self.client.as_ref()?.upgrade()?.holding()
    }

    /// Returns the account of the responses on its connection, if they have held anything.
    pub(crate) fn account(&self) -> Option<Rc<Account>> {
        self.client.as_ref()?.upgrade()?.account()
    }

    /// Returns the part of `room` that the client's connection leaves for the response.
    pub(crate) fn room(&self, room: Room) -> Room {
        let short = handler::held::memory_is_short();
        // A file in memory would not help.
        let room = if short && memory::are_files_in_memory() { Room { file: 0, ..room } } else { room };
        let Some(account) = self.account() else {
            return if short { Room { memory: 0, ..room } } else { room };
        };
        let (held, own) = (account.held(), self.reply.on_disk());
        let full = short || account.is_full();
        Room {
            memory: if full { 0 } else { room.memory },
            file: room.file.saturating_sub(held.disk.saturating_sub(own)),
        }
    }

    /// Records whether the client has taken a piece of a body that the app writes to a socket, and not asked for more yet.
    pub(crate) fn set_unread(&self, unread: bool) {
        self.unread.set(unread);
    }

    /// Returns whether the app waits, or will soon have to, until the client has read more of the response.
    pub(crate) fn waits_for_client(&self) -> bool {
        self.unread.get() || self.reply.waits_for_client()
    }

    /// Restarts the waiting time at `now`, because the request has waited for its own client until then.
    pub(crate) fn asks_at(&self, now: Instant) {
        self.asked.set(now);
        self.trace.asked.set(Some(now));
    }

    /// Records that the request has waited for the end of a pause since `since`. Its waiting time in the queue
    /// begins at `now`.
    pub(crate) fn was_paused(&self, since: Instant, now: Instant) {
        let waited = u32::try_from(now.saturating_duration_since(since).as_micros()).unwrap_or(u32::MAX);
        self.trace.paused_us.update(|us| us.saturating_add(waited));
        self.asks_at(now);
    }

    /// Records the time in the queue: the time until the response arrived at `now`, without `app_us`
    /// microseconds in the app.
    pub(crate) fn was_queued(&self, now: Instant, app_us: u32) {
        let total =
            u32::try_from(now.saturating_duration_since(self.asked.get()).as_micros()).unwrap_or(u32::MAX);
        self.trace.queue_us.set(total.saturating_sub(app_us));
    }

    /// Returns the time until the response of a client began at `now`; `None` for a probe request, and if the
    /// client has given the response up.
    pub(crate) fn response_time(&self, now: Instant) -> Option<Duration> {
        let counts = self.client.is_some() && !self.reply.is_unwanted();
        counts.then(|| now.saturating_duration_since(self.asked.get()))
    }

    /// Records the times of a response that arrived at `now`.
    #[inline]
    pub(crate) fn took(&self, now: Instant, times: Times) {
        self.trace.app_us.set(times.app_us);
        self.trace.cpu_us.set(times.cpu_us);
        self.trace.gvl_us.set(times.gvl_us);
        self.was_queued(now, times.app_us);
    }

    /// Records whether the app has responded with a status of 500 or more.
    pub(crate) fn set_failed(&self, failed: bool) {
        self.failed.set(failed);
    }

    /// Returns the request for the comparison of two releases, before [`Call::finished`]. `broken`: the app has broken the response off.
    /// `None` for a probe request, and if the client has given the response up, which may have made it short.
    #[cold]
    pub(crate) fn sample(&self, times: Times, broken: bool) -> Option<TrialSample> {
        if self.client.is_none() || self.reply.is_unwanted() {
            return None;
        }
        let named = self.trace.route.borrow().clone();
        let folded = || {
            let name =
                |head: &Head<'_>| text::route::Buffer::default().of_request(head.method, head.path()).into();
            self.with_head(name)
        };
        let Used { allocations, queries, .. } = self.trace.used.get();
        Some(TrialSample {
            route: named.or_else(folded)?,
            failed: broken || self.failed.get(),
            app_us: times.app_us,
            cpu_us: times.cpu_us,
            allocations,
            queries,
        })
    }

    /// Records what the request has used.
    pub(crate) fn used(&self, used: Used) {
        self.trace.used.set(used);
    }

    /// Records remarks about the request.
    pub(crate) fn remarked(&self, remarks: PlacedRemarks) {
        self.trace.remarks.replace(Some(Box::new(remarks)));
    }

    pub(crate) fn asked(&self) -> Instant {
        self.asked.get()
    }

    /// Applies `read` to the head of the request; `None` once the worker has finished it.
    pub(crate) fn with_head<R>(&self, read: impl FnOnce(&Head<'_>) -> R) -> Option<R> {
        let frame = self.frame.borrow();
        let head = wire::request::head_of(frame.get(wire::frame::HEADER..)?).ok()?;
        Some(read(&head))
    }

    /// Returns whether the method is a safe method (RFC 9110, 9.2.1; RFC 10008) that apps can be expected to
    /// treat as safe.
    pub(crate) fn changes_nothing(&self) -> bool {
        self.with_head(|head| matches!(head.method, b"GET" | b"HEAD" | b"QUERY")).unwrap_or(false)
    }

    pub(crate) fn describe(&self) -> String {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let named = self.with_head(|head| format!("{} {}", text(head.method), text(head.target)));
        named.unwrap_or_else(|| "a request".to_owned())
    }

    /// Returns a copy of the request without secrets; `None` if the worker has finished it, or if it is too long.
    fn copy(&self) -> Option<KeptRequest> {
        let (length, body) = self.body.borrow().short(kept::LONGEST_BODY);
        kept::copy(self.frame.borrow().get(wire::frame::HEADER..)?, length, body)
    }

    /// Returns the request for the record of a worker's death: its `id` on link `link`, and whether the death
    /// made it `failed`. `keep`: with a copy.
    pub(crate) fn served(&self, link: u16, id: u32, failed: bool, keep: bool) -> Option<Served> {
        let kept = keep.then(|| self.copy()).flatten();
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
            kept,
        })
    }

    pub(crate) fn set_state(&self, state: CallState) {
        self.state.set(state);
    }

    /// Records that the request goes to worker `serial`, in scoreboard slot `index`.
    pub(crate) fn sent_to(&self, serial: Serial, index: u16) {
        self.trace.worker.set(index + 1);
        self.serial.set(serial);
    }

    /// Records when the request was sent, which is when a fiber begins to serve it.
    pub(crate) fn sent_at(&self, now_us: u64) {
        self.sent_us.set(now_us);
    }

    /// Returns when the request was sent; 0 if that was not recorded.
    pub(crate) fn sent_us(&self) -> u64 {
        self.sent_us.get()
    }

    /// Marks the request as given up. Returns whether it was already.
    pub(crate) fn mark_overdue(&self, now_us: u64) -> bool {
        let before = self.overdue_us.get();
        self.overdue_us.set(before.or(Some(now_us)));
        before.is_some()
    }

    /// Returns how long the request has held its seat since it was given up, in microseconds; `None` if it
    /// was not given up.
    pub(crate) fn overdue_for_us(&self, now_us: u64) -> Option<u64> {
        self.overdue_us.get().map(|since_us| now_us.saturating_sub(since_us))
    }

    /// Returns true, once, if the worker is at fault: the request holds a seat, and its only response is the
    /// error for being overdue.
    pub(crate) fn blames_worker(&self) -> bool {
        (self.overdue_us.get().is_some() || !self.reply.headed()) && !self.blamed.replace(true)
    }

    /// Extends the deadline to `until_us`, in microseconds of the monotonic clock, and returns it. The
    /// deadline is never shortened.
    pub(crate) fn extend(&self, until_us: u64) -> u64 {
        let until_us = until_us.max(self.until_us.get());
        self.until_us.set(until_us);
        until_us
    }

    /// Returns whether the deadline was extended beyond `now_us`.
    pub(crate) fn is_extended(&self, now_us: u64) -> bool {
        now_us < self.until_us.get()
    }

    /// Ends the call: with an error response if none has started, otherwise by breaking off the body.
    pub(crate) fn fail(&self, failure: Failure) {
        if !self.reply.headed() {
            self.reply.on_event(ReplyEvent::Failed(failure.clone()));
        }
        self.reply.on_end(Err(failure));
    }
}
