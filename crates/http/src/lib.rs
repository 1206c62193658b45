//! Bytes to exchanges: the HTTP versions, their limits and timeouts.
//!
//! Why: what comes from the internet is read in one place that refuses everything that could be read in two ways, so that
//! nothing behind a [`handler::Exchange`] has to ask where a message ends or which version it came by.
//!
//! Contract:
//! 1. [`h1::serve`] owns one connection until it ends; what a handler sees of it is a [`handler::Exchange`] at a time.
//! 2. A refused message is answered with its status where that is safe, and no later byte of its connection is parsed.
//! 3. An idle connection owns no buffer.
//! 4. Everything happens on one thread, the one that polls; one [`Context`] per thread.
#![forbid(unsafe_code)]

pub mod body;
mod context;
mod date;
pub mod h1;
mod limits;
mod timers;
mod transport;

pub use context::{Connections, Context};
pub use limits::Limits;
pub use timers::{Lane, Timer, Timers};
pub use transport::Transport;
