//! Tracks a body on a connection to an origin, and which side is next: the client, which must read, or the origin.

use super::{At, HeldConnections, HoldingClient};
use crate::pool::Connection;
use crate::upstreams::Active;
use handler::Failure;
use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::time::Instant;

/// A body and its connection.
pub(crate) struct HeldBody {
    pub(super) at: At,
    pub(super) holder: Option<Rc<HoldingClient>>,
    pub(super) index: Cell<usize>,
    pub(super) unread: Cell<Option<Instant>>,
    /// A part has been handed over.
    pub(super) begun: Cell<bool>,
    pub(super) connection: RefCell<Option<(Connection, Active)>>,
    pub(super) displaced: Cell<bool>,
}

/// A guard for a body's entry.
pub(crate) struct BodyGuard {
    pub(super) holds: Rc<HeldConnections>,
    pub(super) held: Rc<HeldBody>,
}

impl HeldBody {
    pub(super) fn set_unread(&self, unread: bool) {
        let was = self.unread.replace(unread.then(Instant::now)).is_some();
        if let Some(holder) = self.holder.as_ref().filter(|_| was != unread) {
            holder.unread.update(|count| if unread { count + 1 } else { count - 1 });
        }
    }

    /// Takes the connection away.
    pub(super) fn displace(&self) {
        self.set_unread(false);
        if self.connection.take().is_some() {
            self.displaced.set(true);
        }
    }
}

impl BodyGuard {
    /// Returns the connection, while it is there.
    pub(crate) fn connection(&self) -> Option<Ref<'_, Connection>> {
        Ref::filter_map(self.held.connection.borrow(), |held| held.as_ref().map(|(connection, _)| connection))
            .ok()
    }

    pub(crate) fn take(&self) -> Option<Connection> {
        self.held.connection.take().map(|(connection, _)| connection)
    }

    /// Records whether the client (`true`) or the origin is next.
    pub(crate) fn set_unread(&self, unread: bool) {
        // The first part is taken before the client asks for it.
        if unread
            && self.held.begun.replace(true)
            && let Some(holder) = &self.held.holder
        {
            holder.read.set(Instant::now());
            holder.reduced.set(false);
        }
        self.held.set_unread(unread && !self.held.displaced.get());
        if !unread
            && let Some(holder) = self.held.holder.as_ref()
            && !holder.waiting.borrow().is_empty()
        {
            self.holds.admit(holder);
        }
    }

    /// Returns the failure if other requests took the connection.
    pub(crate) fn displaced(&self) -> Option<Failure> {
        self.held.displaced.get().then(|| {
            let why = "the client stopped reading while other requests needed its connection to the origin";
            Failure::client(408, why)
        })
    }
}

impl Drop for BodyGuard {
    fn drop(&mut self) {
        self.held.set_unread(false);
        let index = self.held.index.get();
        let mut bodies = self.holds.bodies.borrow_mut();
        bodies.swap_remove(index);
        if let Some(moved) = bodies.get(index) {
            moved.index.set(index);
        }
        drop(bodies);
        if let Some(holder) = &self.held.holder {
            self.holds.released(holder);
        }
    }
}
