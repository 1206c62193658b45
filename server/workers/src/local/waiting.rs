//! The requests of a front thread that wait in a queue, by the slot that their tickets name.

use crate::call::{Call, CallState};
use queue::{Admission, Ticket};
use slab::{Slab, VacantEntry};
use std::cell::RefCell;
use std::rc::Rc;

type WaitingCall = (Ticket, Rc<Call>);

#[derive(Default)]
pub(super) struct WaitingCalls(RefCell<Slab<WaitingCall>>);

impl WaitingCalls {
    /// Asks for a seat with `ask`, which gets the number of a free slot. A request that has to wait is kept
    /// in that slot.
    pub(super) fn ask(
        &self,
        call: &Rc<Call>,
        ask: impl FnOnce(u32) -> (Ticket, Admission),
    ) -> (Ticket, Admission) {
        let mut slots = self.0.borrow_mut();
        let slot = slots.vacant_entry();
        let (ticket, admission) = ask(slot.key() as u32);
        if matches!(admission, Admission::Wait | Admission::Displaces(_)) {
            fill(slot, ticket, call.clone());
        }
        (ticket, admission)
    }

    /// Keeps a request that has a position in the queue already. Returns its ticket with the new slot.
    pub(super) fn keep(&self, ticket: Ticket, call: Rc<Call>) -> Ticket {
        let mut slots = self.0.borrow_mut();
        let slot = slots.vacant_entry();
        let ticket = ticket.in_slot(slot.key() as u32);
        fill(slot, ticket, call);
        ticket
    }

    /// Removes the request with this ticket, or returns `None` if it was abandoned.
    pub(super) fn take(&self, ticket: Ticket) -> Option<Rc<Call>> {
        let (mut slots, slot) = (self.0.borrow_mut(), ticket.slot as usize);
        slots.get(slot).filter(|(its, _)| *its == ticket)?;
        Some(slots.remove(slot).1)
    }

    /// Removes all requests.
    pub(super) fn take_all(&self) -> Vec<WaitingCall> {
        self.0.borrow_mut().drain().collect()
    }

    pub(super) fn calls(&self) -> Vec<Rc<Call>> {
        self.0.borrow().iter().map(|(_, (_, call))| call.clone()).collect()
    }
}

fn fill(slot: VacantEntry<'_, WaitingCall>, ticket: Ticket, call: Rc<Call>) {
    call.set_state(CallState::Waiting(ticket));
    slot.insert((ticket, call));
}
