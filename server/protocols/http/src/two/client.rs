//! Connects a stream with its handler: the client of an exchange, and the request's body.
//!
//! Contract:
//! 1. The client's window opens again when the handler takes the bytes, not before, so a slow handler slows
//!    its client down.
//! 2. After the end of the stream, the client counts as gone and the rest of the body is [`BodyError::Gone`].

use super::hub::{FILL, Hub, LOOK};
use bytes::{Buf, Bytes, BytesMut};
use handler::held::{Account, Amount, Hold, Holding};
use handler::{BodyError, Client, Departure, Fields, Incoming, IncomingBody};
use http2::StreamId;
use net::TunnelEnd;
use std::cell::{Cell, OnceCell, RefCell};
use std::io::{self, ErrorKind};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use crate::message::Pace;

pub(super) struct StreamClient {
    hub: Weak<Hub>,
    stream: StreamId,
    gone: Cell<bool>,
    /// An informational response may be sent now.
    pub(super) interim_allowed: Cell<bool>,
    /// The task that waits for the client's departure.
    waiting: RefCell<Option<Waker>>,
    /// The request's body, boxed because most requests have none and thousands of streams may be open.
    upload: Option<Box<RefCell<Upload>>>,
    /// The resources that the response holds.
    holding: OnceCell<Rc<Holding>>,
}

#[derive(Default)]
struct Upload {
    held: BytesMut,
    ended: bool,
    error: Option<BodyError>,
    received: u64,
    max: Option<u64>,
    length: Option<u64>,
    /// The client waits for 100 (Continue).
    continue_due: bool,
    /// The bytes are those of a tunnel, not of a body.
    tunnel: bool,
    pace: Pace,
    /// The task that waits for more data, and the time of its next rate check.
    reader: Option<Waker>,
    check_at: Option<Instant>,
}

/// Stores `waker` in `place`, without a needless clone.
fn keep(place: &mut Option<Waker>, waker: &Waker) {
    if place.as_ref().is_none_or(|known| !known.will_wake(waker)) {
        *place = Some(waker.clone());
    }
}

impl StreamClient {
    /// Creates the state of a stream whose request has arrived. `ended`: it has no body. `tunnel`: what
    /// follows is not a body but the bytes of a tunnel, if the handler opens one.
    pub(super) fn new(
        hub: &Rc<Hub>,
        stream: StreamId,
        ended: bool,
        length: Option<u64>,
        continue_due: bool,
        tunnel: bool,
    ) -> Rc<StreamClient> {
        let upload = || {
            let max = hub.shared.settings().limits.max_body.filter(|_| !tunnel);
            Box::new(RefCell::new(Upload { length, continue_due, max, tunnel, ..Upload::default() }))
        };
        Rc::new(StreamClient {
            hub: Rc::downgrade(hub),
            stream,
            gone: Cell::new(false),
            interim_allowed: Cell::new(true),
            waiting: RefCell::default(),
            upload: (!ended).then(upload),
            holding: OnceCell::new(),
        })
    }

    /// Adds received body bytes. `end`: they are the last ones.
    pub(super) fn receive(&self, hub: &Hub, data: &[u8], end: bool) {
        let Some(upload) = &self.upload else { return };
        let mut upload = upload.borrow_mut();
        upload.continue_due = false;
        upload.ended |= end;
        upload.received += data.len() as u64;
        if upload.max.is_some_and(|max| upload.received > max) && upload.error.is_none() {
            upload.error = Some(BodyError::TooLarge);
            hub.release(upload.held.len());
            upload.held = BytesMut::new();
        }
        if upload.error.is_none() {
            hub.hold(data.len());
            upload.held.extend_from_slice(data);
            upload.pace.received(data.len(), || hub.shared.timers.recent());
        }
        upload.check_at = None;
        upload.reader.take().into_iter().for_each(Waker::wake);
    }

    /// Returns whether the client sends its body more slowly than `timeouts.body_min_rate`.
    pub(super) fn is_behind(&self, hub: &Hub) -> bool {
        let (Some(upload), Some(rate)) = (&self.upload, hub.shared.settings().timeouts.body_min_rate) else {
            return false;
        };
        let upload = upload.borrow();
        !upload.ended && !upload.pace.behind(hub.shared.timers.recent(), rate).is_zero()
    }

