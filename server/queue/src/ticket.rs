//! The names of requests, workers and pools in a queue, and the answers to a request for a seat.

use std::time::Duration;

/// The number of a worker process; never reused.
pub type Serial = u32;

/// The number of a pool of workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolIndex(pub u8);

impl PoolIndex {
    /// The pool of all requests whose path belongs to no other pool.
    pub const DEFAULT: PoolIndex = PoolIndex(0);
}

/// A request's position in the queue, and the front thread that holds the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    /// Grows with every request of the pool.
    pub number: u64,
    pub thread: u16,
    /// The index under which the front thread keeps the request.
    pub slot: u32,
    /// The pool in whose queue the request is.
    pub pool: PoolIndex,
}

/// Gives a seat to a waiting request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    pub ticket: Ticket,
    pub serial: Serial,
}

/// The result of asking for a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The request can be sent to this worker now.
    Go(Serial),
    /// The request waits. An [`Assignment`] follows, unless the request expires.
    Wait,
    /// `max_queue` requests are waiting already.
    Full,
    /// The predicted wait, which is longer than allowed.
    Late(Duration),
}
