//! What the tasks of a connection share.

use super::priorities::Priorities;
use crate::context::Shared;
use http3::Code;
use http3::control::PriorityUpdate;
use http3::qpack::Encoder;
use quic::quinn::{Connection, VarInt};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tokio::sync::Notify;

/// A connection as its streams see it.
pub(super) struct Hub {
    pub(super) connection: Connection,
    pub(super) shared: Rc<Shared>,
    pub(super) encoder: RefCell<Encoder>,
    /// Requests in progress.
    pub(super) active: Cell<usize>,
    /// Streams whose last bytes the client has not acknowledged, requests in progress included.
    pub(super) open: Cell<usize>,
    /// `active` or `open` has become 0.
    pub(super) settled: Notify,
    /// A response asks for the end of the connection.
    pub(super) drain: Notify,
    /// What the client has changed of the order of responses.
    pub(super) priorities: Priorities,
    /// Request streams that the client has opened.
    pub(super) accepted: Cell<u64>,
    /// Why the connection was closed, once it was.
    pub(super) failure: RefCell<Option<&'static str>>,
}

/// Counts one until it is dropped.
pub(super) struct Counted {
    hub: Rc<Hub>,
    of: fn(&Hub) -> &Cell<usize>,
}

impl Hub {
    pub(super) fn count(self: &Rc<Hub>, of: fn(&Hub) -> &Cell<usize>) -> Counted {
        of(self).update(|n| n + 1);
        Counted { hub: self.clone(), of }
    }

    /// Takes an update of a priority, for a stream that is open or may be opened.
    pub(super) fn reprioritize(&self, update: PriorityUpdate) {
        // Streams are allowed as others end; those have been accepted.
        let limit = self.accepted.get().saturating_add(self.shared.settings().limits.http2_streams as u64);
        match update.stream / 4 < limit {
            true => self.priorities.update(update),
            false => self.fail(Code::IdError, "PRIORITY_UPDATE for a stream beyond the limit"),
        }
    }

    /// Closes the connection because its client has broken a rule.
    pub(super) fn fail(&self, code: Code, why: &'static str) {
        self.failure.borrow_mut().get_or_insert(why);
        self.connection.close(number(code), why.as_bytes());
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let count = (self.of)(&self.hub);
        count.update(|n| n - 1);
        if count.get() == 0 {
            self.hub.settled.notify_one();
        }
    }
}

/// A code as QUIC takes it.
pub(super) fn number(code: Code) -> VarInt {
    VarInt::from_u32(code.number() as u32)
}
