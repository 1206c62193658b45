//! What a connection shares with the handlers of its streams.
//!
//! Contract: the engine is borrowed for single calls only, never while code of a handler runs.

use super::ready::ReadyList;
use crate::context::Shared;
use handler::held::Account;
use http2::Connection;
use net::Timer;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// A connection as its streams see it.
pub(super) struct Hub {
    pub(super) engine: RefCell<Connection>,
    pub(super) shared: Rc<Shared>,
    pub(super) timer: Timer,
    pub(super) ready: Arc<ReadyList>,
    /// Body bytes that have arrived and that no handler has taken.
    pub(super) held: Cell<usize>,
    /// When the speed of an upload is to be checked next, or whether all requests wait for the client.
    pub(super) check_at: Cell<Option<Instant>>,
    /// What its responses hold.
    pub(super) account: OnceCell<Rc<Account>>,
    /// Some of them have to leave.
    pub(super) displaced: Cell<bool>,
}

impl Hub {
    /// Something was put into the engine's output, or a deadline was set: the connection's task looks at it soon.
    pub(super) fn touch(&self) {
        self.ready.touch();
    }

    /// What its responses hold.
    pub(super) fn account(&self) -> Rc<Account> {
        self.account.get_or_init(|| Rc::new(Account::new())).clone()
    }

    /// An upload is to be checked at `at`.
    pub(super) fn check_at(&self, at: Instant) {
        let sooner = self.check_at.get().is_none_or(|known| at < known);
        if sooner {
            self.check_at.set(Some(at));
            self.touch();
        }
    }

    /// The same, by the connection's task itself.
    pub(super) fn look_at(&self, at: Instant) {
        if self.check_at.get().is_none_or(|known| at < known) {
            self.check_at.set(Some(at));
        }
    }

    /// Body bytes have arrived.
    pub(super) fn hold(&self, bytes: usize) {
        self.held.update(|held| held + bytes);
        self.shared.uploads.hold(bytes);
    }

    /// Body bytes were taken or dropped.
    pub(super) fn release(&self, bytes: usize) {
        self.held.update(|held| held - bytes);
        self.shared.uploads.release(bytes, &self.shared.timers);
    }
}
