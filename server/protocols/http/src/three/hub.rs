//! Holds the state that the tasks of a connection share.

use super::buffers::Buffers;
use super::priorities::Priorities;
use super::windows::Windows;
use crate::context::{self, ThreadShared};
use crate::room::RoomState;
use fieldcode::{Flood, FloodBudget, HEADS};
use handler::held::Account;
use http3::control::PriorityUpdate;
use http3::qpack::Encoder;
use http3::{Code, Costs};
use net::Unread;
use quic::quinn::{Connection, VarInt};

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::Notify;

/// The shared state of a connection and its streams.
pub(super) struct Hub {
    pub(super) connection: Connection,
    pub(super) shared: Rc<ThreadShared>,
    pub(super) encoder: RefCell<Encoder>,
    /// Requests in progress.
    pub(super) active: Cell<usize>,
    /// Streams whose last bytes the client has not acknowledged, requests in progress included.
    pub(super) open: Cell<usize>,
    /// The open streams that are tunnels. While only tunnels are open, `tunnel` counts the connection as one.
    pub(super) tunnels: Cell<usize>,
    pub(super) tunnel: RefCell<Option<context::CounterGuard>>,
    /// `active` or `open` has become 0.
    pub(super) settled: Notify,
    /// A stream begins to wait for bytes.
    pub(super) waited: Notify,
    /// A response asks for the end of the connection.
    pub(super) drain: Notify,
    /// Changes of response priorities by the client.
    pub(super) priorities: Priorities,
    /// The number of request streams that the client has opened.
    pub(super) accepted: Cell<u64>,
    /// The budget against floods.
    pub(super) budget: RefCell<FloodBudget>,
    /// Bytes of the heads of requests in progress, and of incomplete field sections.
    pub(super) heads: Cell<usize>,
    pub(super) sections: Cell<usize>,
    /// How far the client may send ahead, and whether it sends the missing bytes.
    pub(super) windows: Windows,
    /// The key of the connection's timer, until its task has ended.
    pub(super) key: Cell<Option<usize>>,
    /// The head of a request has arrived.
    pub(super) proved: Cell<bool>,
    /// Requests in progress that wait for the client.
    pub(super) waiting: Cell<usize>,
    /// The buffers of QUIC. It takes more of the responses when the client has acknowledged some.
    pub(super) buffers: Buffers,
    /// The part of them that the client program may not have read.
    pub(super) unread: RefCell<Unread>,
    /// The account of the resources that responses hold.
    pub(super) account: OnceCell<Rc<Account>>,
    /// Why the connection was closed.
    pub(super) failure: RefCell<Option<&'static str>>,
}

/// A guard that adds one to a counter until it is dropped.
pub(super) struct HubCounterGuard {
    hub: Rc<Hub>,
    of: fn(&Hub) -> &Cell<usize>,
}

/// A guard for a request that waits for its client: for the head, the body, or for the client to read the response.
pub(super) struct Waits(Rc<Hub>);

impl Waits {
    pub(super) fn new(hub: &Rc<Hub>) -> Waits {
        Waits::since(hub, hub.shared.timers.recent())
    }

    /// Counts a request whose client has let the server wait since that time.
    pub(super) fn since(hub: &Rc<Hub>, since: Instant) -> Waits {
        hub.waiting.update(|n| n + 1);
        hub.follow_since(since);
        Waits(hub.clone())
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.waiting.update(|n| n - 1);
        self.0.follow();
    }
}

impl Hub {
    pub(super) fn begin(self: &Rc<Hub>, of: fn(&Hub) -> &Cell<usize>) -> HubCounterGuard {
        of(self).update(|n| n + 1);
        self.count_tunnel();
        HubCounterGuard { hub: self.clone(), of }
    }

    /// Counts the connection as a tunnel while all of its streams are tunnels: a drain does not wait for it.
    fn count_tunnel(&self) {
        let tunnels = self.tunnels.get();
        if tunnels == 0 && self.tunnel.borrow().is_none() {
            return;
        }
        let only = tunnels > 0 && tunnels == self.open.get();
        let mut counted = self.tunnel.borrow_mut();
        if only != counted.is_some() {
            *counted = only.then(|| self.shared.count_tunnel());
        }
    }

    /// Marks the client as proved: the head of a request has arrived.
    pub(super) fn prove(&self) {
        self.proved.set(true);
        self.follow();
    }

    /// Updates the connection's state: if all requests wait for the client, the connection may have to make room.
    pub(super) fn follow(&self) {
        self.follow_since(self.shared.timers.recent());
    }

    fn follow_since(&self, since: Instant) {
        let (room, active) = (&self.shared.room, self.active.get());
        let Some(key) = self.key.get().filter(|key| self.proved.get() && !room.is_chosen(*key)) else {
            return;
        };
        if active > 0 && self.waiting.get() >= active {
            room.wait(key, RoomState::Stalled, since);
        } else if active > 0 {
            room.busy(key);
        }
    }

    /// Returns the account of the resources that responses hold.
    pub(super) fn account(&self) -> Rc<Account> {
        self.account.get_or_init(|| Rc::new(Account::new())).clone()
    }

    /// Applies a priority update to a stream that is open or may be opened.
    pub(super) fn reprioritize(&self, update: PriorityUpdate) {
        // A stream is allowed for each one that ends, so the accepted streams count.
        let limit = self.accepted.get().saturating_add(self.shared.settings().limits.http2_streams as u64);
        match update.stream / 4 < limit {
            true => self.priorities.update(update),
            false => self.fail(Code::IdError, "PRIORITY_UPDATE for a stream beyond the limit"),
        }
    }

    /// Spends units of a budget. An exhausted budget ends the connection.
    pub(super) fn spend(&self, kind: Flood, units: u32) {
        let mut budget = self.budget.borrow_mut();
        budget.refill(self.shared.timers.recent());
        if let Err(flood) = budget.spend(kind, units) {
            drop(budget);
            self.flood(flood);
        }
    }

    /// Charges the costs of data that has arrived on a stream.
    pub(super) fn count(&self, costs: Costs) {
        if costs.unknown > 0 {
            self.spend(Flood::Ignored, costs.unknown);
        }
        let mut budget = self.budget.borrow_mut();
        budget.refill(self.shared.timers.recent());
        if let Err(flood) = budget.data(costs.data) {
            drop(budget);
            self.flood(flood);
        }
    }

    /// Returns the most bytes of heads, and the most bytes of incomplete field sections.
    pub(super) fn most_heads(&self) -> usize {
        self.shared.settings().limits.max_header_bytes.saturating_mul(HEADS)
    }

    /// Ends the connection because of a flood.
    #[cold]
    pub(super) fn flood(&self, flood: Flood) {
        // A lost connection has already cancelled everything.
        if self.connection.close_reason().is_none() {
            self.fail(Code::ExcessiveLoad, flood.name());
        }
    }

    /// Closes the connection because of a protocol error of the client.
    pub(super) fn fail(&self, code: Code, why: &'static str) {
        self.failure.borrow_mut().get_or_insert(why);
        self.connection.close(number(code), why.as_bytes());
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.windows.end(&self.shared.uploads);
    }
}

impl Drop for HubCounterGuard {
    fn drop(&mut self) {
        let count = (self.of)(&self.hub);
        count.update(|n| n - 1);
        self.hub.count_tunnel();
        if count.get() == 0 {
            self.hub.settled.notify_one();
        } else {
            self.hub.follow();
        }
    }
}

/// Converts a code to QUIC's number type.
pub(super) fn number(code: Code) -> VarInt {
    VarInt::from_u32(code.number() as u32)
}
