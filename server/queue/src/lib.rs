//! Decides which worker serves next: one queue for each pool of workers, shared by all front threads. Pure:
//! times are passed in, and no code here uses a process, a socket or Ruby.
//!
//! Why: CRuby runs one thread of a process at a time, so a request must go to a process that is free *now*,
//! and wait in a single queue when none is. That queue is in the front, where keep-alive cannot tie a client
//! to a process.
//!
//! The way of a request: [`Pools::choose`] finds its pool by its path, [`Dispatch::take`] gives it a free seat of
//! a worker; without one, [`Dispatch::ask`] gives it a position in the queue. [`Dispatch::finished`] frees the
//! seat for the next one.
//!
//! `line.rs` decides which client's turn it is. The caller decides what counts as a client ([`QueueKey`]).
//!
//! Contract:
//! 1. Pools share nothing: each has its own queue, seats, limit, pace and figures. No request changes from
//!    one pool to another, and no two locks are held at a time.
//! 2. A worker belongs to one pool for its whole life.
#![forbid(unsafe_code)]

mod availability;
mod class;
mod client;
mod dispatch;
mod flow;
mod lengths;
mod line;
mod links;
mod load;
mod pace;
mod paths;
mod pools;
mod tally;
mod throughput;
mod ticket;
mod trial;
mod waits;
mod worker;

pub use availability::PassReason;
pub use class::{ClassFigures, ClassShare};
pub use client::{ClassIndex, QueueClient, QueueKey};
pub use dispatch::Dispatch;
pub use line::Waiter;
pub use load::{Load, Refusals, Responses};
pub use pools::Pools;
pub use tally::Tally;
pub use ticket::{Admission, Assignment, PoolIndex, Serial, TakenBack, Ticket, Turn};
pub use waits::Waits;