    /// Returns the body for the handler: its bytes if all of them have arrived, else a reader.
    pub(super) fn incoming(self: &Rc<StreamClient>, hub: &Hub) -> Incoming {
        let Some(upload) = &self.upload else { return Incoming::Empty };
        let mut upload = upload.borrow_mut();
        if upload.tunnel {
            return Incoming::Empty;
        }
        if !upload.ended || upload.error.is_some() {
            drop(upload);
            return Incoming::Arriving(Box::new(Reader(self.clone())));
        }
        if upload.held.is_empty() {
            return Incoming::Empty;
        }
        Incoming::Ready(upload.take(hub, self.stream))
    }

    /// Passes the received bytes on to the far end of a tunnel, whose window opens again as it takes them.
    /// Ready when the client has ended its half and the far end has all bytes.
    ///
    /// # Errors
    /// The far end takes no more bytes.
    pub(super) fn poll_pass_on(
        &self,
        hub: &Hub,
        io: &dyn TunnelEnd,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(upload) = &self.upload else { return Poll::Ready(Ok(())) };
        let mut upload = upload.borrow_mut();
        while !upload.held.is_empty() {
            match io.try_write(&upload.held) {
                Ok(n) => upload.drop_first(n, hub, self.stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if io.poll_writable(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        ready!(io.poll_flush(cx))?;
        if upload.ended {
            return Poll::Ready(Ok(()));
        }
        keep(&mut upload.reader, cx.waker());
        Poll::Pending
    }

    /// Drops the received bytes, because the far end of the tunnel takes no more. Ready when the client has
    /// ended its half.
    pub(super) fn poll_drop(&self, hub: &Hub, cx: &mut Context<'_>) -> Poll<()> {
        let Some(upload) = &self.upload else { return Poll::Ready(()) };
        let mut upload = upload.borrow_mut();
        let len = upload.held.len();
        upload.drop_first(len, hub, self.stream);
        if upload.ended {
            return Poll::Ready(());
        }
        keep(&mut upload.reader, cx.waker());
        Poll::Pending
    }

    /// Takes the bytes that a tunnel has not passed on, of a stream that has ended.
    pub(super) fn take_rest(&self, hub: &Hub) -> Bytes {
        self.upload.as_ref().map_or_else(Bytes::new, |upload| upload.borrow_mut().take(hub, self.stream))
    }

    /// Returns whether the client has ended its half.
    pub(super) fn has_ended(&self) -> bool {
        self.upload.as_ref().is_none_or(|upload| upload.borrow().ended)
    }

    /// Ends the stream: wakes the waiting tasks and drops received data.
    pub(super) fn end(&self, hub: &Hub) {
        self.gone.set(true);
        self.interim_allowed.set(false);
        let reader = self.upload.as_ref().and_then(|upload| {
            let mut upload = upload.borrow_mut();
            hub.release(upload.held.len());
            upload.held = BytesMut::new();
            upload.reader.take()
        });
        reader.into_iter().chain(self.waiting.take()).for_each(Waker::wake);
    }

    /// Returns whether a handler waits for more of the body.
    pub(super) fn is_awaited(&self) -> bool {
        self.upload.as_ref().is_some_and(|upload| {
            let upload = upload.borrow();
            upload.reader.is_some() && !upload.ended
        })
    }

    /// Counts resources of the response until the guard is dropped.
    pub(super) fn hold(&self, amount: Amount) -> Option<Hold> {
        self.holding().map(|holding| holding.hold(amount))
    }

    /// Records response bytes that fit into the client's window.
    #[inline]
    pub(super) fn took(&self, bytes: usize, now: impl FnOnce() -> Instant) {
        if let Some(holding) = self.holding.get() {
            holding.took(bytes, now());
        }
    }

    /// Returns whether the response has to break off.
    pub(super) fn is_displaced(&self) -> bool {
        self.holding.get().is_some_and(|holding| holding.is_displaced())
    }

    /// Wakes the reader if its rate check is due. Returns the time of the next check.
    pub(super) fn check(&self, now: Instant) -> Option<Instant> {
        let mut upload = self.upload.as_ref()?.borrow_mut();
        if upload.check_at.is_some_and(|at| at <= now) {
            upload.check_at = None;
            upload.reader.take().into_iter().for_each(Waker::wake);
        }
        upload.check_at
    }
}

impl Upload {
    /// Removes the first `n` received bytes and opens the client's window again.
    fn drop_first(&mut self, n: usize, hub: &Hub, stream: StreamId) {
        self.held.advance(n);
        if self.held.is_empty() {
            // An idle tunnel keeps no buffer.
            self.held = BytesMut::new();
        }
        hub.release(n);
        hub.engine.borrow_mut().credit(stream, n);
    }

    /// Takes the received data and opens the client's window again.
    fn take(&mut self, hub: &Hub, stream: StreamId) -> Bytes {
        let data = std::mem::take(&mut self.held).freeze();
        hub.release(data.len());
        hub.engine.borrow_mut().credit(stream, data.len());
        hub.touch();
        data
    }
}

impl Client for StreamClient {
    fn poll_departure(&self, cx: &mut Context<'_>) -> Poll<Departure> {
        if self.gone.get() {
            return Poll::Ready(Departure::Gone);
        }
        keep(&mut self.waiting.borrow_mut(), cx.waker());
        Poll::Pending
    }

    fn interim(&self, status: u16, fields: &Fields) {
        if let Some(hub) = self.hub.upgrade()
            && self.interim_allowed.get()
            && (100..200).contains(&status)
            && status != 101
        {
            let mut engine = hub.engine.borrow_mut();
            if engine.output().len() >= FILL {
                // The client does not read the earlier output, so it misses nothing.
                return;
            }
            engine.interim(self.stream, status, fields);
            drop(engine);
            hub.touch();
        }
    }

    fn holding(&self) -> Option<Rc<Holding>> {
        let hub = self.hub.upgrade().filter(|_| !self.gone.get())?;
        let made = self.holding.get_or_init(|| {
            let account = hub.account();
            let hub = self.hub.clone();
            let wake = move || {
                if let Some(hub) = hub.upgrade() {
                    hub.displaced.set(true);
                    hub.touch();
                }
            };
            let (hub, stream) = (self.hub.clone(), self.stream);
            let acknowledged = move || {
                let hub = hub.upgrade()?;
                // A closed window is the client's own choice.
                let open = hub.engine.try_borrow().is_ok_and(|engine| engine.room(stream) > 0);
                open.then(|| hub.acknowledged.get())
            };
            Holding::new(account, wake, acknowledged)
        });
        Some(made.clone())
    }

    fn account(&self) -> Option<Rc<Account>> {
        self.hub.upgrade()?.account.get().cloned()
    }

    fn open_account(&self) -> Option<Rc<Account>> {
        Some(self.hub.upgrade()?.account())
    }
}

/// The request body that a handler reads.
struct Reader(Rc<StreamClient>);

impl IncomingBody for Reader {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let client = &self.0;
        let Some(upload) = &client.upload else { return Poll::Ready(None) };
        let mut upload = upload.borrow_mut();
        if let Some(error) = &upload.error {
            return Poll::Ready(Some(Err(error.clone())));
        }
        let Some(hub) = client.hub.upgrade().filter(|_| !client.gone.get()) else {
            return Poll::Ready(Some(Err(BodyError::Gone)));
        };
        if !upload.held.is_empty() {
            return Poll::Ready(Some(Ok(upload.take(&hub, client.stream))));
        }
        if upload.ended {
            return Poll::Ready(None);
        }
        if std::mem::take(&mut upload.continue_due) && client.interim_allowed.get() {
            hub.engine.borrow_mut().interim(client.stream, 100, &Fields::default());
            hub.touch();
        }
        let timeouts = &hub.shared.settings().timeouts;
        if let Some(rate) = timeouts.body_min_rate {
            match upload.pace.check(hub.shared.timers.now(), rate, timeouts.body_grace) {
                Ok(at) => {
                    upload.check_at = Some(at);
                    hub.check_at(at);
                }
                Err(error) => {
                    upload.error = Some(error.clone());
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        keep(&mut upload.reader, cx.waker());
        // This may be the last of the connection's requests to wait for the client.
        hub.check_at(hub.shared.timers.recent() + LOOK);
        Poll::Pending
    }

    fn length(&self) -> Option<u64> {
        self.0.upload.as_ref()?.borrow().length
    }
}
