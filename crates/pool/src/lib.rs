//! Rack apps: the queue, who serves next, and the processes that serve.
//!
//! Why: CRuby runs one thread of a process at a time, so a request must go to a process that is free *now*, and wait in
//! one line with all others when none is. That line is here, in the front, where keep-alive cannot tie a client to a process.
//!
//! How it fits together, from the request's side:
//! [`rack`] encodes a request and asks [`dispatch`] for a seat; [`link`] carries it to the worker and
//! brings the answer back into a [`reply`]; what the client has not taken yet waits in [`spool`].
//! From the processes' side: [`table`] decides (pure), [`supervisor`] carries out, [`template`] is its arm, and [`os`]
//! holds every system call.
//!
//! Contract:
//! 1. A request is given to one worker thread; a second worker gets it only if the first died before it had started.
//! 2. Nobody is served before somebody who waited longer, but for requests that are moved from a dead worker, which keep their place.
//! 3. A worker's death, stall or leak is never the front's own.
#![forbid(unsafe_code)]

pub mod dispatch;
mod link;
mod loan;
mod local;
mod os;
mod rack;
mod reply;
mod shared;
mod spool;
pub mod supervisor;
pub mod table;
pub mod template;
mod under_way;

pub use local::Local;
pub use rack::{OnFailure, Rack, RackOptions};
pub use shared::{Mailbox, Shared};
pub use under_way::{Sent, UnderWay};
pub use wire::scoreboard::{Busy, Serving, Slot};
pub use wire::traces::Trace;
