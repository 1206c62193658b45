//! Waiting for another task: what channels and joins are made of.
//!
//! A task that parks waits until somebody who knows its [`Ticket`] wakes it. Tickets of tasks that are over wake nobody.

use std::cell::RefCell;
use std::collections::HashMap;
use tokio::sync::oneshot;

/// Names one wait of one task.
pub(crate) type Ticket = i64;

#[derive(Default)]
pub(crate) struct Park {
    last: std::cell::Cell<Ticket>,
    parked: RefCell<HashMap<Ticket, oneshot::Sender<()>>>,
}

impl Park {
    /// A ticket that nobody has yet.
    pub(crate) fn ticket(&self) -> Ticket {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }

    /// Ready when the ticket is woken. Dropping it gives the ticket back.
    pub(crate) async fn wait(&self, ticket: Ticket) {
        let (wake, woken) = oneshot::channel();
        self.parked.borrow_mut().insert(ticket, wake);
        let _leave = Leave(self, ticket);
        // The sender is dropped only together with us.
        let _ = woken.await;
    }

    /// Whether anybody waited for it.
    pub(crate) fn wake(&self, ticket: Ticket) -> bool {
        self.parked.borrow_mut().remove(&ticket).is_some_and(|wake| wake.send(()).is_ok())
    }
}

struct Leave<'a>(&'a Park, Ticket);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.parked.borrow_mut().remove(&self.1);
    }
}
