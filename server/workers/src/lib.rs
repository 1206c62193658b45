//! Serves Rack apps: carries requests to workers, and manages the worker processes.
//!
//! The life of a request, in the order of the files: [`rack`] encodes it. `local/submit.rs` asks the
//! [`queue`] of its pool for a seat and keeps the request while it waits ([`clients`] decides its turn;
//! during a [`pause`] it waits before that). `link/outgoing.rs` sends it to the worker. `link/incoming.rs`
//! puts the response into a [`reply`]; bytes that the client has not read yet wait in [`spool`], and go to a [`disk`] in the background.
//! [`local::Local`] frees the seat. `local/take_back.rs` and `local/overdue.rs` handle requests that end
//! otherwise.
//!
//! The management of processes: the [`reconciler`] decides (pure), with [`trial`], [`shadow`], [`progress`]
//! and [`services`]; [`supervisor`] carries out its acts; [`spawner`] starts processes; and [`os`] contains every
//! system call that [`sys`] does not.
//!
//! Contract:
//! 1. At most one worker starts a request. Another worker gets it only if the first has not started it and
//!    never will, because it died or the request was withdrawn from it.
//! 2. Queued requests take turns by client ([`clients`]), and the requests of a client are served in order of
//!    arrival. A request that is moved to another worker keeps its position.
//! 3. A worker that dies, stalls or leaks does not take the front down.
#![forbid(unsafe_code)]

mod call;
pub mod clients;
pub mod collections;
mod deaths;
mod disk;
mod in_flight;
mod kept;
mod link;
mod loan;
mod local;
mod memory;
mod messages;
mod oom;
mod orphans;
mod os;
mod own_request;
mod pause;
mod process;
pub mod progress;
mod rack;
pub mod reconciler;
mod reply;
pub mod resume;
mod scoreboard;
mod scores;
pub mod services;
pub mod shadow;
pub mod shape;
mod shared;
pub mod spawner;
mod spool;
pub mod supervisor;
pub mod trial;
mod tunnel;
mod websocket;

pub use deaths::Deaths;
pub use in_flight::{InFlight, Sent};
pub use local::Local;
pub use messages::Mailbox;
pub use pause::{Pause, PauseFigures, PausePhase, PauseTerms};
pub use process::{ExitStatus, ReleaseId};
pub use queue::{ClassIndex, ClassShare, Dispatch, PoolIndex, Serial};
pub use rack::Rack;
pub use shared::Shared;
pub use wire::profile::Clock;
pub use wire::scoreboard::{Busy, Serving, Slot};
pub use wire::traces::Trace;
