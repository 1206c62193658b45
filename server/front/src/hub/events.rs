//! Server-Sent Events: a response that gets the messages of its streams, over all versions of HTTP.
//!
//! Contract:
//! 1. The body begins with its place, so a client that is cut off at once resumes as well. Each event has the id after it.
//! 2. A client whose queue is full gets no further event; its response ends, and it comes again with the id of the last one. After a gap
//!    an event `reset` says so.
//! 3. A quiet response gets a comment each [`QUIET`] beats.

use super::door::Listening;
use super::listeners::{JoinedSet, Listener};
use super::local::LocalHub;
use super::{SharedHub, count};
use bytes::Bytes;
use cable::event;
use cable::event_audience::{EventForm, FormedMessage, formed};
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
pub(super) fn listen(local: &Rc<LocalHub>, listening: Listening) -> EventBody {
    let (asks, refreshes) = (listening.id.is_some(), listening.refreshes);
    let listener =
        Rc::new(EventListener { hub: local.hub.clone(), flow: RefCell::default(), quiet: Cell::new(0) });
    let (joined, mut missed) = local.join(listening, EventForm::Event, listener.clone());
    let (epoch, set) = (&*local.hub.epoch, joined.set());
    let write = |offsets: &mut Vec<u64>, messages: Vec<Arc<StreamMessage>>| -> Vec<Bytes> {
        let message = |message: Arc<StreamMessage>| {
            offsets[set.place(&message.stream)?] = message.offset;
            Some(formed(&message, EventForm::Event, &EventId::text(epoch, set, offsets)))
        };
        messages.into_iter().filter_map(message).collect()
    };
    let first = event::opening(retry(), &EventId::text(epoch, set, &missed.from));
    let frames = missed.messages.take().map(|messages| write(&mut missed.from, messages));
    // More than fits into the queue counts as lost, because the client would be closed as one that reads too slowly.
    let frames = frames.filter(|frames| ClientQueue::cost(frames) <= local.hub.client_queue / 2);
    if asks {
        count(if frames.is_some() { &local.hub.counts.resumed } else { &local.hub.counts.gaps });
    }
    let mut flow = listener.flow.borrow_mut();
    match frames {
        Some(frames) => {
            flow.queue.push_last(first);
            frames.into_iter().for_each(|frame| flow.queue.push_last(frame));
        }
        None => {
            let id = EventId::text(epoch, set, &missed.now);
            flow.queue.push_last(event::opening(retry(), &id));
            flow.queue.push_last(event::reset(&id));
            if refreshes {
                flow.queue.push_last(event::event(&id, None, event::TURBO_REFRESH));
            }
        }
    }
    drop(flow);
    EventBody { listener, _joined: joined }
}

/// A client that listens.
struct EventListener {
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

impl Listener for EventListener {
    fn take(&self, message: &FormedMessage) -> bool {
        let mut flow = self.flow.borrow_mut();
        if flow.ended {
            return false;
        }
        self.quiet.set(0);
        let fits = flow.queue.push(message.bytes.clone(), self.hub.client_queue);
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
        let mut flow = self.flow.borrow_mut();
        flow.ended = true;
        flow.wake();
    }
}

/// The body of a response with events. Dropping it is the end of the listener.
pub(super) struct EventBody {
    listener: Rc<EventListener>,
    _joined: JoinedSet,
}

impl BodyStream for EventBody {
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
        self.listener.end();
    }
}

/// The body of the response to a HEAD request, whose length is not known.
pub(super) struct NoEvents;

impl BodyStream for NoEvents {
    fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        Poll::Ready(None)
    }
}
