//! The control server: statistics and reloads of a running server over HTTP.
//!
//! Why a separate Unix socket: it is reachable while every request thread is busy, it is not reachable from other machines, and file
//! permissions are sufficient authentication. It speaks HTTP, so that `curl --unix-socket PATH http://x/stats` works. The server can also
//! listen on TCP ports, for browsers and other machines; these require a token. docs/stats.md describes the responses.
//!
//! Contract:
//! 1. A stale socket file is replaced. The socket of a running server is left alone.
//! 2. Only the owner can use the socket, from the moment it exists. A port requires the token and a `Host` field of this machine.
//! 3. Clients that hold connections open or send invalid data cannot delay others: see `connections`.
//! 4. GET and HEAD change nothing, except for the orders of Puma's tools, which only know GET. POST is for orders: `/reload`, `/upgrade`,
//!    `/pause`, `/resume`, `/maintenance/on`, `/maintenance/off`, `/settings`, `/settings/undo`, `/routes/reset`, `/heap`, `/profile` and
//!    `/record`.
//! 5. Another program can take over the sockets without interruption: see `release`.
#![forbid(unsafe_code)]

mod bind;
pub mod by_route;
pub mod cache;
mod caller;
pub mod changes;
pub mod client;
mod connections;
mod deaths;
mod described;
mod fleet;
mod gate;
mod handover;
pub mod heap;
pub mod hub;
pub mod interrupt;
pub mod leaks;
mod metrics;
pub mod orders;
pub mod owner;
mod page;
pub mod profile;
mod provider;
mod ps;
pub mod record;
pub mod reload;
pub mod replay;
mod routes;
mod server;
pub mod set;
pub mod shape;
mod socket;
mod stop;
mod table;

pub use bind::{LocalSocketFile, bind_local};
pub use caller::ControlCaller;
pub use handover::{Listening, SocketHandover};
pub use provider::{Provider, PumaCommand};
pub use ps::ps_command;
pub use server::Server;
pub use settings::ControlAddress;
pub use stop::{Target, status_command, stop_command};
