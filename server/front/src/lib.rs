//! The front: everything between the network and the workers, in one process that never runs Ruby. A static
//! site needs no workers.
//!
//! [`serve`] is the whole program from top to bottom: read, bind, boot, start threads, serve until a signal,
//! drain. [`pipeline`] is the life of one request.
//!
//! Contract:
//! 1. The port opens only when the app can respond.
//! 2. TERM, QUIT and the first INT finish the requests that have arrived, and the exit code is 0. A second
//!    INT exits at once.
//! 3. However the server ends, it leaves no process, socket file, pid file or temporary file behind.
#![forbid(unsafe_code)]

mod accept;
pub mod access_log;
mod app;
mod attached;
mod banner;
mod boot;
mod caching;
mod check;
mod content;
mod control_socket;
mod error_log;
pub mod explain;
mod file_state;
mod handover;
mod hub;
mod interruption;
mod leftovers;
mod libraries;
mod listen;
mod log_file;
mod memory;
mod pipeline;
mod public;
mod recording;
mod release;
mod replay;
mod scripts;
mod serve;
mod services;
mod signals;
mod sites;
mod stamp;
mod systemd;
mod thread;
mod tls;
mod traces;
mod vitals;
mod warm_up;
mod whole_body;

pub use attached::{attached, refuse, serve_attached};
pub use boot::configure;
pub use check::check;
pub use explain::explain;
pub use handover::{Started, decline};
pub use listen::{AddressTrial, try_address};
pub use log_file::writable_folder;
pub use release::{Reread, Rereads};
pub use replay::{Replayed, replay};
pub use script::about as mruby;
pub use serve::serve;
pub use services::guard;
pub use workers::spawner::{Handoff, jemalloc};

pub const VERSION: &str = env!("CARGO_PKG_VERSION");
