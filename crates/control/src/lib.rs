//! The control socket: how a running server is asked what it is doing.
//!
//! Why a Unix socket of its own: it is reachable when every request thread is busy, nobody outside can reach it, and
//! its file permissions are all the authentication that is needed. It speaks HTTP, so that
//! `curl --unix-socket PATH http://x/stats` needs no tool of ours. The same may listen on TCP ports, for browsers and
//! other machines; there it asks for a token. docs/stats.md describes the answers.
//!
//! Contract:
//! 1. A socket file that a dead server left is replaced; one that a living server answers on is left alone.
//! 2. The socket can be used by its owner only, from the moment it exists; a port only by those who show the token and
//!    ask for this machine.
//! 3. Whoever holds connections open or sends nonsense cannot slow the server down.
//! 4. Nothing can be changed here: all questions are GET.
#![forbid(unsafe_code)]

mod bind;
pub mod client;
mod gate;
mod page;
mod provider;
mod routes;
mod server;
mod socket;
mod table;

pub use provider::Provider;
pub use server::Server;
pub use settings::ControlAddress;
