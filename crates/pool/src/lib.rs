//! Serves Rack apps: holds the request queue, decides which worker serves next, and manages the worker
//! processes.
//!
//! Why: CRuby runs one thread of a process at a time, so a request must go to a process that is free *now*,
//! and wait in a single queue when none is. That queue is in the front, where keep-alive cannot tie a client
//! to a process.
//!
//! The path of a request: [`rack`] encodes it and asks [`dispatch`] for a seat; [`link`] carries it to the
//! worker and puts the response into a [`reply`]; bytes that the client has not read yet wait in [`spool`].
//!
//! The management of processes: the [`reconciler`] decides (pure), with [`room`], [`verdict`], [`progress`]
//! and [`services`]; [`supervisor`] carries its acts out, [`spawner`] starts processes, and [`os`] and
//! `system` contain every system call.
//!
//! Contract:
//! 1. At most one worker starts a request. Another worker gets it only if the first has not started it and
//!    never will, because it died or the request was withdrawn from it.
//! 2. Requests are served in order of arrival. A request that is moved to another worker keeps its position.
//! 3. A worker that dies, stalls or leaks does not take the front down.
#![forbid(unsafe_code)]

mod call;
pub mod collections;
mod deaths;
pub mod dispatch;
mod fiber_paths;
mod in_flight;
mod link;
mod loan;
mod local;
mod memory;
mod oom;
mod orphans;
mod os;
mod probe;
mod process;
pub mod progress;
mod rack;
pub mod reconciler;
mod reply;
pub mod room;
mod scores;
pub mod services;
mod shared;
pub mod spawner;
mod spool;
pub mod supervisor;
mod system;
mod throughput;
mod tunnel;
pub mod verdict;
pub mod waits;
mod websocket;

pub use deaths::Deaths;
pub use in_flight::{InFlight, Sent};
pub use local::Local;
pub use rack::Rack;
pub use shared::{Mailbox, Shared};
pub use wire::scoreboard::{Busy, Serving, Slot};
pub use wire::traces::Trace;
