//! The listeners of one front thread that are not WebSockets: joins them to their streams, and delivers.
//!
//! Contract: joining, and the messages that are missed, are one step under the lock of the streams, so a listener gets each message
//! once: as a missed one, or by delivery.

use super::door::{Claimed, Listening};
use super::local::LocalHub;
use super::{count, now_ms, uncount};
use cable::event_audience::{EventAudiences, EventForm, FormedMessage};
use cable::event_id::StreamSet;
use cable::streams::StreamMessage;
use slab::Slab;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A listener of a thread, as the thread sees it.
pub(super) trait Listener {
    /// Takes a message. Returns whether it will reach the client.
    fn take(&self, message: &FormedMessage) -> bool;

    /// Shows that the server lives, if nothing else has done so for a while.
    fn beat(&self);

    /// Ends the response. The client asks again where it was.
    fn end(&self);
}

/// The listeners of a thread.
#[derive(Default)]
pub(super) struct Listeners {
    all: RefCell<Slab<Rc<dyn Listener>>>,
    audiences: RefCell<EventAudiences<u32>>,
}

/// The streams that a listener has joined. Dropping it leaves them.
pub(super) struct JoinedSet {
    local: Rc<LocalHub>,
    set: Rc<StreamSet>,
    form: EventForm,
    number: u32,
}

/// Messages before a listener has joined, and its place.
pub(super) struct Missed {
    /// The messages in the order in which they were sent, after `from`; `None` if some may be missing.
    pub(super) messages: Option<Vec<Arc<StreamMessage>>>,
    /// The offsets that the client has claimed; those of now if it has claimed none, or has a gap.
    pub(super) from: Vec<u64>,
    /// The offsets of now.
    pub(super) now: Vec<u64>,
}

impl Listeners {
    /// Passes a message to the listeners of its stream. Returns how many it will reach.
    pub(super) fn deliver(&self, message: &Arc<StreamMessage>, epoch: &str) -> u64 {
        let all = self.all.borrow();
        let mut sent = 0;
        self.audiences.borrow_mut().deliver(message, epoch, &mut |number, formed| {
            if let Some(listener) = all.get(number as usize) {
                sent += u64::from(listener.take(formed));
            }
        });
        sent
    }

    /// Shows one part of the listeners that the server lives.
    pub(super) fn beat(&self, turn: usize, turns: usize) {
        let all = self.all.borrow();
        all.iter().filter(|(number, _)| number % turns == turn).for_each(|(_, listener)| listener.beat());
    }

    /// Ends all responses: the server stops.
    pub(super) fn close(&self) {
        let all: Vec<Rc<dyn Listener>> = self.all.borrow().iter().map(|(_, one)| one.clone()).collect();
        all.iter().for_each(|listener| listener.end());
    }
}

impl LocalHub {
    /// Lets a listener join its streams.
    pub(super) fn join(
        self: &Rc<Self>,
        listening: Listening,
        form: EventForm,
        listener: Rc<dyn Listener>,
    ) -> (JoinedSet, Missed) {
        let Listening { set, id, .. } = listening;
        let missed = {
            let mut streams = self.hub.streams();
            let now = now_ms();
            let offsets: Vec<u64> =
                set.names().iter().map(|name| streams.listen(name, self.index, now)).collect();
            let positions = match &id {
                None => None,
                Some(Claimed::Unknown) => Some(None),
                Some(Claimed::Id(id)) => Some(id.positions(&set)),
            };
            let messages = positions.as_ref().map(|positions| {
                let missed = set.names().iter().zip(positions.as_ref()?);
                let missed = missed.map(|(name, position)| streams.resume(name, Some(position), None));
                let mut missed: Vec<_> = missed.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect();
                missed.sort_by_key(|message| message.at);
                Some(missed)
            });
            let from = match (&messages, positions) {
                (Some(Some(_)), Some(Some(positions))) => positions.iter().map(|one| one.offset).collect(),
                _ => offsets.clone(),
            };
            Missed { messages: messages.unwrap_or_else(|| Some(Vec::new())), from, now: offsets }
        };
        self.hub.counts.subscriptions.fetch_add(set.names().len() as u64, Ordering::Relaxed);
        let number = self.listeners.all.borrow_mut().insert(listener) as u32;
        let set = self.listeners.audiences.borrow_mut().join(set, form, number, &missed.now);
        count(self.counter(form));
        (JoinedSet { local: self.clone(), set, form, number }, missed)
    }

    fn counter(&self, form: EventForm) -> &AtomicU64 {
        match form {
            EventForm::Event => &self.hub.counts.event_listeners,
            EventForm::Object => &self.hub.counts.polls,
        }
    }
}

impl JoinedSet {
    pub(super) fn set(&self) -> &StreamSet {
        &self.set
    }
}

impl Drop for JoinedSet {
    fn drop(&mut self) {
        let local = &self.local;
        local.listeners.audiences.borrow_mut().leave(&self.set, self.form, self.number);
        // The slab is borrowed while messages are delivered, and nothing is dropped meanwhile.
        local.listeners.all.borrow_mut().try_remove(self.number as usize);
        let (mut streams, now) = (local.hub.streams(), now_ms());
        self.set.names().iter().for_each(|name| streams.unlisten(name, local.index, now));
        drop(streams);
        local.hub.counts.subscriptions.fetch_sub(self.set.names().len() as u64, Ordering::Relaxed);
        uncount(local.counter(self.form));
    }
}
