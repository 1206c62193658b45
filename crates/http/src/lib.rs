//! HTTP connections: bytes to exchanges, with their limits and timeouts.
//!
//! Why: what arrives from the internet is read in one place that refuses everything ambiguous, so that handlers behind a
//! [`handler::Exchange`] need not know where a message ends or which version it used.
//!
//! Contract:
//! 1. [`one::serve`] and [`two::serve`] own one connection until it ends; a handler sees it as one [`handler::Exchange`] at a time.
//! 2. A refused message gets a response with its status where that is safe, and no later byte of its connection is parsed.
//! 3. An idle connection owns no buffer.
//! 4. Everything happens on the thread that polls; one [`Context`] per thread.
#![forbid(unsafe_code)]

mod arrival;
pub mod body;
mod context;
mod date;
mod delivery;
mod message;
pub mod one;
mod preface;
mod room;
pub mod three;
pub mod two;
mod unnamed;
mod unproved;
mod unsent;
mod uploads;

pub use arrival::Arrival;
pub use context::{Connections, Context};
pub use preface::serve_either;
pub use room::Rank;
pub use settings::{Current, Limits, Timeouts};
