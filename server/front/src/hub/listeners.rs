//! The listeners of one front thread that are not WebSockets, and the delivery to them.
//!
//! Contract:
//! 1. A message goes to some listeners at a time, those of one connection together, so that its streams write together. Between two turns others are
//!    served.
//! 2. Listeners may leave and others may join between two turns. A new listener with the number of an old one does not get the messages of that one.

use bytes::Bytes;
use cable::event_audience::{EventAudiences, EventForm, FormedMessage};
use cable::event_id::StreamSet;
use cable::mercure::{MercureAudience, MercureSubscriber, MercureUpdate};
use cable::streams::StreamMessage;
use handler::Request;
use slab::Slab;
use std::cell::{Cell, RefCell};
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

/// A connection, among those of a thread. Another one may have the same key, which only costs time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ConnectionKey(u32);

impl ConnectionKey {
    pub(super) fn of(request: &Request) -> ConnectionKey {
        // All requests of a connection share it.
        ConnectionKey((Rc::as_ptr(&request.peer).addr() >> 4) as u32)
    }
}

/// A listener with its connection, and the number of listeners before it, which begins again after four billions.
struct KnownListener {
    begun: u32,
    connection: ConnectionKey,
    listener: Rc<dyn Listener>,
}

/// The listeners of a thread.
#[derive(Default)]
pub(super) struct Listeners {
    all: RefCell<Slab<KnownListener>>,
    begun: Cell<u32>,
    audiences: RefCell<EventAudiences<u32>>,
    updates: RefCell<MercureAudience<u32>>,
}

/// A message on its way to the listeners of a thread.
pub(super) struct EventDelivery {
    /// Each form of the message, and the listeners that are still to get it, from the last to the first.
    parts: Vec<(FormedMessage, Vec<(ConnectionKey, u32)>)>,
    /// Listeners from this one on have come later.
    end: u32,
}

impl EventDelivery {
    pub(super) fn is_over(&self) -> bool {
        self.parts.is_empty()
    }

    fn add(&mut self, listener: (ConnectionKey, u32), bytes: &Bytes, id: &Rc<str>) {
        match self.parts.last_mut() {
            Some((formed, listeners)) if Rc::ptr_eq(&formed.id, id) => listeners.push(listener),
            _ => self.parts.push((FormedMessage { bytes: bytes.clone(), id: id.clone() }, vec![listener])),
        }
    }
}

impl Listeners {
    /// Begins to deliver a message to the listeners of its stream.
    pub(super) fn begin(&self, message: &Arc<StreamMessage>) -> EventDelivery {
        let mut delivery = EventDelivery { parts: Vec::new(), end: self.begun.get() };
        let all = self.all.borrow();
        let known = |number: u32| all.get(number as usize).map(|one| (one.connection, number));
        self.audiences.borrow_mut().deliver(message, &mut |number, formed| {
            known(number).into_iter().for_each(|listener| delivery.add(listener, &formed.bytes, &formed.id));
        });
        if let Some(update) = MercureUpdate::of_message(message) {
            let none: Rc<str> = "".into();
            self.updates.borrow().deliver(&update, message.offset, &mut |number, event| {
                known(number).into_iter().for_each(|listener| delivery.add(listener, event, &none));
            });
        }
        delivery.parts.iter_mut().for_each(|(_, listeners)| listeners.sort_unstable());
        delivery
    }

    /// Passes the message to at most `most` further listeners. Returns how many it will reach.
    pub(super) fn advance(&self, delivery: &mut EventDelivery, most: usize) -> u64 {
        let (all, mut left, mut sent) = (self.all.borrow(), most, 0);
        while let Some((formed, listeners)) = delivery.parts.last_mut() {
            if left == 0 {
                break;
            }
            let rest = listeners.len().saturating_sub(left);
            left -= listeners.len() - rest;
            for (_, number) in listeners.drain(rest..) {
                let Some(one) = all.get(number as usize) else { continue };
                let was_there = (one.begun.wrapping_sub(delivery.end) as i32) < 0;
                sent += u64::from(was_there && one.listener.take(&formed.bytes, &formed.id));
            }
            if rest == 0 {
                delivery.parts.pop();
            }
        }
        sent
    }

