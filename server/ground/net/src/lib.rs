//! Byte streams and their deadlines.
//!
//! Why: clients and upstreams use the same kinds of sockets, plain or with TLS. Reading, writing and waiting
//! are implemented once for both sides; protocols build on [`Transport`].
//!
//! Contract:
//! 1. This crate does not know HTTP or any other application protocol.
//! 2. No call blocks. `WouldBlock` means: wait for `poll_readable` or `poll_writable`.
//! 3. A stream and its [`Timer`] belong to one thread and its tokio runtime.
#![forbid(unsafe_code)]

mod cached;
mod connect;
mod connection;
pub mod descriptors;
mod output;
pub mod proxy_protocol;
mod stream;
mod subnet;
mod system;
pub mod task;
mod timers;
mod tls;
mod transport;
mod tunnel;

pub use cached::read_cached;
pub use connect::connect_tcp;
pub use connection::{Connection, Listener};
pub use output::Output;
pub use stream::Stream;
pub use subnet::Subnet;
pub use system::{Delivery, UNSENT};
pub use timers::{Lane, Timer, Timers};
pub use tls::Tls;
pub use transport::Transport;
pub use tunnel::{TunnelEnd, tunnel_end};
