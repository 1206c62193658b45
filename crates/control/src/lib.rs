//! The control server: statistics of a running server, and its reload, over HTTP.
//!
//! Why a Unix socket of its own: it is reachable when every request thread is busy, other machines cannot reach it, and
//! its file permissions are all the authentication that is needed. It speaks HTTP, so that
//! `curl --unix-socket PATH http://x/stats` needs no tool of ours. The same may listen on TCP ports, for browsers and
//! other machines; there it requires a token. docs/stats.md describes the responses.
//!
//! Contract:
//! 1. A socket file that a dead server left is replaced; one that a running server listens on is left alone.
//! 2. The socket can be used by its owner only, from the moment it exists; a port only with the token and
//!    a Host field of this machine.
//! 3. Clients that hold connections open or send nonsense cannot keep others waiting: see `connections`.
//! 4. GET and HEAD change nothing, but for the orders of Puma's tools, which know nothing else. POST is for `/reload` and `/upgrade`.
//! 5. Another program can go on with its sockets, so that clients never find nobody: see `release`.
#![forbid(unsafe_code)]

mod bind;
pub mod client;
mod connections;
mod deaths;
mod fleet;
mod gate;
mod metrics;
pub mod owner;
mod page;
mod provider;
mod release;
pub mod reload;
mod routes;
mod server;
mod socket;
mod stop;
mod system;
mod table;

pub use provider::{Order, Provider};
pub use release::{Listening, Release};
pub use server::Server;
pub use settings::ControlAddress;
pub use stop::{Target, status_command, stop_command};
