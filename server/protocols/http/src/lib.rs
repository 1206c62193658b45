//! Serves HTTP connections: turns bytes into exchanges, and enforces limits and time-outs.
//!
//! Why: input from the internet is parsed in one place that refuses everything ambiguous, so a handler behind
//! a [`handler::Exchange`] need not know where a message ends or which HTTP version it used.
//!
//! Contract:
//! 1. [`one::serve`] and [`two::serve`] own one connection until it ends. The handler sees one
//!    [`handler::Exchange`] per request.
//! 2. A refused message gets a response with its status where that is safe. No later byte of its connection is parsed.
//! 3. An idle connection owns no buffer.
//! 4. All work happens on the thread that polls. Each thread has one [`Context`].
#![forbid(unsafe_code)]

mod arrival;
pub mod body;
mod context;
mod date;
mod delivery;
mod message;
pub mod one;
mod opening;
mod preface;
mod room;
mod scarcity;
pub mod three;
pub mod two;
mod unproved;
mod unsent;
mod uploads;

pub use arrival::Arrival;
pub use context::{Connections, Context};
pub use opening::websocket_accept;
pub use preface::serve_either;
pub use room::Rank;
pub use settings::{Current, Limits, Timeouts};
