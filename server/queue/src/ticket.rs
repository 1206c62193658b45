//! The names of requests, workers and pools in a queue, and the answers to a request for a seat.

use crate::client::QueueKey;
use std::cmp::Ordering;
use std::time::{Duration, Instant};

/// The number of a worker process; never reused.
pub type Serial = u32;

/// The number of a pool of workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolIndex(pub u8);

impl PoolIndex {
    /// The pool of all requests whose path belongs to no other pool.
    pub const DEFAULT: PoolIndex = PoolIndex(0);
}

/// A request's position in the queue, and the front thread that holds the request. Tickets of the same request
/// are equal.
#[derive(Debug, Clone, Copy)]
pub struct Ticket {
    /// Grows with every request of the pool.
    pub number: u64,
    pub thread: u16,
    /// The index under which the front thread keeps the request.
    pub slot: u32,
    /// The pool in whose queue the request is.
    pub pool: PoolIndex,
    /// Where the queue keeps the request while it waits.
    pub(crate) place: u32,
}

impl Ticket {
    /// Returns the ticket of a request that its front thread keeps in another slot now.
    pub fn in_slot(self, slot: u32) -> Ticket {
        Ticket { slot, ..self }
    }
}

impl PartialEq for Ticket {
    fn eq(&self, other: &Ticket) -> bool {
        (self.number, self.pool) == (other.number, other.pool)
    }
}

impl Eq for Ticket {}

impl PartialOrd for Ticket {
    fn partial_cmp(&self, other: &Ticket) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// In order of arrival.
impl Ord for Ticket {
    fn cmp(&self, other: &Ticket) -> Ordering {
        (self.number, self.pool).cmp(&(other.number, other.pool))
    }
}

/// The turn of a client that a request has used. It ends with the request's seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    pub(crate) slot: u32,
    pub(crate) stamp: u32,
}

/// Gives a seat to a waiting request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    pub ticket: Ticket,
    pub serial: Serial,
    pub turn: Turn,
}

/// A request that was taken back from a worker.
#[derive(Debug, Clone, Copy)]
pub struct TakenBack {
    /// The turn that it used; `None` if it had not waited.
    pub turn: Option<Turn>,
    /// Its ticket, the time since which it has waited, and its key; `None` if its client no longer wants it.
    pub again: Option<(Ticket, Instant, QueueKey)>,
}

/// The result of asking for a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The request can be sent to this worker now.
    Go(Serial),
    /// The request waits. An [`Assignment`] follows, unless the request expires or gives way to another.
    Wait,
    /// The request replaces the request of this ticket, which must be refused: the queue was full, and that
    /// was the newest request of a client that has many more.
    Displaces(Ticket),
    /// `max_queue` requests are waiting already.
    Full,
    /// The predicted wait, which is longer than allowed.
    Late(Duration),
}
