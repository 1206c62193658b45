//! Holds the state that a connection shares with the handlers of its streams.
//!
//! Contract: the engine is borrowed only for single calls, never while a handler's code runs.

use super::ready::ReadyList;
use crate::context::ThreadShared;
use handler::held::Account;
use http2::Connection;
use net::Timer;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Output bytes of a turn: beyond this, no body is added and nothing is read.
pub(super) const FILL: usize = 128 << 10;
/// The delay from the last bytes of a connection to the check whether it waits for its client.
pub(super) const LOOK: Duration = Duration::from_millis(250);

/// The shared state of a connection and its streams.
pub(super) struct Hub {
    pub(super) engine: RefCell<Connection>,
    pub(super) shared: Rc<ThreadShared>,
    pub(super) timer: Timer,
    pub(super) ready: Arc<ReadyList>,
    /// Received body bytes that no handler has taken.
    pub(super) held: Cell<usize>,
    /// The time of the next check of upload rates and of requests that wait for the client.
    pub(super) check_at: Cell<Option<Instant>>,
    /// The account of the resources that responses hold.
    pub(super) account: OnceCell<Rc<Account>>,
    /// The bytes that the client had acknowledged when that was last asked for.
    pub(super) acknowledged: Cell<u64>,
    /// Some responses have to break off.
    pub(super) displaced: Cell<bool>,
}

impl Hub {
    /// Schedules the connection's task, because the engine has output or a deadline was set.
    pub(super) fn touch(&self) {
        self.ready.touch();
    }

    /// Returns the account of the resources that responses hold.
    pub(super) fn account(&self) -> Rc<Account> {
        self.account.get_or_init(|| Rc::new(Account::new())).clone()
    }

    /// Requests a check of an upload at `at`.
    pub(super) fn check_at(&self, at: Instant) {
        let sooner = self.check_at.get().is_none_or(|known| at < known);
        if sooner {
            self.check_at.set(Some(at));
            self.touch();
        }
    }

    /// Like `check_at`, but for the connection's own task.
    pub(super) fn look_at(&self, at: Instant) {
        if self.check_at.get().is_none_or(|known| at < known) {
            self.check_at.set(Some(at));
        }
    }

    /// Counts received body bytes.
    pub(super) fn hold(&self, bytes: usize) {
        self.held.update(|held| held + bytes);
        self.shared.uploads.hold(bytes);
    }

    /// Counts body bytes that were taken or dropped.
    pub(super) fn release(&self, bytes: usize) {
        self.held.update(|held| held - bytes);
        self.shared.uploads.release(bytes, &self.shared.timers);
    }
}
