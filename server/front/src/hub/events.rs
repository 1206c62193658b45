//! Server-Sent Events: a response that gets the messages of its streams, over all versions of HTTP.
//!
//! Contract:
//! 1. The body begins with its place, so a client that is cut off at once resumes as well. Each event has the id after it.
//! 2. A client whose queue is full gets no further event; its response ends, and it comes again with the id of the last one. After a gap
//!    an event `reset` says so.
//! 3. A quiet response gets a comment each [`QUIET`] beats.

use super::joining::{JoinedSet, Listening};
use super::listeners::Listener;
use super::local::LocalHub;
use super::{SharedHub, count};
use bytes::Bytes;
use cable::event;
use cable::event_audience::{EventForm, formed};
use cable::event_id::EventId;
use cable::queue::ClientQueue;
use cable::streams::StreamMessage;
use handler::{Body, BodyStream, Chunk, Failure, Fields, Response};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Milliseconds until clients connect again; each adds up to as many, so that not all come at once.
const RETRY: u64 = 1_000;
/// Beats of three seconds without anything to send.
const QUIET: u8 = 5;

/// Returns the time until a client connects again, in milliseconds.
pub(super) fn retry() -> u64 {
    RETRY + fastrand::u64(..RETRY)
}

/// Returns a response with events.
pub(super) fn head(body: Body) -> Response {
    let mut fields = Fields::default();
    fields.push(b"Content-Type", b"text/event-stream");
    fields.push(b"Cache-Control", b"no-store");
    // nginx in front would gather events.
    fields.push(b"X-Accel-Buffering", b"no");
    // A coding would hold a buffer for each client.
    Response { negotiated: true, ..Response::new(200, fields, body) }
}

/// Begins to listen, and returns the body.
pub(super) fn listen(local: &Rc<LocalHub>, listening: Listening) -> EventBody<JoinedSet> {
    let (asks, refreshes) = (listening.id.is_some(), listening.refreshes);
    let listener = EventListener::new(&local.hub);
    let (joined, mut missed) = local.join(listening, EventForm::Event, listener.clone());
    let (epoch, set) = (missed.epoch.clone(), joined.set());
    let write = |offsets: &mut Vec<u64>, messages: Vec<Arc<StreamMessage>>| -> Vec<Bytes> {
        let message = |message: Arc<StreamMessage>| {
            offsets[set.place(&message.stream)?] = message.offset;
            Some(formed(&message, EventForm::Event, &EventId::text(&epoch, set, offsets)))
        };
        messages.into_iter().filter_map(message).collect()
    };
    let first = event::resuming(retry(), &EventId::text(&epoch, set, &missed.from));
    let frames = missed.messages.take().map(|messages| write(&mut missed.from, messages));
    // More than fits into the queue counts as lost, because the client would be closed as one that reads too slowly.
    let frames = frames.filter(|frames| ClientQueue::cost(frames) <= local.hub.client_queue / 2);
    if asks {
        count(if frames.is_some() { &local.hub.counts.resumed } else { &local.hub.counts.gaps });
    }
    match frames {
        Some(frames) => {
            listener.put(first);
            frames.into_iter().for_each(|frame| listener.put(frame));
        }
        None => {
            let id = EventId::text(&epoch, set, &missed.now);
            listener.put(event::resuming(retry(), &id));
            listener.put(event::reset(&id));
            if refreshes {
                listener.put(event::event(&id, None, event::TURBO_REFRESH));
            }
        }
    }
    EventBody::new(listener, joined)
}

/// A client that listens.
pub(super) struct EventListener {
    hub: Arc<SharedHub>,
    flow: RefCell<EventFlow>,
    /// Beats since something was sent.
    quiet: Cell<u8>,
}

#[derive(Default)]
struct EventFlow {
    queue: ClientQueue,
    reader: Option<Waker>,
    ended: bool,
}

impl EventFlow {
    fn wake(&mut self) {
        self.reader.take().into_iter().for_each(Waker::wake);
    }
}

impl EventListener {
    pub(super) fn new(hub: &Arc<SharedHub>) -> Rc<EventListener> {
        Rc::new(EventListener { hub: hub.clone(), flow: RefCell::default(), quiet: Cell::new(0) })
    }

    /// Puts bytes into the queue before the body begins.
    pub(super) fn put(&self, bytes: Bytes) {
        self.flow.borrow_mut().queue.push_last(bytes);
    }

    /// Ends the body behind the events that wait.
    pub(super) fn finish(&self) {
        let mut flow = self.flow.borrow_mut();
        flow.ended = true;
        flow.wake();
    }
}

impl Listener for EventListener {
    fn take(&self, event: &Bytes, _: &Rc<str>) -> bool {
        let mut flow = self.flow.borrow_mut();
        if flow.ended {
            return false;
        }
        self.quiet.set(0);
        let fits = flow.queue.push(event.clone(), self.hub.client_queue);
        if !fits {
            flow.queue.drop_waiting();
            flow.ended = true;
            count(&self.hub.counts.slow);
        }
        flow.wake();
        fits
    }

    fn beat(&self) {
        let beats = self.quiet.get() + 1;
        self.quiet.set(beats % QUIET);
        let mut flow = self.flow.borrow_mut();
        if beats == QUIET && !flow.ended && flow.queue.is_empty() {
            flow.queue.push_last(Bytes::from_static(event::PING.as_bytes()));
            flow.wake();
        }
    }

    fn end(&self) {
        self.finish();
    }
}

/// The body of a response with events. Dropping it is the end of the listener.
pub(super) struct EventBody<J> {
    listener: Rc<EventListener>,
    _joined: J,
}

impl<J> EventBody<J> {
    /// `joined` leaves the streams when it is dropped.
    pub(super) fn new(listener: Rc<EventListener>, joined: J) -> EventBody<J> {
        EventBody { listener, _joined: joined }
    }
}

impl<J> BodyStream for EventBody<J> {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        let mut flow = self.listener.flow.borrow_mut();
        if let Some(frame) = flow.queue.pop() {
            return Poll::Ready(Some(Ok(Chunk::Bytes(frame))));
        }
        if flow.ended {
            return Poll::Ready(None);
        }
        flow.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn half_closed(&mut self) {
        // Browsers close the whole connection, so the client has gone.
        self.listener.finish();
    }
}

/// The body of the response to a HEAD request, whose length is not known.
pub(super) struct NoEvents;

impl BodyStream for NoEvents {
    fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        Poll::Ready(None)
    }
}
