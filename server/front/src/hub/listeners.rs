//! The listeners of one front thread that are not WebSockets, and the delivery to them.
//!
//! Contract: nothing is joined or left while a message is delivered: a listener that takes one only wakes its task.

use bytes::Bytes;
use cable::event_audience::{EventAudiences, EventForm};
use cable::event_id::StreamSet;
use cable::mercure::{MercureAudience, MercureSubscriber, MercureUpdate};
use cable::streams::StreamMessage;
use slab::Slab;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// A listener of a thread, as the thread sees it.
pub(super) trait Listener {
    /// Takes a message in its form, and the id after it. Returns whether it will reach the client.
    fn take(&self, message: &Bytes, id: &Rc<str>) -> bool;

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
    updates: RefCell<MercureAudience<u32>>,
}

impl Listeners {
    /// Passes a message to the listeners of its stream. Returns how many it will reach.
    pub(super) fn deliver(&self, message: &Arc<StreamMessage>) -> u64 {
        let all = self.all.borrow();
        let mut sent = 0;
        self.audiences.borrow_mut().deliver(message, &mut |number, formed| {
            if let Some(listener) = all.get(number as usize) {
                sent += u64::from(listener.take(&formed.bytes, &formed.id));
            }
        });
        if let Some(update) = MercureUpdate::of_message(message) {
            let none: Rc<str> = "".into();
            self.updates.borrow().deliver(&update, message.offset, &mut |number, event| {
                if let Some(listener) = all.get(number as usize) {
                    sent += u64::from(listener.take(event, &none));
                }
            });
        }
        sent
    }

    /// Adds a listener of streams, which gets the messages after these offsets. Returns the set that it shares with others, and its number.
    pub(super) fn join(
        &self,
        set: StreamSet,
        form: EventForm,
        listener: Rc<dyn Listener>,
        offsets: &[u64],
    ) -> (Rc<StreamSet>, u32) {
        let number = self.all.borrow_mut().insert(listener) as u32;
        (self.audiences.borrow_mut().join(set, form, number, offsets), number)
    }

    /// Undoes [`Listeners::join`].
    pub(super) fn leave(&self, set: &Rc<StreamSet>, form: EventForm, number: u32) {
        self.audiences.borrow_mut().leave(set, form, number);
        self.all.borrow_mut().try_remove(number as usize);
    }

    /// Adds a subscriber of Mercure. Returns its number.
    pub(super) fn subscribe(&self, listener: Rc<dyn Listener>, subscriber: MercureSubscriber) -> u32 {
        let number = self.all.borrow_mut().insert(listener) as u32;
        self.updates.borrow_mut().join(number, subscriber);
        number
    }

    /// Undoes [`Listeners::subscribe`].
    pub(super) fn unsubscribe(&self, number: u32) {
        self.updates.borrow_mut().leave(number);
        self.all.borrow_mut().try_remove(number as usize);
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
