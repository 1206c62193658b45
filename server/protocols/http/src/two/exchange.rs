//! Runs the exchanges of a connection, from a request to the end of its stream.

use super::body::{Pieces, Pull, Source};
use super::client::StreamClient;
use super::connection::Conn;
use super::file::FileReader;
use super::hub::FILL;
use super::slot::{Expected, StreamSlot, StreamState};
use super::tunnel::Tunnel;
use crate::message::{self, COUNTED, ExchangeRecord, Framed, READ_BELOW, Sent, append_file, inadmissible};
use crate::opening::OpeningHandshake;
use fieldcode::RequestHead;
use h1::Expect;
use handler::held::Amount;
use handler::{After, Body, Exchange, Failure, Handler, Lent, Response, Trace, Version};
use http2::{ErrorCode, StreamId};
use net::Transport;
use net::task::spawn_local;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// Bodies up to this size follow their head at once, regardless of priorities.
const SMALL: usize = 16 << 10;

/// The most bytes of a body that are sent before the most urgent body is chosen again.
const PIECE: usize = 64 << 10;

impl<S: Transport, H: Handler + 'static> Conn<S, H> {
    /// Adds a request. It is served after everything that arrived with it has been read.
    pub(super) fn arrive(
        &mut self,
        id: StreamId,
        head: Result<(RequestHead, bool), Failure>,
        arrived: Instant,
    ) {
        let place = id.place() as usize;
        if self.slots.len() <= place {
            self.slots.resize_with(place + 1, || None);
        }
        let (client, request, expected) = match head {
            Ok((head, end)) => {
                let (length, expect) = (head.content_length.filter(|_| !end), head.expect);
                let waits = expect == Expect::Continue;
                let client = StreamClient::new(&self.hub, id, end, length, waits, head.websocket);
                let shared = &self.hub.shared;
                let request = Box::new(message::request(head, Version::Http2, &self.peer, shared, arrived));
                self.served += 1;
                (client, Some(request), Ok(Expected { length, expect }))
            }
            Err(failure) => (StreamClient::new(&self.hub, id, true, None, false, false), None, Err(failure)),
        };
        let is_head = request.as_ref().is_some_and(|request| request.method() == b"HEAD");
        let outcome =
            ExchangeRecord { trace: Rc::default(), request, started: arrived, sent: Sent::nothing() };
        self.slots[place] =
            Some(StreamSlot { id, client, outcome, is_head, state: StreamState::New(expected) });
        self.fresh.push(id);
        self.enter();
    }

    /// Passes on a received part of a body.
    pub(super) fn data(&mut self, id: StreamId, data: &[u8], end: bool) {
        if let Some(slot) = self.slot(id) {
            let client = slot.client.clone();
            // The client's end is the last of the stream, whose place is free now.
            let over = end && slot.is_closed_tunnel();
            client.receive(&self.hub, data, end);
            // A client that sends a byte now and then does not keep its place by that.
            if !client.is_behind(&self.hub) {
                self.moved();
            }
            if over {
                let slot = self.remove(id);
                self.departed.extend(slot);
            }
        }
    }

    fn slot(&mut self, id: StreamId) -> Option<&mut StreamSlot> {
        self.slots.get_mut(id.place() as usize)?.as_mut().filter(|slot| slot.id == id)
    }

    pub(super) fn remove(&mut self, id: StreamId) -> Option<StreamSlot> {
        let place = self.slots.get_mut(id.place() as usize)?;
        let slot = place.take_if(|slot| slot.id == id)?;
        self.leave(&slot);
        Some(slot)
    }

    /// Hands a request to its handler, or refuses it.
    pub(super) fn start(&mut self, id: StreamId) {
        let hub = self.hub.clone();
        let context = self.context.clone();
        let settings = hub.shared.settings();
        let limits = &settings.limits;
        if limits.max_requests_per_connection.is_some_and(|max| max > 0 && self.served >= max) {
            hub.engine.borrow_mut().drain(hub.shared.timers.recent());
        }
        let refusal = self.refusal.as_deref().cloned();
        // Without a slot, the stream was reset in the same turn.
        let Some(slot) = self.slot(id) else { return };
        let StreamState::New(expected) = &mut slot.state else { return };
        let refused = match expected {
            Ok(_) if refusal.is_some() => refusal,
            Ok(Expected { length, expect }) => inadmissible(*expect, *length, limits.max_body),
            Err(failure) => Some(failure.clone()),
        };
        if let Some(failure) = refused {
            return self.respond(id, failure.into_response());
        }
        let Some(request) = slot.outcome.request.take() else { return };
        let trace: Rc<Trace> = slot.outcome.trace.clone();
        let opening = OpeningHandshake::of(&request).map(|opening| (opening, slot.client.clone()));
        let exchange = Exchange {
            request: Lent::new(request, trace.clone()),
            incoming: slot.client.incoming(&hub),
            client: slot.client.clone(),
            trace,
        };
        slot.state = StreamState::Handling(match opening {
            None => Box::pin(async move { context.handler.handle(exchange).await }),
            Some((opening, client)) => Box::pin(async move {
                let response = context.handler.handle(exchange).await;
                opening.finish(response, &*client).await
            }),
        });
        self.poll_slot(id.place());
    }

    /// Polls a stream that was woken.
    pub(super) fn poll_slot(&mut self, place: u32) {
        let Some(Some(slot)) = self.slots.get_mut(place as usize) else { return };
        let id = slot.id;
        let mut cx = Context::from_waker(self.places.waker(place, &self.hub.ready));
        match &mut slot.state {
            StreamState::New(_) => {}
            StreamState::Handling(future) => {
                match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut cx))) {
                    Ok(Poll::Pending) => {}
                    Ok(Poll::Ready(response)) => self.respond(id, response),
                    // As in HTTP/1's report: nothing was sent.
                    Err(_) => self.abandon(id, None),
                }
            }
            StreamState::Sending(_) => self.advance(id),
        }
    }

    /// Sends the head of a response, and its body if that is small.
    fn respond(&mut self, id: StreamId, response: Response) {
        let hub = self.hub.clone();
        let Some(slot) = self.slot(id) else { return };
        slot.client.interim_allowed.set(false);
        let sent = &mut slot.outcome.sent;
        let now = hub.shared.wall(hub.shared.timers.recent());
        let date = hub.shared.date.at(now);
        if let Body::Kept(kept) = &response.body
            && !slot.is_head
            && hub.engine.borrow_mut().kept(id, response.status, &response.fields, kept, &date)
        {
            *sent = Sent { status: response.status, body_bytes: kept.body().len() as u64, ..Sent::default() };
            return self.finish(id);
        }
        let Framed { response, length, has_body } = Framed::new(response, Version::Http2, slot.is_head, sent);
        let mut engine = hub.engine.borrow_mut();
        if response.after == After::EndConnection {
            engine.drain(hub.shared.timers.recent());
        }
        if !engine.head(id, response.status, &response.fields, &date, length, !has_body) {
            sent.broken = true;
            drop(engine);
            return self.finish(id);
        }
        if !has_body {
            drop(engine);
            return self.finish(id);
        }
        let has_room = engine.output().len() < FILL;
        let source = match response.body {
            Body::Empty => Source::bytes(bytes::Bytes::new()),
            Body::Tunnel { io, .. } => {
                sent.hijacked = true;
                Source::Tunnel(Tunnel::new(io))
            }
            Body::Bytes(bytes) => {
                let waits = bytes.len() >= COUNTED && engine.room(id) < bytes.len();
                let hold = waits.then(|| slot.client.hold(Amount::of_memory(bytes.len() as u64)));
                Source::Bytes(bytes, hold.flatten())
            }
            Body::Kept(kept) => Source::bytes(kept.body().clone()),
            Body::File(region) if region.len <= READ_BELOW && engine.room(id) as u64 >= region.len => {
                let mut read = 0;
                let count = engine.data_with(id, region.len as usize, |text, _| {
                    read = append_file(text, &region);
                    read == region.len
                });
                sent.body_bytes = count as u64;
                drop(engine);
                // If fewer bytes were read, the file has become shorter.
                return if read == region.len { self.finish(id) } else { self.abandon(id, None) };
            }
            Body::File(region) => {
                // The client does not take the whole file now.
                let waits = (engine.room(id) as u64) < region.len && region.file.hold().is_none();
                let hold = if waits { slot.client.hold(Amount::FILE) } else { None };
                Source::File(Box::new(FileReader::new(region, hold)))
            }
            Body::Stream(stream) => Source::Stream(Pieces::new(stream, length)),
        };
        let source = match source {
            Source::Bytes(bytes, hold) if bytes.len() <= SMALL && has_room => {
                let len = bytes.len();
                let rest = engine.data(id, bytes, true);
                sent.body_bytes = (len - rest.len()) as u64;
                if rest.is_empty() {
                    drop(engine);
                    return self.finish(id);
                }
                Source::Bytes(rest, hold)
            }
            other => other,
        };
        slot.state = StreamState::Sending(source);
        let is_tunnel = slot.is_tunnel();
        drop(engine);
        if is_tunnel {
            self.tunnels += 1;
            self.count_tunnel();
        }
        self.advance(id);
    }

    /// Prepares the next part of a response.
    fn advance(&mut self, id: StreamId) {
        let place = id.place();
        let Some(Some(slot)) = self.slots.get_mut(place as usize) else { return };
        let StreamState::Sending(source) = &mut slot.state else { return };
        let mut cx = Context::from_waker(self.places.waker(place, &self.hub.ready));
        let room = self.hub.engine.borrow().room(id);
        let status = slot.outcome.sent.status;
        let hub = &self.hub;
        let mut pull =
            || catch_unwind(AssertUnwindSafe(|| source.pull(&mut cx, room, status, &slot.client, hub)));
        let mut pulled = pull();
        if let Ok(Pull::EndStream) = pulled {
            let _ = hub.engine.borrow_mut().data(id, bytes::Bytes::new(), true);
            pulled = pull();
        }
        match pulled {
            // Both halves have ended, so the stream's place is free. The far end has not taken the client's last bytes.
            Ok(Pull::Waiting | Pull::EndStream) if source.is_closed_tunnel() && slot.client.has_ended() => {
                let slot = self.remove(id);
                slot.into_iter().for_each(|slot| self.complete(slot));
            }
            Ok(Pull::EndStream) => {}
            Ok(Pull::Cancelled) => self.abandon_with(id, ErrorCode::CANCEL, None),
            Ok(Pull::Waiting) => {}
            Ok(Pull::Ready) => self.hub.engine.borrow_mut().ready(id),
            Ok(Pull::Ended) => {
                if !source.is_closed() {
                    let _ = self.hub.engine.borrow_mut().data(id, bytes::Bytes::new(), true);
                }
                self.finish(id);
            }
            Ok(Pull::Broken(failure)) => self.abandon(id, failure),
            Err(_) => self.abandon(id, None),
        }
    }

    /// Sends a piece of the most urgent sendable body. Returns `false` if there is none.
    pub(super) fn send_next(&mut self) -> bool {
        let hub = self.hub.clone();
        let mut engine = hub.engine.borrow_mut();
        let Some((id, most)) = engine.next_sender() else { return false };
        let Some(slot) = self.slot(id) else { return true };
        let StreamState::Sending(source) = &mut slot.state else { return true };
        let sent = source.send(&mut engine, id, most.min(PIECE), &hub.shared);
        drop(engine);
        match sent {
            Some(n) => {
                slot.client.took(n, || hub.shared.timers.recent());
                slot.outcome.sent.body_bytes += n as u64;
                self.advance(id);
            }
            None => self.abandon(id, None),
        }
        true
    }

    /// Ends a stream whose whole response has been handed to the engine.
    fn finish(&mut self, id: StreamId) {
        // The rest of the request is not needed.
        self.hub.engine.borrow_mut().discard(id, self.hub.shared.timers.recent());
        let Some(slot) = self.remove(id) else { return };
        let StreamSlot { client, outcome, state, .. } = slot;
        client.end(&self.hub);
        drop(state);
        let position = self.position();
        self.done.push_back((position, outcome));
    }

    /// Breaks a response off.
    fn abandon(&mut self, id: StreamId, failure: Option<Failure>) {
        self.abandon_with(id, ErrorCode::INTERNAL_ERROR, failure);
    }

    fn abandon_with(&mut self, id: StreamId, code: ErrorCode, failure: Option<Failure>) {
        self.hub.engine.borrow_mut().reset(id, code);
        let Some(mut slot) = self.remove(id) else { return };
        failure.into_iter().for_each(|failure| slot.outcome.sent.fail(failure));
        let outcome = slot.cut_off(&self.hub);
        let position = self.position();
        self.done.push_back((position, outcome));
    }

    /// Breaks off the responses whose resources are needed for others.
    pub(super) fn displace(&mut self) {
        let displaced =
            |slot: &StreamSlot| slot.client.is_displaced().then_some((slot.id, slot.outcome.sent.status));
        let ended: Vec<_> = self.slots.iter().flatten().filter_map(displaced).collect();
        for (id, status) in ended {
            self.abandon_with(id, ErrorCode::CANCEL, Some(message::displaced(status)));
        }
    }

    /// Ends a stream that the client reset or left. Polls the handler a last time, so that it can report how
    /// the exchange ended.
    pub(super) fn depart(&mut self, mut slot: StreamSlot) {
        if slot.is_closed_tunnel() && slot.client.has_ended() {
            return self.complete(slot);
        }
        slot.client.end(&self.hub);
        if let StreamState::Handling(future) = &mut slot.state {
            let mut cx = Context::from_waker(Waker::noop());
            let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut cx)));
            if let Ok(Poll::Ready(mut response)) = polled {
                slot.outcome.sent.status = response.status;
                slot.outcome.sent.failure = response.failure.take();
            }
        }
        let outcome = slot.cut_off(&self.hub);
        let position = self.position();
        self.done.push_back((position, outcome));
    }

    /// Completes a tunnel of which both halves have ended, but the far end has not taken all of the client's bytes.
    fn complete(&mut self, slot: StreamSlot) {
        let StreamSlot { client, outcome, state, .. } = slot;
        let rest = client.take_rest(&self.hub);
        client.end(&self.hub);
        if let StreamState::Sending(Source::Tunnel(tunnel)) = state {
            // Most tunnels have no rest, and the task ends at once.
            spawn_local(tunnel.finish(rest));
        }
        let position = self.position();
        self.done.push_back((position, outcome));
    }

    /// Ends all streams.
    pub(super) fn depart_all(&mut self) {
        for place in 0..self.slots.len() {
            let slot = self.slots.get_mut(place).and_then(Option::take);
            if let Some(slot) = slot {
                self.leave(&slot);
                self.depart(slot);
            }
        }
        for slot in std::mem::take(&mut self.departed) {
            self.depart(slot);
        }
    }
}
