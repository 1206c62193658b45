//! Long polling: a request that waits for the messages of its streams, for clients without Server-Sent Events.
//!
//! Contract:
//! 1. The response is JSON: `position`, the id for the next request; `messages`, each with its stream, offset and data; and `reset`,
//!    which is true if some messages are no longer kept, so the client should load its contents again.
//! 2. A request without an id is answered at once, with a position. One with an id is answered at once if there are messages after it, and
//!    else with the first, or after `hub.poll`.
//! 3. At the end of the server, waiting requests are answered with what they have.

use super::count;
use super::door;
use super::joining::Listening;
use super::listeners::Listener;
use super::local::LocalHub;
use bytes::Bytes;
use cable::event;
use cable::event_audience::EventForm;
use cable::event_id::EventId;
use cable::queue::ClientQueue;
use handler::{Exchange, Failure, Response};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Responds when there is something to say.
pub(super) async fn respond(
    local: &Rc<LocalHub>,
    exchange: Exchange,
    listening: Listening,
    is_head: bool,
) -> Response {
    let client = exchange.client.clone();
    // The trace gets the request now.
    drop(exchange);
    let asks = listening.id.is_some();
    let waiting = Rc::new(WaitingPoll::default());
    let (joined, missed) = local.join(listening, EventForm::Object, waiting.clone());
    let now = EventId::text(&missed.epoch, joined.set(), &missed.now);
    let objects = missed
        .messages
        .map(|messages| messages.iter().map(|message| event::object(message)).collect::<Vec<Bytes>>());
    let objects = objects.filter(|objects| ClientQueue::cost(objects) <= local.hub.client_queue);
    if asks {
        count(if objects.is_some() { &local.hub.counts.resumed } else { &local.hub.counts.gaps });
    }
    let Some(objects) = objects else { return answer(&now, &[], true) };
    if !asks || is_head || !objects.is_empty() || local.closing.get() {
        return answer(&now, &objects, false);
    }
    let told = poll_fn(|cx| {
        if waiting.is_over() {
            return Poll::Ready(true);
        }
        *waiting.waker.borrow_mut() = Some(cx.waker().clone());
        // Browsers close the whole connection, so a client that closes its side has gone.
        client.poll_departure(cx).map(|_| false)
    });
    match tokio::time::timeout(local.hub.poll, told).await {
        Ok(false) => Failure::client_gone("the client has gone while its poll was waiting").into_response(),
        Ok(true) | Err(_) => {
            // Messages that were published together are answered together.
            tokio::task::yield_now().await;
            let (objects, id) = waiting.taken();
            answer(id.as_deref().unwrap_or(&now), &objects, false)
        }
    }
}

fn answer(position: &str, objects: &[Bytes], reset: bool) -> Response {
    let mut text = format!("{{\"position\":\"{position}\",\"reset\":{reset},\"messages\":[");
    for (at, object) in objects.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        text.push_str(&String::from_utf8_lossy(object));
    }
    text.push_str("]}\n");
    door::json(text)
}

/// A poll that waits.
#[derive(Default)]
struct WaitingPoll {
    objects: RefCell<Vec<Bytes>>,
    /// The id after the last message.
    id: RefCell<Option<Rc<str>>>,
    waker: RefCell<Option<Waker>>,
    ended: Cell<bool>,
}

impl WaitingPoll {
    fn is_over(&self) -> bool {
        self.ended.get() || !self.objects.borrow().is_empty()
    }

    fn taken(&self) -> (Vec<Bytes>, Option<Rc<str>>) {
        (self.objects.take(), self.id.take())
    }

    fn wake(&self) {
        self.waker.take().into_iter().for_each(Waker::wake);
    }
}

impl Listener for WaitingPoll {
    fn take(&self, object: &Bytes, id: &Rc<str>) -> bool {
        self.objects.borrow_mut().push(object.clone());
        *self.id.borrow_mut() = Some(id.clone());
        self.wake();
        true
    }

    fn beat(&self) {}

    fn end(&self) {
        self.ended.set(true);
        self.wake();
    }
}