    /// Adds a listener, and returns its number.
    fn add(&self, listener: Rc<dyn Listener>, connection: ConnectionKey) -> u32 {
        let begun = self.begun.replace(self.begun.get().wrapping_add(1));
        self.all.borrow_mut().insert(KnownListener { begun, connection, listener }) as u32
    }

    /// Adds a listener of streams, which gets the messages after these offsets. Returns the set that it shares with others, and its number.
    pub(super) fn join(
        &self,
        set: StreamSet,
        form: EventForm,
        listener: Rc<dyn Listener>,
        connection: ConnectionKey,
        offsets: &[u64],
    ) -> (Rc<StreamSet>, u32) {
        let number = self.add(listener, connection);
        (self.audiences.borrow_mut().join(set, form, number, offsets), number)
    }

    /// Undoes [`Listeners::join`].
    pub(super) fn leave(&self, set: &Rc<StreamSet>, form: EventForm, number: u32) {
        self.audiences.borrow_mut().leave(set, form, number);
        self.all.borrow_mut().try_remove(number as usize);
    }

    /// Adds a subscriber of Mercure. Returns its number.
    pub(super) fn subscribe(
        &self,
        listener: Rc<dyn Listener>,
        connection: ConnectionKey,
        subscriber: MercureSubscriber,
    ) -> u32 {
        let number = self.add(listener, connection);
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
        all.iter().filter(|(number, _)| number % turns == turn).for_each(|(_, one)| one.listener.beat());
    }

    /// Ends all responses: the server stops.
    pub(super) fn close(&self) {
        let all: Vec<Rc<dyn Listener>> =
            self.all.borrow().iter().map(|(_, one)| one.listener.clone()).collect();
        all.iter().for_each(|listener| listener.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes its name for each message.
    struct Noting(&'static str, Rc<RefCell<Vec<&'static str>>>);

    impl Listener for Noting {
        fn take(&self, _: &Bytes, _: &Rc<str>) -> bool {
            self.1.borrow_mut().push(self.0);
            true
        }

        fn beat(&self) {}

        fn end(&self) {}
    }

    #[test]
    fn a_message_is_delivered_in_turns_to_those_that_were_there() {
        let (listeners, noted) = (Listeners::default(), Rc::<RefCell<Vec<&'static str>>>::default());
        let set = || StreamSet::new(std::iter::once("room".into()));
        let join = |name, form, offset, connection| {
            let listener = Rc::new(Noting(name, noted.clone()));
            listeners.join(set(), form, listener, ConnectionKey(connection), &[offset])
        };
        let message = |offset| {
            let (stream, epoch, payload) = ("room".into(), "e".into(), "1".into());
            Arc::new(StreamMessage { stream, offset, at: 0, number: 0, epoch, payload })
        };
        // The first and the third have the same connection.
        let (shared, first) = join("a", EventForm::Event, 0, 9);
        let (_, second) = join("b", EventForm::Event, 0, 8);
        join("c", EventForm::Event, 0, 9);
        assert_ne!(first, second);
        let mut delivery = listeners.begin(&message(1));
        assert_eq!((listeners.advance(&mut delivery, 2), delivery.is_over()), (2, false));
        assert_eq!(**noted.borrow(), ["a", "c"]);
        listeners.leave(&shared, EventForm::Event, second);
        join("late", EventForm::Event, 1, 8);
        assert_eq!((listeners.advance(&mut delivery, 9), delivery.is_over()), (0, true));
        assert_eq!(noted.borrow().len(), 2, "the new one has the number of the one that has left");
        let mut delivery = listeners.begin(&message(2));
        assert_eq!((listeners.advance(&mut delivery, 9), delivery.is_over()), (3, true));
        assert!(listeners.begin(&message(2)).is_over(), "it has been delivered");
    }
}
