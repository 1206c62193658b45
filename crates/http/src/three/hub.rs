//! What the tasks of a connection share.

use crate::context::Shared;
use http3::Code;
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
